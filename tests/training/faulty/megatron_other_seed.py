"""A pipeline whose last stage starts from other weights."""

from trainmark_worker.strategies import megatron
from trainmark_worker.weights import initialise


class Strategy(megatron.Strategy):
    def build(self, workload):
        super().build(workload)
        if self.model.last:
            initialise(self.model, self.spec["seed"] + 1, self.model.full_name)
