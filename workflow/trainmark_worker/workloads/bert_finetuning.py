"""BERT fine-tuning: sentence pairs with two labels, Hugging Face's classifier, padded batches."""

from __future__ import annotations

from typing import Any, Dict

import torch
import torch.nn.functional as F

from ..data import integers
from ..weights import initialise
from ._bert import bert_config, enable_checkpointing

ARRAYS = ("input_ids", "attention_mask", "token_type_ids", "labels")


def prepare(spec: Dict[str, Any]) -> None:
    from transformers import BertForSequenceClassification  # noqa: F401


class ClassifierWithLoss(torch.nn.Module):
    """BertForSequenceClassification whose loss is computed on fp32 logits."""

    def __init__(self, bert: torch.nn.Module):
        super().__init__()
        self.bert = bert

    def forward(self, input_ids, attention_mask, token_type_ids, labels):
        """[batch, sequence] three times and [batch] -> scalar."""
        output = self.bert(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        return F.cross_entropy(output.logits.float(), labels)


def build(spec: Dict[str, Any]) -> torch.nn.Module:
    from transformers import BertForSequenceClassification

    bert = BertForSequenceClassification(bert_config(spec, num_labels=2))
    initialise(bert, spec["seed"])
    enable_checkpointing(spec, bert)
    return ClassifierWithLoss(bert).train()


def blocks(model: torch.nn.Module) -> torch.nn.ModuleList:
    return model.bert.bert.encoder.layer


def collate(spec: Dict[str, Any], arrays: Dict[str, Any]) -> Dict[str, torch.Tensor]:
    return {name: integers(arrays[name]) for name in ARRAYS}
