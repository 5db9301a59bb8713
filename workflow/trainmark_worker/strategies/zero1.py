"""DeepSpeed ZeRO stage 1: the optimizer state is sharded."""

from __future__ import annotations

from ._deepspeed import DeepSpeedStrategy


class Strategy(DeepSpeedStrategy):
    stage = 1
    shards = "optimizer state"
