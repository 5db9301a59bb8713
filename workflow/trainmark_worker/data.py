"""Which rows of the tokenised data a rank trains on; the same samples whatever the layout."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, Iterator, Sequence

import numpy as np
import torch


def load_arrays(folder: str, names: Sequence[str]) -> Dict[str, np.ndarray]:
    """Memory-mapped arrays of `folder`, N rows each."""
    return {name: np.load(Path(folder) / f"{name}.npy", mmap_mode="r") for name in names}


def manifest(folder: str) -> Dict[str, Any]:
    """The data's own description for the record: key, loss of the unigram model, checksum."""
    text = (Path(folder) / "manifest.json").read_bytes()
    facts = json.loads(text)
    return {
        "key": facts.get("key"),
        "unigram_loss": facts.get("unigram_loss"),
        "manifest_sha256": hashlib.sha256(text).hexdigest(),
    }


def row_numbers(spec: Dict[str, Any], step: int, dp_rank: int, dp_size: int) -> np.ndarray:
    """[micro batches, micro batch] row numbers: the contiguous share of DP rank `dp_rank`."""
    share = spec["global_batch"] // dp_size
    start = step * spec["global_batch"] + dp_rank * share
    return np.arange(start, start + share).reshape(-1, spec["micro_batch"])


class Batches:
    """Micro batches of one rank, as dictionaries of tensors on its device."""

    def __init__(self, spec, arrays, collate, dp_rank, dp_size, device):
        self.spec, self.arrays, self.collate = spec, arrays, collate
        self.dp_rank, self.dp_size, self.device = dp_rank, dp_size, device
        self.samples = len(next(iter(arrays.values())))

    @property
    def per_step(self) -> int:
        return self.spec["global_batch"] // (self.spec["micro_batch"] * self.dp_size)

    def step(self, step: int) -> Iterator[Dict[str, torch.Tensor]]:
        for rows in row_numbers(self.spec, step, self.dp_rank, self.dp_size):
            chosen = {name: array[rows % self.samples] for name, array in self.arrays.items()}
            batch = self.collate(self.spec, chosen)
            yield {name: tensor.to(self.device) for name, tensor in batch.items()}


def integers(array: np.ndarray) -> torch.Tensor:
    """A private int64 copy: what torch's embedding and loss functions take."""
    return torch.from_numpy(np.array(array, dtype=np.int64))
