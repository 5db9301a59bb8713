"""Mixed precision over fp32 weights: autocast, and loss scaling where float16 needs it."""

from __future__ import annotations

import contextlib
from typing import Any, ContextManager, Dict, Optional

import torch

from .compat import bfloat16_products

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def is_mixed(spec: Dict[str, Any]) -> bool:
    return spec["precision"] == "mixed"


def mixed_dtype(spec: Dict[str, Any]) -> Optional[torch.dtype]:
    """The half type of a mixed run, else None."""
    return DTYPES[spec["mixed_dtype"]] if is_mixed(spec) else None


def autocast(spec: Dict[str, Any]) -> ContextManager:
    """Autocast of the run's precision; nothing in fp32."""
    if not is_mixed(spec):
        return contextlib.nullcontext()
    return torch.autocast(spec["device"], dtype=mixed_dtype(spec))


def loss_scaler(spec: Dict[str, Any]):
    """A scaler that agrees on overflow over all ranks (a shard may overflow on one), or None.

    bfloat16 has fp32's range and needs none. torch's ShardedGradScaler exists since 1.12.
    """
    if mixed_dtype(spec) is not torch.float16:
        return None
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    return ShardedGradScaler(init_scale=2.0**16)


def autocast_dtypes(spec: Dict[str, Any]) -> Dict[str, Optional[str]]:
    """The record's dtypes for training with fp32 weights."""
    compute = spec["mixed_dtype"] if is_mixed(spec) else "float32"
    return {
        "compute": compute,
        "products": bfloat16_products.product_dtype(spec),
        "weights": "float32",
        "optimizer": "float32",
        "gradient_reduction": "float32",
        "note": None,
    }


def no_autocast() -> ContextManager:
    """For frameworks that cast the weights themselves."""
    return contextlib.nullcontext()
