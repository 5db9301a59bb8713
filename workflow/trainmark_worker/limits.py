"""A memory limit per rank, and processes that never outlive their parent.

On a CPU, RLIMIT_DATA is set to what the process already uses plus the budget, so that the budget
is for the model, its states and activations. Near the limit torch's allocator raises a Python
exception with the place in the model; that only repeats well with the malloc settings of
startup.py, in the environment before the process starts: large tensors come straight from the
kernel and go straight back, so freed memory never counts.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from typing import Optional

import torch

MIB = 2**20
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def used_data_bytes() -> int:
    """VmData of this process: what RLIMIT_DATA counts."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("no VmData in /proc/self/status")


def limit_memory(budget_mib: Optional[float], device: torch.device) -> None:
    """Allow `budget_mib` beyond what is used now; None: no limit."""
    if budget_mib is None:
        return
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, budget_mib * MIB / total), device)
        return
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (used_data_bytes() + int(budget_mib * MIB), hard))


def lift_memory_limit() -> None:
    """Give back the room that a traceback and a report need."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def _prctl(option: int, argument: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def die_with_parent(number: int = signal.SIGKILL, parent: Optional[int] = None) -> None:
    """Have the kernel send `number` when the parent ends; leave at once if `parent` has ended."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Processes whose parent ends become children of this one, so that it can end them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kernel_oom_kills() -> int:
    """How many processes the kernel's OOM killer has ended in this control group, or host."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        count = _counter(path)
        if count is not None:
            return count
    return _counter("/proc/vmstat") or 0


def _counter(path: str) -> Optional[int]:
    try:
        with open(path) as lines:
            found = [line.split()[1] for line in lines if line.split()[:1] == ["oom_kill"]]
    except OSError:
        return None
    return int(found[0]) if found else None
