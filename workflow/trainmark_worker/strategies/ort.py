"""ONNX Runtime: ORTModule trains the exported graph; gradients are reduced by DDP."""

from __future__ import annotations

import os

import torch
from torch.nn.parallel import DistributedDataParallel

from .. import precision
from ..outcome import Unsupported
from . import base

# ORT's CPU provider has no bfloat16 kernels. In float16 it runs, but multiplies matrices in fp32.
EMULATED = "emulated_float16_on_cpu"


class Strategy(base.Strategy):
    allocates_outside_torch = True
    checked = False

    @classmethod
    def prepare(cls, spec):
        from ..compat import onnxruntime as shim

        shim.install(spec["threads_per_rank"])
        from onnxruntime.training.ortmodule import ORTModule  # noqa: F401

    def check(self):
        reason = why_no_cuda() if self.device.type == "cuda" else None
        if reason:
            raise Unsupported(reason)

    def shard(self, model, workload):
        from onnxruntime.training.ortmodule import DebugOptions, LogLevel, ORTModule

        from ..compat import onnxruntime as shim

        if self.spec["purpose"] == "memory":
            shim.without_arena()
        self.optimizer = self.torch_optimizer(model.parameters())
        self.ort = ORTModule(model, DebugOptions(log_level=LogLevel.ERROR))
        ids = [self.device.index] if self.device.type == "cuda" else None
        self.model = self.ort
        if self.ranks > 1:
            self.model = DistributedDataParallel(self.ort, device_ids=ids)

    def autocast(self):
        if self.emulated:
            return torch.autocast("cpu", dtype=torch.float16)
        return super().autocast()

    @property
    def emulated(self):
        return self.device.type == "cpu" and precision.is_mixed(self.spec)

    def step(self, batches, position):
        loss = super().step(batches, position)
        if not self.checked:
            self.refuse_fallback()
        return loss

    def refuse_fallback(self):
        """After the first step: the graph really ran in ORT's training agent."""
        manager = self.ort._torch_module._execution_manager(True)
        agent = type(getattr(manager, "_execution_agent", None)).__name__
        if agent != "TrainingAgent":
            raise RuntimeError(f"ORTModule did not train in ONNX Runtime (agent: {agent})")
        self.checked = True

    def dtypes(self):
        found = super().dtypes()
        if self.emulated:
            found.update(compute="float32", products=None, note=EMULATED)
        return found


def why_no_cuda():
    """Why ORTModule cannot train on a GPU here, or None. The provider alone says too little:
    version 1.12 offers it also where its libraries are missing, and says so in a variable only."""
    import onnxruntime

    from ..compat.build_ort_extension import extensions_folder

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return "ONNX Runtime offers no CUDAExecutionProvider here"
    if os.environ.get("ORT_CUDA_UNAVAILABLE"):
        return (
            "ONNX Runtime's CUDA provider does not find its CUDA and cuDNN libraries; "
            "they have to come with the base image (docker/README.md)"
        )
    if not list(extensions_folder().glob("torch_gpu_allocator*.so")):
        return "ONNX Runtime's GPU extension is not built; the base image has no nvcc"
    return None
