"""DeepSpeed ZeRO stage 2: optimizer state and gradients are sharded."""

from __future__ import annotations

from ._deepspeed import DeepSpeedStrategy


class Strategy(DeepSpeedStrategy):
    stage = 2
    shards = "optimizer state and gradients"
