"""The environment that a worker process needs before it starts; it re-executes itself once."""

from __future__ import annotations

import os
import resource
import sys
from typing import Any, Dict, List

#: glibc reads these when a process starts. Only memory limits need them (limits.py says why):
#: their page faults take a third (BERT) to a half (GPT) of the throughput of scaled-down rows.
MALLOC = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "MALLOC_MMAP_MAX_": "1000000",
}
THREAD_STACK_BYTES = 2**20  # otherwise every thread's stack counts 8 MiB of data
_DONE = "TRAINMARK_WORKER_STARTED"


def limits_memory(runs: List[Dict[str, Any]]) -> bool:
    """Whether a rank on a CPU gets a memory limit."""
    specs = [run["spec"] for run in runs]
    return any(s["memory_limit_mib"] is not None and s["device"] == "cpu" for s in specs)


def variables(runs: List[Dict[str, Any]]) -> Dict[str, str]:
    """Variables that have to be there before torch is imported."""
    spec = runs[0]["spec"]
    common = {
        "OMP_NUM_THREADS": str(spec["threads_per_rank"]),
        "MKL_NUM_THREADS": str(spec["threads_per_rank"]),
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",  # Megatron overlaps its communication in this order
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "DS_BUILD_OPS": "0",
    }
    if spec["device"] == "cuda":
        return common
    return {**common, "DS_ACCELERATOR": "cpu", **(MALLOC if limits_memory(runs) else {})}


def ensure(runs: List[Dict[str, Any]]) -> None:
    """Set the variables; start again with them where they came too late."""
    wanted = variables(runs)
    late = any(os.environ.get(name) != value for name, value in wanted.items())
    os.environ.update(wanted)
    if os.environ.pop(_DONE, None) or not late:
        return
    if limits_memory(runs):
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        resource.setrlimit(resource.RLIMIT_STACK, (THREAD_STACK_BYTES, hard))
    os.environ[_DONE] = "1"
    sys.stdout.flush()
    os.execve(sys.executable, command(), os.environ)


def command() -> List[str]:
    """This process's own command line: python -m trainmark_worker ..."""
    return [sys.executable, "-m", "trainmark_worker", *sys.argv[1:]]
