"""fairscale FullyShardedDataParallel: parameters, gradients and optimizer state are sharded.

Mixed precision is its own: fp32 shards, gathered and computed in the half type.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from .. import compat, precision
from . import base


class Strategy(base.Strategy):
    shards = "parameters, gradients and optimizer state"

    @classmethod
    def prepare(cls, spec):
        from fairscale.nn.data_parallel import FullyShardedDataParallel  # noqa: F401

    def start(self):
        if compat.on_cpu():
            from ..compat import fairscale_fsdp_cpu

            fairscale_fsdp_cpu.install()

    def shard(self, model, workload):
        from fairscale.nn.data_parallel import FullyShardedDataParallel

        mixed = precision.is_mixed(self.spec)
        arguments = {
            "mixed_precision": mixed,
            "compute_device": self.device,
            "bucket_cap_mb": 25 if self.device.type == "cuda" else 0,
        }
        if mixed:
            arguments["compute_dtype"] = precision.mixed_dtype(self.spec)
        blocks = workload.blocks(model)
        for index, block in enumerate(blocks):
            blocks[index] = FullyShardedDataParallel(block, **arguments)
        self.model = FullyShardedDataParallel(model, **arguments)
        self.optimizer = self.torch_optimizer(self.model.parameters())

    def autocast(self):
        """FSDP casts parameters and inputs itself."""
        return precision.no_autocast()

    def clip(self, limit):
        clip_shards(self.model.parameters(), limit)

    def dtypes(self):
        used = super().dtypes()
        if precision.is_mixed(self.spec):
            used["gradient_reduction"] = self.spec["mixed_dtype"]
            used["note"] = "fsdp-half-compute"
        return used


@torch.no_grad()
def clip_shards(parameters, limit: float) -> None:
    """Clip by the norm over all ranks' shards (fairscale's own method calls CUDA)."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    squares = torch.zeros((), device=gradients[0].device)
    for gradient in gradients:
        squares += gradient.float().pow(2).sum()
    dist.all_reduce(squares)
    factor = (limit / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)
