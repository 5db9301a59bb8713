"""DeepSpeed ZeRO stage 3: parameters, gradients and optimizer state are sharded."""

from __future__ import annotations

from ._deepspeed import DeepSpeedStrategy


class Strategy(DeepSpeedStrategy):
    stage = 3
    shards = "parameters, gradients and optimizer state"
