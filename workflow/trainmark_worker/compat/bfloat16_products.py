"""bfloat16 matrix products on a CPU without AVX-512: computed in fp32 and rounded once.

torch hands them to oneDNN where the CPU has AVX-512 (`mkldnn_bf16_device_check` in its source);
elsewhere scalar code multiplies, 4 to 50 times slower than fp32. Vector units sum such products in
fp32 and round the sum, so the results agree; the time is that of fp32, which records say.
"""

from __future__ import annotations

import warnings
from typing import Any, Dict, Optional

import torch

FAST = {"avx512bw", "avx512dq", "avx512vl"}
_alive: list = []  # a library's kernels leave with it


def cpu_flags() -> set:
    with open("/proc/cpuinfo") as lines:
        return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def product_dtype(spec: Dict[str, Any]) -> Optional[str]:
    """The type that stands in for bfloat16 in this run's products; None: nothing has to."""
    bfloat16 = spec["precision"] == "mixed" and spec["mixed_dtype"] == "bfloat16"
    slow = spec["device"] == "cpu" and not FAST <= cpu_flags()
    return "float32" if bfloat16 and slow else None


def _plain(product, *tensors, **factors):
    """torch's own kernel: only the form without `out` is replaced."""
    return product(*tensors, **factors, out=torch.empty(0, dtype=tensors[0].dtype))


def _standing_in(product):
    def compute(*tensors, **factors):
        if tensors[0].dtype is not torch.bfloat16:
            return _plain(product, *tensors, **factors)
        return _plain(product, *(t.float() for t in tensors), **factors).bfloat16()

    return compute


def install() -> None:
    library = torch.library.Library("aten", "IMPL", "CPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced
        for product in (torch.mm, torch.bmm, torch.addmm, torch.baddbmm):
            library.impl(product.__name__, _standing_in(product))
    _alive.append(library)
