"""Peak memory of a rank: allocated tensor memory, measured from before the model is built.

CPU: torch.profiler's `[memory]` events (every allocation and release of torch's allocator), as a
running sum. GPU: the caching allocator's own counters.
"""

from __future__ import annotations

from typing import Any, Dict

import torch


class CpuMemory:
    method = "torch.profiler"

    def start(self) -> None:
        self.profile = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        )
        self.profile.__enter__()

    def stop(self) -> Dict[str, Any]:
        self.profile.__exit__(None, None, None)
        now = peak = 0
        for _, size in sorted(map(_time_and_size, self._events()), key=lambda event: event[0]):
            now += size
            peak = max(peak, now)
        return {"peak_allocated_bytes": peak, "steady_bytes": now, "peak_reserved_bytes": None}

    def _events(self):
        events = self.profile.profiler.kineto_results.events()
        return (event for event in events if event.name() == "[memory]")


def _time_and_size(event):
    """Nanoseconds (microseconds before torch 2.4) and bytes; a negative size is a release."""
    return (event.start_ns() if hasattr(event, "start_ns") else event.start_us()), event.nbytes()


class CudaMemory:
    method = "torch.cuda"

    def __init__(self, device: torch.device):
        self.device = device

    def start(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    def stop(self) -> Dict[str, Any]:
        torch.cuda.synchronize(self.device)
        return {
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(self.device),
            "steady_bytes": torch.cuda.memory_allocated(self.device),
            "peak_reserved_bytes": torch.cuda.max_memory_reserved(self.device),
        }


class NoMemory:
    """The CPU profiler slows training down: it runs in memory runs only."""

    method = None

    def start(self) -> None:
        pass

    def stop(self) -> None:
        return None


def memory_meter(purpose: str, device: torch.device):
    if device.type == "cuda":
        return CudaMemory(device)
    return CpuMemory() if purpose == "memory" else NoMemory()
