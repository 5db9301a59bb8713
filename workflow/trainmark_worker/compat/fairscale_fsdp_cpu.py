"""fairscale 0.4.13's FullyShardedDataParallel on CPU tensors over gloo.

Without it: `AssertionError: Torch not compiled with CUDA enabled` from its streams. Its module
sees a `torch` whose `cuda` has streams that do nothing.
"""

from __future__ import annotations

import contextlib
import types

import torch


class _Stream:
    def wait_stream(self, *_):
        pass

    def synchronize(self):
        pass


_STREAM = _Stream()
_CUDA = types.SimpleNamespace(
    is_available=lambda: True,
    Stream=lambda *a, **k: _STREAM,
    current_stream=lambda *a: _STREAM,
    stream=lambda s: contextlib.nullcontext(),
    synchronize=lambda *a: None,
    set_device=lambda *a: None,
    memory_allocated=lambda *a: 0,
    max_memory_allocated=lambda *a: 0,
)


class _Torch(types.ModuleType):
    cuda = _CUDA

    def __getattr__(self, name):
        return getattr(torch, name)


def install() -> None:
    import fairscale.internal.reduce_scatter_bucketer as bucketer
    import fairscale.nn.data_parallel.fully_sharded_data_parallel as fsdp

    bucketer.enable_nccl_base_collectives = False  # gloo wants the list form
    fsdp.enable_nccl_base_collectives = False
    fsdp.torch = _Torch("torch")
    record_stream = torch.Tensor.record_stream
    torch.Tensor.record_stream = lambda tensor, stream: (
        None if tensor.device.type == "cpu" else record_stream(tensor, stream)
    )
