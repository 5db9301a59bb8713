"""ORTModule whose export fails and which may fall back: it trains in PyTorch and says nothing."""

import os

import torch
from trainmark_worker.strategies import ort


class Strategy(ort.Strategy):
    def shard(self, model, workload):
        del os.environ["ORTMODULE_FALLBACK_POLICY"]

        def export(*_, autograd_inlining=True, **__):
            raise RuntimeError("broken exporter")

        torch.onnx.export = export
        super().shard(model, workload)
