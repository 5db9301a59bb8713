"""megatron-core's parallel layers behind the factory of models/gpt.py."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F


class MegatronLayers:
    """Layers of this tensor-parallel rank and pipeline stage; `config` is a TransformerConfig."""

    def __init__(self, config):
        from megatron.core import parallel_state as mpu

        self.common = {"config": config, "init_method": lambda weight: weight}
        self.tp_rank = mpu.get_tensor_model_parallel_rank()
        self.tp_size = mpu.get_tensor_model_parallel_world_size()
        self.stage = mpu.get_pipeline_model_parallel_rank()
        self.stages = mpu.get_pipeline_model_parallel_world_size()

    def embedding(self, count, size):
        from megatron.core.tensor_parallel import VocabParallelEmbedding

        return VocabParallelEmbedding(count, size, **self.common)

    def column(self, inputs, outputs):
        from megatron.core.tensor_parallel import ColumnParallelLinear

        class Column(ColumnParallelLinear):
            def forward(self, x):
                return super().forward(x)[0]

        return Column(
            inputs, outputs, bias=True, gather_output=False, skip_bias_add=False, **self.common
        )

    def row(self, inputs, outputs):
        from megatron.core.tensor_parallel import RowParallelLinear

        class Row(RowParallelLinear):
            def forward(self, x):
                return super().forward(x)[0]

        return Row(
            inputs, outputs, bias=True, input_is_parallel=True, skip_bias_add=False, **self.common
        )

    @contextlib.contextmanager
    def own_random_stream(self, device):
        """Different random numbers on each tensor-parallel rank, from a seed that all draw alike.

        The seed comes from the common stream, so a recomputed activation sees the same numbers.
        """
        if self.tp_size == 1:
            yield
            return
        seed = int(torch.randint(2**31, ()))
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed + self.tp_rank)
            yield

    def logits(self, hidden, weight):
        """[sequence, batch, vocabulary / tp]; the gradient of `hidden` is summed over the ranks."""
        from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region

        return F.linear(copy_to_tensor_model_parallel_region(hidden), weight)

    def cross_entropy(self, logits, labels):
        from megatron.core.tensor_parallel import vocab_parallel_cross_entropy

        return vocab_parallel_cross_entropy(logits, labels)
