"""What a run can end with, and the evidence that it takes to say so.

An out-of-memory outcome needs evidence: the allocator's own message, or the kernel's counter of
processes that its OOM killer ended. A SIGKILL alone proves nothing and is an `error`.
"""

from __future__ import annotations

import signal
from typing import Any, Dict, Iterable, List, Optional

#: Messages of torch's allocators when memory runs out (CPU: c10/core/impl/alloc_cpu.cpp).
ALLOCATOR_MESSAGES = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA out of memory",
)
#: A rank that only noticed the death of another one says one of these.
PEER_MESSAGES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection refused",
    "Broken pipe",
    "remote process exited",
    "Timed out waiting",
    "NCCL communicator was aborted",
)


class Unsupported(Exception):
    """This row cannot exist here; the message says why, if possible in the framework's words."""


def is_out_of_memory(message: str) -> bool:
    return any(text in message for text in ALLOCATOR_MESSAGES)


def is_about_a_peer(message: str) -> bool:
    return any(text in message for text in PEER_MESSAGES)


def empty_cause(kind: str, message: str) -> Dict[str, Any]:
    """A cause with every field of the record's schema."""
    return {
        "type": kind,
        "message": message,
        "traceback": None,
        "rank": None,
        "phase": None,
        "step": None,
        "micro_batch_index": None,
        "exit_code": None,
        "signal": None,
    }


def cause_of_exit(rank: int, code: int, log: str, kernel_oom: bool) -> Dict[str, Any]:
    """The cause for a rank that ended without a report; a negative code is a signal number."""
    if code >= 0:
        cause = empty_cause("Exit", f"rank {rank} exited with status {code} without a report")
    else:
        name = signal.Signals(-code).name
        killed = -code == signal.SIGKILL
        kind = "KernelOutOfMemory" if killed and kernel_oom else "killed" if killed else "Signal"
        cause = empty_cause(kind, f"rank {rank} was ended by {name}")
        cause["signal"] = name
    cause.update(rank=rank, exit_code=code, traceback=log or None)
    return cause


def first_cause(causes: Iterable[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """The failure that came first; one that merely reports a lost peer comes after all others.

    Each cause carries `time` (seconds since the epoch) besides the record's fields.
    """
    ordered: List[Dict[str, Any]] = sorted(
        causes, key=lambda c: (is_about_a_peer(c["message"]), c["time"])
    )
    return ordered[0] if ordered else None


def outcome_of(cause: Optional[Dict[str, Any]]) -> str:
    if cause is None:
        return "ok"
    if cause["type"] == "Unsupported":
        return "unsupported"
    if cause["type"] == "Timeout":
        return "timeout"
    if cause["type"] == "KernelOutOfMemory" or is_out_of_memory(cause["message"]):
        return "oom"
    return "error"
