"""Megatron whose note tells whether the replicated weights are still alike on every rank."""

import hashlib
import json

import torch.distributed as dist
from trainmark_worker.strategies import megatron


class Strategy(megatron.Strategy):
    def dtypes(self):
        whole = [p for p in self.model.parameters() if not p_split(p)]
        content = b"".join(p.detach().numpy().tobytes() for p in whole)
        digests = [None] * self.ranks
        dist.all_gather_object(digests, hashlib.sha256(content).hexdigest())
        return {**super().dtypes(), "note": json.dumps(digests)}


def p_split(parameter):
    return getattr(parameter, "tensor_model_parallel", False)
