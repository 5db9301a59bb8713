"""DeepSpeed on a CPU compiles a shared-memory extension when it starts.

That takes minutes of C++ and, killed on the way, leaves a lock on which later runs hang. Its
collectives are only used with its own backend: gloo needs nothing of it.
"""

from __future__ import annotations


def install() -> None:
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
