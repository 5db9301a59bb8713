"""torch 1.12's layer norm under CPU autocast, on a bfloat16 input with fp32 weights.

Its forward pass mixes the types, its backward pass raises "expected scalar type BFloat16 but found
Float" (BERT's head has such a norm behind a linear layer). CUDA's autocast computes every layer
norm in fp32; here the same is done for the CPU. torch 2 takes the mixed types.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

_layer_norm = F.layer_norm


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    if input.dtype is torch.bfloat16 and weight is not None and weight.dtype is torch.float32:
        input = input.float()
    return _layer_norm(input, normalized_shape, weight, bias, eps)


def install() -> None:
    F.layer_norm = layer_norm
