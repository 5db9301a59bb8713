"""Initial weights: every full tensor is drawn by numpy from its own name, then cut for the rank.

So they are the same for every layout, framework and version. Weights get a standard deviation of
0.02 (GPT-2, BERT); one-dimensional tensors are ones (norm weights) or zeros (biases).
"""

from __future__ import annotations

import zlib
from typing import Callable, Optional, Sequence

import numpy as np
import torch

STANDARD_DEVIATION = 0.02


def full_tensor(name: str, shape: Sequence[int], seed: int) -> np.ndarray:
    """The whole initial tensor called `name`."""
    if len(shape) == 1:
        return np.full(shape, 1.0 if name.endswith("weight") else 0.0)
    random = np.random.RandomState((zlib.crc32(name.encode()) + seed) % 2**32)
    return STANDARD_DEVIATION * random.standard_normal(shape)


@torch.no_grad()
def initialise(
    model: torch.nn.Module,
    seed: int,
    full_name: Optional[Callable[[str], str]] = None,
    tp_rank: int = 0,
    tp_size: int = 1,
) -> None:
    """Fill `model`; `full_name` maps a stage's parameter names to those of the whole model.

    Megatron's layers mark the parameters that they split: `tensor_model_parallel`, `partition_dim`.
    """
    for name, parameter in model.named_parameters():
        split = tp_size > 1 and getattr(parameter, "tensor_model_parallel", False)
        shape = list(parameter.shape)
        if split:
            shape[parameter.partition_dim] *= tp_size
        values = full_tensor(full_name(name) if full_name else name, shape, seed)
        if split:
            values = np.split(values, tp_size, axis=parameter.partition_dim)[tp_rank]
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)).to(parameter.dtype))
