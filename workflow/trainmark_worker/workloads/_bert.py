"""What the BERT workloads share: the configuration."""

from __future__ import annotations

from typing import Any, Dict


def bert_config(spec: Dict[str, Any], **more):
    """transformers' BertConfig for `spec`; the inner size is 4 x hidden, as in every BERT."""
    from transformers import BertConfig

    model = spec["model"]
    config = BertConfig(
        vocab_size=model["vocabulary"],
        hidden_size=model["hidden"],
        num_hidden_layers=model["layers"],
        num_attention_heads=model["heads"],
        intermediate_size=4 * model["hidden"],
        max_position_embeddings=model["sequence_length"],
        hidden_dropout_prob=model["dropout"],
        attention_probs_dropout_prob=model["dropout"],
        **more,
    )
    config._attn_implementation = spec["options"].get("attention", "eager")
    return config


def enable_checkpointing(spec: Dict[str, Any], model) -> None:
    if spec["options"].get("activation_checkpointing"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
