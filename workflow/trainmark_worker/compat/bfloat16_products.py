"""bfloat16 matrix products on a CPU without AVX-512: computed in fp32 and rounded once.

torch hands them to oneDNN where the CPU has AVX-512 (`mkldnn_bf16_device_check` in its source);
elsewhere scalar code multiplies, 4 to 50 times slower than fp32. Vector units sum such products in
fp32 and round the sum, so the results agree; the time is that of fp32, which records say.
"""

from __future__ import annotations

import warnings
from typing import Any, Dict, Optional

import torch
from torch import library

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


def _rounded(product, *matrices, **factors):
    return _plain(product, *(matrix.float() for matrix in matrices), **factors).bfloat16()


def _rounded_batch(product, *batches, **factors):
    """One matrix after the other: peak memory grows by one in fp32, not by a batch of them."""
    *added, left, right = batches
    out = left.new_empty(len(left), left.shape[1], right.shape[2])
    added = [batch.expand_as(out) for batch in added]
    for result, *matrices in zip(out, *added, left, right):
        result.copy_(_rounded(product, *matrices, **factors))
    return out


def _standing_in(replaced, compute, product):
    """`replaced`, computing bfloat16 by `product` of single matrices."""

    def kernel(*tensors, **factors):
        if tensors[0].dtype is torch.bfloat16:
            return compute(product, *tensors, **factors)
        return _plain(replaced, *tensors, **factors)

    return kernel


KERNELS = (
    (torch.mm, _rounded, torch.mm),
    (torch.addmm, _rounded, torch.addmm),
    (torch.bmm, _rounded_batch, torch.mm),
    (torch.baddbmm, _rounded_batch, torch.addmm),
)


def install() -> None:
    kernels = library.Library("aten", "IMPL", "CPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced
        for replaced, *how in KERNELS:
            kernels.impl(replaced.__name__, _standing_in(replaced, *how))
    _alive.append(kernels)
