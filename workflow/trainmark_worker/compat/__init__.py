"""Stand-ins for what a framework lacks on a CPU or on an old torch; never active with CUDA.

One file per stand-in. Each says which versions it is for and what happens without it; a test
tells when it is no longer needed. Strategies call the ones that belong to their framework; those
for torch itself are for everyone and are called from here.
"""

from __future__ import annotations

from typing import Any, Dict

import torch


def on_cpu() -> bool:
    """Whether stand-ins may be used at all."""
    return not torch.cuda.is_available()


def torch_1() -> bool:
    return torch.__version__.startswith("1.")


def prepare() -> None:
    """Before any framework is imported."""
    if on_cpu() and torch_1():
        from . import gloo_torch1, layer_norm_torch1

        gloo_torch1.install()
        layer_norm_torch1.install()


def start(spec: Dict[str, Any]) -> None:
    """In a rank, after its process group exists."""
    from . import bfloat16_products

    if bfloat16_products.product_dtype(spec):
        bfloat16_products.install()
