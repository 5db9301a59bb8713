"""fairscale ShardedDataParallel: optimizer state and gradients are sharded."""

from __future__ import annotations

from ..optimizers import optimizer_class
from . import base


class Strategy(base.Strategy):
    shards = "optimizer state and gradients"

    @classmethod
    def prepare(cls, spec):
        from fairscale.nn.data_parallel import ShardedDataParallel  # noqa: F401
        from fairscale.optim.oss import OSS  # noqa: F401

    def shard(self, model, workload):
        from fairscale.nn.data_parallel import ShardedDataParallel
        from fairscale.optim.oss import OSS

        kind, arguments = optimizer_class(self.spec)
        self.optimizer = OSS(model.parameters(), optim=kind, **arguments)
        # With a reduce buffer, gradients that were set to None train wrongly and silently.
        self.model = ShardedDataParallel(model, self.optimizer, reduce_buffer_size=0)

    def clip(self, limit):
        """Each rank has the gradients of its own shard only: the norm is summed over ranks."""
        self.optimizer.clip_grad_norm(limit)

    def forget_gradients(self):
        # Not optimizer.zero_grad: the optimizer knows this rank's shard only, and the gradients
        # of the others, which SDP has reduced away, would be added up.
        self.model.zero_grad(set_to_none=True)
