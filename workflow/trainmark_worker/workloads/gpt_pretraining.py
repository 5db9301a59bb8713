"""GPT pre-training: predict the next token."""

from __future__ import annotations

from typing import Any, Dict

import torch

from ..data import integers
from ..models.gpt import GPT
from ..weights import initialise

ARRAYS = ("tokens",)


def prepare(spec: Dict[str, Any]) -> None:
    """Everything is imported above."""


def build(spec: Dict[str, Any], layers=None) -> GPT:
    """The whole model, or one rank's part of it with a parallel factory of layers."""
    model = GPT(spec, layers)
    parts = {} if layers is None else {"tp_rank": layers.tp_rank, "tp_size": layers.tp_size}
    initialise(model, spec["seed"], model.full_name, **parts)
    return model.train()


def blocks(model: GPT) -> torch.nn.ModuleList:
    return model.blocks


def collate(spec: Dict[str, Any], arrays: Dict[str, Any]) -> Dict[str, torch.Tensor]:
    tokens = integers(arrays["tokens"])
    return {"tokens": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}
