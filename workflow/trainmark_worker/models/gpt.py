"""A Megatron-style GPT: learned positions, pre-norm blocks, tied embedding.

L(12h^2 + 13h) + Vh + Sh + 2h parameters. It is one pipeline stage of one tensor-parallel rank; the
layers that are split come from a factory. `PlainLayers` gives torch's own, for strategies that
keep the model whole: megatron-core's layers compute the same there, but bring a CUDA-only
autograd function and weight attributes that flattening frameworks (FSDP, ZeRO) lose.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, Dict, Optional

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class PlainLayers:
    """The factory for whole models. The parallel one has the same methods."""

    tp_rank, tp_size = 0, 1
    stage, stages = 0, 1

    def embedding(self, count: int, size: int) -> nn.Module:
        return nn.Embedding(count, size)

    def column(self, inputs: int, outputs: int) -> nn.Module:
        """A linear layer split by outputs."""
        return nn.Linear(inputs, outputs)

    def row(self, inputs: int, outputs: int) -> nn.Module:
        """A linear layer split by inputs, whose outputs are summed over the ranks."""
        return nn.Linear(inputs, outputs)

    def own_random_stream(self, device: torch.device):
        """Context for dropout of activations that differ between tensor-parallel ranks."""
        return contextlib.nullcontext()

    def logits(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden, weight)

    def cross_entropy(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Loss of each token. [sequence, batch, vocabulary], [sequence, batch]"""
        flat = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return flat.view_as(labels)


class Attention(nn.Module):
    """Causal self-attention over this rank's heads. [sequence, batch, hidden] in and out."""

    def __init__(self, model: Dict[str, Any], layers, kind: str):
        super().__init__()
        hidden = model["hidden"]
        self.size = hidden // model["heads"]
        self.heads = model["heads"] // layers.tp_size
        self.kind, self.dropout, self.layers = kind, model["dropout"], layers
        self.qkv = layers.column(hidden, 3 * hidden)
        self.out = layers.row(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sequence, batch, _ = x.shape
        qkv = self.qkv(x).view(sequence, batch * self.heads, 3 * self.size).transpose(0, 1)
        attend = self._fused if self.kind == "sdpa" else self._eager
        context = attend(*qkv.split(self.size, -1))  # [batch * heads, sequence, size]
        return self.out(context.transpose(0, 1).reshape(sequence, batch, self.heads * self.size))

    def _eager(self, q, k, v):
        """Scores, mask, softmax and dropout as separate tensors, all kept for the backward pass."""
        sequence = q.shape[1]
        scores = torch.bmm(q / math.sqrt(self.size), k.transpose(1, 2))
        future = torch.ones(sequence, sequence, dtype=torch.bool, device=q.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        with self.layers.own_random_stream(q.device):
            weights = F.dropout(weights, self.dropout, self.training)
        return torch.bmm(weights.to(v.dtype), v)

    def _fused(self, q, k, v):
        rate = self.dropout if self.training else 0.0
        with self.layers.own_random_stream(q.device):
            return F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)


class Block(nn.Module):
    """Attention and MLP, each with its norm before and a residual connection around."""

    def __init__(self, model: Dict[str, Any], layers, kind: str):
        super().__init__()
        hidden = model["hidden"]
        self.dropout = model["dropout"]
        self.norm_1, self.attention = nn.LayerNorm(hidden), Attention(model, layers, kind)
        self.norm_2 = nn.LayerNorm(hidden)
        self.expand = layers.column(hidden, 4 * hidden)
        self.reduce = layers.row(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self._drop(self.attention(self.norm_1(x)))
        return x + self._drop(self.reduce(F.gelu(self.expand(self.norm_2(x)))))

    def _drop(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.dropout, self.training)


class GPT(nn.Module):
    """One stage: the first holds the embeddings, the last the final norm and the tied embedding."""

    def __init__(self, spec: Dict[str, Any], layers=None):
        super().__init__()
        layers = layers or PlainLayers()
        model, options = spec["model"], spec["options"]
        self.layers, self.dropout = layers, model["dropout"]
        self.checkpointing = options.get("activation_checkpointing", False)
        self.first, self.last = layers.stage == 0, layers.stage == layers.stages - 1
        count = model["layers"] // layers.stages
        self.offset = count * layers.stage
        if self.first or self.last:
            self.tokens = layers.embedding(model["vocabulary"], model["hidden"])
        if self.first:
            self.positions = nn.Embedding(model["sequence_length"], model["hidden"])
        kind = options.get("attention", "eager")
        self.blocks = nn.ModuleList(Block(model, layers, kind) for _ in range(count))
        if self.last:
            self.norm = nn.LayerNorm(model["hidden"])
        self.received: Optional[torch.Tensor] = None

    def set_input_tensor(self, tensor) -> None:
        """The pipeline schedule hands over the previous stage's output here."""
        self.received = tensor[0] if isinstance(tensor, list) else tensor

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """[batch, sequence] twice -> mean loss; on earlier stages [sequence, batch, hidden]."""
        x = self._embed(tokens) if self.first else self.received
        for block in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        if not self.last:
            return x.contiguous()
        logits = self.layers.logits(self.norm(x), self.tokens.weight)
        return self.layers.cross_entropy(logits.float(), labels.t().contiguous()).mean()

    def _embed(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens).transpose(0, 1) + self.positions(places)[:, None]
        return F.dropout(x, self.dropout, self.training)

    def full_name(self, name: str) -> str:
        """The parameter's name in the whole model."""
        parts = name.split(".")
        if parts[0] == "blocks":
            parts[1] = str(int(parts[1]) + self.offset)
        return ".".join(parts)
