"""PyTorch DistributedDataParallel: every rank holds the whole model and all states."""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from . import base


class Strategy(base.Strategy):
    def shard(self, model, workload):
        self.optimizer = self.torch_optimizer(model.parameters())
        ids = [self.device.index] if self.device.type == "cuda" else None
        self.model = DistributedDataParallel(model, device_ids=ids) if self.ranks > 1 else model
