"""Parameter counts and model FLOPs of the three workloads, for checks on published figures.

Sources: Hugging Face BERT and Megatron GPT layer shapes; FLOPs of a training step as
6 x (parameters in matrix products) x tokens + 12 x layers x hidden x tokens^2 per sample.
"""

from __future__ import annotations

import math

TYPES, POSITIONS, CLASSES = 2, 512, 2  # BERT: segment types, positions; sentence-pair labels


def parameters(workload: str, layers: int, hidden: int, vocabulary: int, sequence: int) -> int:
    """Parameters of a workload's model; BERT has 512 positions whatever the sequence length."""
    blocks = layers * (12 * hidden**2 + 13 * hidden)
    if workload == "gpt-pretraining":
        return blocks + vocabulary * hidden + sequence * hidden + 2 * hidden
    embeddings = (vocabulary + max(POSITIONS, sequence) + TYPES) * hidden + 2 * hidden
    pooler = hidden**2 + hidden
    head = CLASSES * hidden + CLASSES
    if workload == "bert-pretraining":
        head = (hidden**2 + hidden) + 2 * hidden + vocabulary + 2 * hidden + 2
    return blocks + embeddings + pooler + head


def flops_per_sample(
    workload: str, layers: int, hidden: int, vocabulary: int, sequence: float
) -> float:
    """Model FLOPs of one training sample (forward and backward)."""
    return 6 * _matmul(workload, layers, hidden, vocabulary) * sequence + (
        12 * layers * hidden * sequence**2
    )


def _matmul(workload: str, layers: int, hidden: int, vocabulary: int) -> int:
    """Parameters that take part in matrix products of every token."""
    blocks = 12 * layers * hidden**2
    if workload == "gpt-pretraining":
        return blocks + vocabulary * hidden
    if workload == "bert-pretraining":
        return blocks + vocabulary * hidden + hidden**2
    return blocks


def longest_sequence(
    workload: str, layers: int, hidden: int, vocabulary: int, flops: float
) -> float:
    """The sequence length at which one sample costs `flops`."""
    a, b = 12 * layers * hidden, 6 * _matmul(workload, layers, hidden, vocabulary)
    return (-b + math.sqrt(b * b + 4 * a * flops)) / (2 * a)
