"""megatron-core (0.3.0 to 0.16.1) on CPU tensors over gloo: layers and pipeline schedules.

Three seams, and what happens without them:
  torch.cuda.current_device / synchronize   called for every buffer: "Found no NVIDIA driver"
  torch.zeros(..., device="cuda")           the schedules' token counter: the same error
  the linear layer's autograd function      remembers CUDA's autocast only: its backward pass
                                            multiplies bfloat16 by float32 and raises
While megatron.core is imported, torch.compile does nothing: it would cost 12 s per launch.
"""

from __future__ import annotations

import contextlib
import functools

import torch

_installed = False


@contextlib.contextmanager
def without_compile():
    """For the import: the fused operations decorated there are not used here."""
    if not hasattr(torch, "compile"):
        yield
        return
    kept = torch.compile
    torch.compile = lambda function=None, **_: function or (lambda inner: inner)
    try:
        yield
    finally:
        torch.compile = kept


def install() -> None:
    """In a rank, before the model is built. Idempotent."""
    global _installed
    if _installed:
        return
    _installed = True
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda device=None: None
    torch.zeros = _cuda_means_cpu(torch.zeros)
    _autocast_linear()


def _cuda_means_cpu(factory):
    @functools.wraps(factory)
    def on_cpu(*arguments, **options):
        if options.get("device") == "cuda":
            options["device"] = "cpu"
        return factory(*arguments, **options)

    return on_cpu


def _cpu_autocast_enabled() -> bool:
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:  # torch 1
        return torch.is_autocast_cpu_enabled()


def _cpu_autocast_dtype() -> torch.dtype:
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype("cpu")
    return torch.get_autocast_cpu_dtype()


def _autocast_linear() -> None:
    """The backward pass runs under the autocast of its forward, as custom_bwd does for CUDA."""
    from megatron.core.tensor_parallel import layers

    linear = layers.LinearWithGradAccumulationAndAsyncCommunication
    plain_forward, plain_backward = linear.forward, linear.backward

    def forward(ctx, *arguments):
        ctx.cpu_autocast = (_cpu_autocast_enabled(), _cpu_autocast_dtype())
        return plain_forward(ctx, *arguments)

    def backward(ctx, *gradients):
        enabled, dtype = ctx.cpu_autocast
        with torch.autocast("cpu", enabled=enabled, dtype=dtype):
            return plain_backward(ctx, *gradients)

    linear.forward, linear.backward = staticmethod(forward), staticmethod(backward)
