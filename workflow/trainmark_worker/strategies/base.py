"""What a strategy is: how one model is built, sharded and updated on several ranks.

The life of a strategy, in this order:
    Strategy.prepare(spec)       imports, once, before the ranks are forked
    strategy = Strategy(spec, device)
    strategy.check()             may raise Unsupported
    strategy.start()             the process group exists: framework's own groups
    strategy.build(workload)     model and optimizer
    strategy.step(batches, position)   one optimizer step; returns this rank's mean loss
"""

from __future__ import annotations

import contextlib
from typing import Any, ContextManager, Dict, Iterable, Optional

import torch
import torch.distributed as dist

from .. import precision
from ..optimizers import torch_optimizer


class Strategy:
    """Data parallelism with whole models; other strategies override what they do otherwise."""

    shards = "nothing"
    allocates_outside_torch = False  # on a CPU, where torch's profiler cannot see it

    def __init__(self, spec: Dict[str, Any], device: torch.device):
        self.spec, self.device = spec, device
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.model: Optional[torch.nn.Module] = None
        self.optimizer: Any = None
        self.scaler = None
        self.parameter_count = 0  # of the whole model

    @classmethod
    def prepare(cls, spec: Dict[str, Any]) -> None:
        """Import the framework."""

    def check(self) -> None:
        """Raise Unsupported when this spec cannot be trained so."""

    def start(self) -> None:
        """Set up the framework's own process groups."""

    # Which part of the global batch this rank trains on, and whether it sees the loss.
    @property
    def data_parallel_rank(self) -> int:
        return self.rank

    @property
    def data_parallel_size(self) -> int:
        return self.ranks

    @property
    def random_seed(self) -> int:
        """Seed of dropout: different on every data-parallel rank."""
        return self.spec["seed"] + 1 + self.rank

    has_loss = True

    def build(self, workload) -> None:
        model = workload.build(self.spec).to(self.device)
        self.parameter_count = count_parameters(model)
        self.scaler = precision.loss_scaler(self.spec)
        self.shard(model, workload)

    def shard(self, model: torch.nn.Module, workload) -> None:
        """Set self.model and self.optimizer from the plain model."""
        raise NotImplementedError

    def step(self, batches: Iterable[Dict[str, torch.Tensor]], position) -> torch.Tensor:
        """Accumulate the gradients of all micro batches, then update once."""
        batches = list(batches)
        losses = []
        for index, batch in enumerate(batches):
            with self.synchronise_gradients(last=index == len(batches) - 1):
                position.enter("forward", index)
                with self.autocast():
                    loss = self.model(**batch)
                position.enter("backward", index)
                self.backward(loss / len(batches))
            losses.append(loss.detach())
        position.enter("step")
        self.update()
        return torch.stack(losses).mean()

    def synchronise_gradients(self, last: bool) -> ContextManager:
        """Gradients travel only with the last micro batch of a step."""
        return contextlib.nullcontext() if last or self.ranks == 1 else self.model.no_sync()

    def autocast(self) -> ContextManager:
        return precision.autocast(self.spec)

    def backward(self, loss: torch.Tensor) -> None:
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def update(self) -> None:
        """Clip, step, forget the gradients."""
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        if self.spec["gradient_clipping"]:
            self.clip(self.spec["gradient_clipping"])
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.forget_gradients()

    def clip(self, limit: float) -> None:
        """Scale all gradients so that their global norm is at most `limit`."""
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)

    def forget_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def torch_optimizer(self, parameters):
        return torch_optimizer(self.spec, parameters)

    def local_parameters(self) -> int:
        """Parameter elements that this rank holds between steps."""
        return count_parameters(self.model)

    def dtypes(self) -> Dict[str, Optional[str]]:
        """What was really used: compute, weights, optimizer state, reduction of gradients."""
        return precision.autocast_dtypes(self.spec)


def count_parameters(model: torch.nn.Module) -> int:
    """Elements of all parameters, tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())
