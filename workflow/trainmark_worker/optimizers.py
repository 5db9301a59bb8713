"""The optimizer of a spec: class and arguments, so that sharded optimizers can build it too."""

from __future__ import annotations

from typing import Any, Dict, Tuple, Type

import torch


def optimizer_class(spec: Dict[str, Any]) -> Tuple[Type[torch.optim.Optimizer], Dict[str, Any]]:
    settings = spec["optimizer"]
    if settings["name"] == "sgd":
        return torch.optim.SGD, {
            "lr": settings["learning_rate"],
            "momentum": settings["momentum"],
            "weight_decay": settings["weight_decay"],
        }
    if settings["name"] == "adamw":
        return torch.optim.AdamW, {
            "lr": settings["learning_rate"],
            "betas": (settings["beta1"], settings["beta2"]),
            "eps": settings["epsilon"],
            "weight_decay": settings["weight_decay"],
        }
    raise ValueError(f"unknown optimizer {settings['name']!r}")


def torch_optimizer(spec: Dict[str, Any], parameters) -> torch.optim.Optimizer:
    kind, arguments = optimizer_class(spec)
    return kind(parameters, **arguments)
