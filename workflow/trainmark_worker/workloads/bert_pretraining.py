"""BERT pre-training: masked language model and next-sentence prediction, as in Hugging Face."""

from __future__ import annotations

from typing import Any, Dict

import torch
import torch.nn.functional as F

from ..data import integers
from ..weights import initialise
from ._bert import bert_config, enable_checkpointing

ARRAYS = (
    "input_ids",
    "token_type_ids",
    "masked_positions",
    "masked_labels",
    "next_sentence_label",
)
IGNORED = -100  # cross_entropy's label for positions without a loss


def prepare(spec: Dict[str, Any]) -> None:
    from transformers import BertForPreTraining  # noqa: F401


class BertWithLosses(torch.nn.Module):
    """BertForPreTraining whose losses are computed on fp32 logits, which HF's own are not."""

    def __init__(self, bert: torch.nn.Module):
        super().__init__()
        self.bert = bert

    def forward(self, input_ids, token_type_ids, labels, next_sentence_label):
        """[batch, sequence] three times and [batch] -> scalar."""
        output = self.bert(input_ids=input_ids, token_type_ids=token_type_ids)
        tokens = output.prediction_logits.float().flatten(0, 1)
        masked = F.cross_entropy(tokens, labels.flatten(), ignore_index=IGNORED)
        return masked + F.cross_entropy(output.seq_relationship_logits.float(), next_sentence_label)


def build(spec: Dict[str, Any]) -> torch.nn.Module:
    from transformers import BertForPreTraining

    bert = BertForPreTraining(bert_config(spec))
    initialise(bert, spec["seed"])
    enable_checkpointing(spec, bert)
    return BertWithLosses(bert).train()


def blocks(model: torch.nn.Module) -> torch.nn.ModuleList:
    return model.bert.bert.encoder.layer


def collate(spec: Dict[str, Any], arrays: Dict[str, Any]) -> Dict[str, torch.Tensor]:
    input_ids = integers(arrays["input_ids"])
    labels = torch.full_like(input_ids, IGNORED)
    labels.scatter_(1, integers(arrays["masked_positions"]), integers(arrays["masked_labels"]))
    return {
        "input_ids": input_ids,
        "token_type_ids": integers(arrays["token_type_ids"]),
        "labels": labels,
        "next_sentence_label": integers(arrays["next_sentence_label"]),
    }
