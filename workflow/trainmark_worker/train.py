"""The training loop: every strategy, workload and purpose goes through this one."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed as dist

from .data import Batches, load_arrays
from .limits import lift_memory_limit, limit_memory
from .memory import memory_meter


class Position:
    """Where training is: what a failure's report says."""

    def __init__(self):
        self.phase: str = "start"
        self.step: Optional[int] = None
        self.micro_batch_index: Optional[int] = None

    def enter(self, phase: str, micro_batch_index: Optional[int] = None) -> None:
        self.phase, self.micro_batch_index = phase, micro_batch_index


def train(
    run: Dict[str, Any], strategy, workload, position: Position, on_step: Callable
) -> Dict[str, Any]:
    """Train one run on this rank; return its part of the measurement."""
    spec, device = run["spec"], strategy.device
    limit_memory(spec["memory_limit_mib"], device)
    meter = memory_meter(spec["purpose"], device, strategy.allocates_outside_torch)
    meter.start()

    position.enter("build")
    strategy.build(workload)
    arrays = load_arrays(run["data"], workload.ARRAYS)
    batches = Batches(
        spec,
        arrays,
        workload.collate,
        strategy.data_parallel_rank,
        strategy.data_parallel_size,
        device,
    )
    torch.manual_seed(strategy.random_seed)

    losses: List[torch.Tensor] = []
    seconds: List[float] = []
    warm_up, steps = spec["warmup_steps"], spec["warmup_steps"] + spec["timed_steps"]
    for step in range(steps):
        position.step = step
        if step == warm_up:
            barrier(device)
            begin = time.perf_counter()
        meter.begin_step()
        started = time.perf_counter()
        losses.append(strategy.step(batches.step(step), position).float())
        synchronise(device)
        seconds.append(time.perf_counter() - started)
        meter.end_step()
        on_step(step, steps, seconds[-1], losses[-1])
    barrier(device)
    wall_seconds = time.perf_counter() - begin
    position.enter("finish")
    lift_memory_limit()  # evaluating the measurement takes room of its own
    memory = meter.stop()

    return {
        "losses": mean_losses(losses, strategy),
        "step_seconds": seconds[warm_up:],
        "wall_seconds": wall_seconds,
        "memory": dict(memory, method=meter.method) if memory else None,
        "parameters": {"model": strategy.parameter_count, "local": strategy.local_parameters()},
        "dtypes": strategy.dtypes(),
    }


def mean_losses(losses: List[torch.Tensor], strategy) -> List[float]:
    """Loss of each step over the whole global batch, the same on every rank."""
    known = torch.stack(losses) if strategy.has_loss else torch.zeros(len(losses))
    total = known.to(strategy.device, torch.float32)
    voices = torch.tensor(float(strategy.has_loss), device=strategy.device)
    dist.all_reduce(total)
    dist.all_reduce(voices)
    return (total / voices).tolist()


def synchronise(device: torch.device) -> None:
    """Wait for the device: the CPU is ahead of a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def barrier(device: torch.device) -> None:
    synchronise(device)
    dist.barrier()
    synchronise(device)
