"""SDP with a reduce buffer, gradients forgotten through the optimizer: trains wrongly, silently."""

from trainmark_worker.optimizers import optimizer_class
from trainmark_worker.strategies import sdp


class Strategy(sdp.Strategy):
    def shard(self, model, workload):
        from fairscale.nn.data_parallel import ShardedDataParallel
        from fairscale.optim.oss import OSS

        kind, arguments = optimizer_class(self.spec)
        self.optimizer = OSS(model.parameters(), optim=kind, **arguments)
        self.model = ShardedDataParallel(model, self.optimizer)

    def forget_gradients(self):
        self.optimizer.zero_grad(set_to_none=True)
