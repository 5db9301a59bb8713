"""Parameter and operation counts of the workloads, by formula: no torch, no model.

The formulas are tested against the real models on the meta device.
L layers, h hidden, V vocabulary, S positions; the inner size of the MLP is 4h everywhere.
"""

from __future__ import annotations

from typing import Any, Dict, List

LABELS = 2  # of the fine-tuning task
TOKEN_TYPES = 2  # BERT's segments


def gpt_layer(h: int, tensor_parallel: int = 1) -> int:
    """One GPT layer of one tensor-parallel rank: 12h^2 + 13h when whole.

    Column-parallel layers split weight and bias; row-parallel ones keep the whole bias.
    """
    t = tensor_parallel
    attention = (3 * h * h + 3 * h) // t + h * h // t + h
    mlp = (4 * h * h + 4 * h) // t + 4 * h * h // t + h
    return attention + mlp + 4 * h  # two layer norms


def gpt_rank(
    model: Dict[str, Any], tensor_parallel: int, pipeline_parallel: int, stage: int
) -> int:
    """Parameters that one rank of pipeline stage `stage` holds (the tied embedding where held)."""
    h, vocabulary = model["hidden"], model["vocabulary"]
    first, last = stage == 0, stage == pipeline_parallel - 1
    count = model["layers"] // pipeline_parallel * gpt_layer(h, tensor_parallel)
    if first or last:
        count += vocabulary // tensor_parallel * h
    if first:
        count += model["sequence_length"] * h
    if last:
        count += 2 * h
    return count


def bert_encoder(model: Dict[str, Any]) -> int:
    """BertModel: embeddings with their norm, layers of 12h^2 + 13h, pooler."""
    h = model["hidden"]
    embeddings = (model["vocabulary"] + model["sequence_length"] + TOKEN_TYPES) * h + 2 * h
    return embeddings + model["layers"] * (12 * h * h + 13 * h) + h * h + h


def parameters(spec: Dict[str, Any]) -> int:
    """Parameters of the whole model, tied weights counted once."""
    model, h = spec["model"], spec["model"]["hidden"]
    workload = spec["workload"]
    if workload == "gpt-pretraining":
        return gpt_rank(model, 1, 1, 0)
    if workload == "bert-pretraining":
        prediction_head = h * h + h + 2 * h + model["vocabulary"]  # transform, norm, decoder bias
        return bert_encoder(model) + prediction_head + 2 * h + 2  # next-sentence classifier
    if workload == "bert-finetuning":
        return bert_encoder(model) + LABELS * h + LABELS
    raise ValueError(f"unknown workload {workload!r}")


def parameters_per_rank(spec: Dict[str, Any]) -> List[int]:
    """Parameters that each rank's model holds as built, before a strategy shards its states."""
    tp, pp = spec.get("tensor_parallel", 1), spec.get("pipeline_parallel", 1)
    ranks = spec["ranks"]
    if tp * pp == 1:
        return [parameters(spec)] * ranks
    ranks_per_stage = ranks // pp  # Megatron's rank order: tensor, data, pipeline
    return [gpt_rank(spec["model"], tp, pp, rank // ranks_per_stage) for rank in range(ranks)]


def flops_per_sample(spec: Dict[str, Any]) -> int:
    """Forward + backward: 6 per weight of a matrix product and token, 12 L h S^2 for attention.

    Recomputed activations don't count: this is the model's work, not the machine's.
    """
    model = spec["model"]
    h, layers, s = model["hidden"], model["layers"], model["sequence_length"]
    weights = layers * 12 * h * h
    per_sample = 0
    if spec["workload"] == "gpt-pretraining":
        weights += model["vocabulary"] * h
    elif spec["workload"] == "bert-pretraining":
        weights += model["vocabulary"] * h + h * h
        per_sample = h * h + 2 * h  # pooler and next-sentence classifier: one token
    elif spec["workload"] == "bert-finetuning":
        per_sample = h * h + LABELS * h
    return 6 * weights * s + 6 * per_sample + 12 * layers * h * s * s
