"""Strategies that count the bytes which they hand to collectives in their last step.

`faulty.counting` is a folder of one: the spec's option `counted` names the real strategy.
"""

import torch
import torch.distributed as dist
from trainmark_worker import strategies

#: Calls of torch.distributed, and how many bytes of the payload each moves per rank and peer.
CALLS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "reduce")


def size(value):
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(size, value)) if isinstance(value, (list, tuple)) else 0


class Strategy:
    """Delegates to the counted strategy."""

    @classmethod
    def prepare(cls, spec):
        strategies.load(spec["options"]["counted"]).prepare(spec)

    def __init__(self, spec, device):
        self.__dict__["inner"] = strategies.load(spec["options"]["counted"])(spec, device)
        self.__dict__["moved"] = {}

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def step(self, batches, position):
        if position.step < self.spec["timed_steps"] - 1:
            return self.inner.step(batches, position)
        originals = {name: getattr(dist, name) for name in CALLS}
        try:
            for name, call in originals.items():
                setattr(dist, name, self.counted(name, call))
            return self.inner.step(batches, position)
        finally:
            for name, call in originals.items():
                setattr(dist, name, call)

    def counted(self, name, call):
        def counting(*arguments, **options):
            self.moved[name] = self.moved.get(name, 0) + size([*arguments, *options.values()])
            return call(*arguments, **options)

        return counting

    def dtypes(self):
        """The counts travel in the record's note."""
        import json

        return {**self.inner.dtypes(), "note": json.dumps(self.moved)}
