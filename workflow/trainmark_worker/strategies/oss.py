"""fairscale OSS: the optimizer state is sharded; gradients are reduced as in DDP."""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from ..optimizers import optimizer_class
from . import base


class Strategy(base.Strategy):
    shards = "optimizer state"

    @classmethod
    def prepare(cls, spec):
        from fairscale.optim.oss import OSS  # noqa: F401

    def shard(self, model, workload):
        from fairscale.optim.oss import OSS

        kind, arguments = optimizer_class(self.spec)
        self.optimizer = OSS(model.parameters(), optim=kind, **arguments)
        ids = [self.device.index] if self.device.type == "cuda" else None
        self.model = DistributedDataParallel(model, device_ids=ids)
