"""PyTorch fully_shard (FSDP2): parameters, gradients and optimizer state are sharded.

Mixed precision is its own: fp32 shards, gathered and computed in the half type, reduced in fp32.
"""

from __future__ import annotations

import torch

from .. import precision
from ..outcome import Unsupported
from . import base


class Strategy(base.Strategy):
    shards = "parameters, gradients and optimizer state"

    @classmethod
    def prepare(cls, spec):
        try:
            from torch.distributed.fsdp import fully_shard  # noqa: F401
        except ImportError:
            pass  # `check` says so

    def check(self):
        try:
            from torch.distributed.fsdp import fully_shard  # noqa: F401
        except ImportError as error:
            raise Unsupported(f"torch {torch.__version__} has no fully_shard: {error}") from None

    def shard(self, model, workload):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        arguments = {"mesh": init_device_mesh(self.device.type, (self.ranks,))}
        if precision.is_mixed(self.spec):
            arguments["mp_policy"] = MixedPrecisionPolicy(
                param_dtype=precision.mixed_dtype(self.spec), reduce_dtype=torch.float32
            )
        for block in workload.blocks(model):
            fully_shard(block, **arguments)
        self.model = fully_shard(model, **arguments)
        self.optimizer = self.torch_optimizer(model.parameters())

    def autocast(self):
        return precision.no_autocast()

    def synchronise_gradients(self, last):
        self.model.set_requires_gradient_sync(last)
        return precision.no_autocast()

    def local_parameters(self):
        return sum(parameter.to_local().numel() for parameter in self.model.parameters())

    def dtypes(self):
        used = super().dtypes()
        if precision.is_mixed(self.spec):
            used["note"] = "fsdp-half-compute"
        return used
