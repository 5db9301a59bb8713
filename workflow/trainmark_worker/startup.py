"""The environment that a worker process needs before it starts; it re-executes itself once."""

from __future__ import annotations

import os
import resource
import sys
from typing import Dict, List

#: glibc reads these when a process starts. See limits.py for why.
MALLOC = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "MALLOC_MMAP_MAX_": "1000000",
}
THREAD_STACK_BYTES = 2**20  # otherwise every thread's stack counts 8 MiB of data
_DONE = "TRAINMARK_WORKER_STARTED"


def variables(threads: int, device: str) -> Dict[str, str]:
    """Variables that have to be there before torch is imported."""
    common = {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",  # Megatron overlaps its communication in this order
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "DS_BUILD_OPS": "0",
    }
    if device == "cuda":
        return common
    return {**common, **MALLOC, "DS_ACCELERATOR": "cpu"}


def ensure(threads: int, device: str) -> None:
    """Set the variables; start again with them where they came too late."""
    wanted = variables(threads, device)
    late = any(os.environ.get(name) != value for name, value in wanted.items())
    os.environ.update(wanted)
    if os.environ.pop(_DONE, None) or not late:
        return
    if device == "cpu":
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        resource.setrlimit(resource.RLIMIT_STACK, (THREAD_STACK_BYTES, hard))
    os.environ[_DONE] = "1"
    sys.stdout.flush()
    os.execve(sys.executable, command(), os.environ)


def command() -> List[str]:
    """This process's own command line: python -m trainmark_worker ..."""
    return [sys.executable, "-m", "trainmark_worker", *sys.argv[1:]]
