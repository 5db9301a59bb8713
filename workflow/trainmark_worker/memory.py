"""Peak memory of a rank: allocated tensor memory, measured from before the model is built.

CPU: torch.profiler's `[memory]` events (every allocation and release of torch's allocator), as a
running sum. GPU: the caching allocator's own counters.

The profiler sees the threads that it was started in and autograd's. A buffer that one of gloo's
threads releases would seem to stay alive; but two living blocks cannot share an address, so a new
block ends every one that it overlaps.

What a framework allocates by itself on a CPU, torch does not see. There the peak is what torch
holds between steps, plus the growth of resident memory within a step, which the kernel keeps.
Measured in both ways, eager PyTorch differs by less than 2 % (tests/training/test_ort.py).
"""

from __future__ import annotations

import bisect
import ctypes
import gc
from typing import Any, Dict, Iterable, List, Optional, Tuple

import torch

from .startup import MALLOC

#: The numbers by which mallopt(3) knows the settings of MALLOC. Large blocks come from the kernel and
#: go back to it: their addresses are used again at once.
MALLOPT = {
    "MALLOC_ARENA_MAX": -8,
    "MALLOC_MMAP_THRESHOLD_": -3,
    "MALLOC_TRIM_THRESHOLD_": -1,
    "MALLOC_MMAP_MAX_": -4,
}
LIBC = ctypes.CDLL(None)


class LiveBlocks:
    """The living blocks of memory, from allocations and those releases that were seen."""

    def __init__(self):
        self.starts: List[int] = []  # sorted
        self.sizes: Dict[int, int] = {}
        self.now = self.peak = 0

    def event(self, address: int, size: int) -> None:
        """An allocation, or, with a negative size, a release."""
        if size < 0:
            self._end(address)
            return
        place = bisect.bisect_left(self.starts, address)
        if place and self._reaches(self.starts[place - 1]) > address:
            self._end(self.starts[place - 1])
            place -= 1
        while place < len(self.starts) and self.starts[place] < address + size:
            self._end(self.starts[place])
        self.starts.insert(place, address)
        self.sizes[address] = size
        self.now += size
        self.peak = max(self.peak, self.now)

    def _reaches(self, address: int) -> int:
        return address + self.sizes[address]

    def _end(self, address: int) -> None:
        if address in self.sizes:  # else it was there before the profiler
            self.now -= self.sizes.pop(address)
            del self.starts[bisect.bisect_left(self.starts, address)]


class Meter:
    """Between start and stop; the loop tells where each step begins and ends."""

    method: Optional[str] = None

    def start(self) -> None:
        pass

    def begin_step(self) -> None:
        pass

    def end_step(self) -> None:
        pass

    def stop(self) -> Optional[Dict[str, Any]]:
        return None


class CpuMemory(Meter):
    method = "torch.profiler"

    def start(self) -> None:
        for name, value in MALLOC.items():
            LIBC.mallopt(MALLOPT[name], int(value))
        self.profile = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        )
        self.profile.__enter__()

    def stop(self) -> Dict[str, Any]:
        self.profile.__exit__(None, None, None)
        results = self.profile.profiler.kineto_results
        blocks = LiveBlocks()
        for _, address, size in sorted(_events(results)):
            blocks.event(address, size)
        return {
            "peak_allocated_bytes": blocks.peak,
            "steady_bytes": blocks.now,
            "peak_reserved_bytes": None,
        }


def _events(results) -> Iterable[Tuple[int, int, int]]:
    """(time, address, bytes). torch 1.12 tells no address: there each block gets its own."""
    tree = getattr(results, "experimental_event_tree", list)()
    found = [e for e in _walk(tree) if hasattr(getattr(e, "extra_fields", None), "alloc_size")]
    if found and hasattr(found[0].extra_fields, "ptr"):
        for event in found:
            fields = event.extra_fields
            yield event.start_time_ns, fields.ptr, fields.alloc_size
    else:
        yield from _without_addresses(results)


def _walk(events):
    stack = list(events)
    while stack:
        event = stack.pop()
        stack.extend(event.children)
        yield event


def _without_addresses(results) -> Iterable[Tuple[int, int, int]]:
    """A release ends the latest living block of its size."""
    living: Dict[int, List[int]] = {}
    address = 0
    memory = [event for event in results.events() if event.name() == "[memory]"]
    for event in sorted(memory, key=_time):
        size = event.nbytes()
        blocks = living.setdefault(abs(size), [])
        if size > 0:
            blocks.append(address)
            yield _time(event), address, size
            address += size
        elif blocks:
            yield _time(event), blocks.pop(), size


def _time(event) -> int:
    """Microseconds before torch 2.4."""
    return event.start_ns() if hasattr(event, "start_ns") else event.start_us()


class CpuMemoryOfOthers(CpuMemory):
    """For frameworks with their own allocator: torch's steady memory and the growth within a step.

    The first step is left out: it exports graphs and creates the optimizer's state. A tensor of
    128 KiB or more comes from the kernel and goes back to it (MALLOPT).
    """

    method = "torch.profiler+resident"

    def start(self) -> None:
        super().start()
        self.steps = self.growth = 0

    def begin_step(self) -> None:
        gc.collect()
        LIBC.malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as control:
            control.write("5")  # proc(5): VmHWM, the highest resident size, starts again
        self.before = _status_bytes("VmRSS")

    def end_step(self) -> None:
        if self.steps:
            self.growth = max(self.growth, _status_bytes("VmHWM") - self.before)
        self.steps += 1

    def stop(self) -> Dict[str, Any]:
        found = super().stop()
        if self.steps < 2:
            raise ValueError("a memory run of this strategy needs two steps or more")
        return {**found, "peak_allocated_bytes": found["steady_bytes"] + self.growth}


def _status_bytes(name: str) -> int:
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024


class CudaMemory(Meter):
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


class NoMemory(Meter):
    """The CPU meters slow training down: they run in memory runs only."""


def memory_meter(purpose: str, device: torch.device, outside_torch: bool = False) -> Meter:
    """`outside_torch`: the strategy's framework has an allocator of its own on a CPU."""
    if device.type == "cuda":
        return CudaMemory(device)
    if purpose != "memory":
        return NoMemory()
    return CpuMemoryOfOthers() if outside_torch else CpuMemory()
