"""ORT in bfloat16: its CPU provider has no kernels for it."""

import torch
from trainmark_worker.strategies import ort


class Strategy(ort.Strategy):
    def autocast(self):
        return torch.autocast("cpu", dtype=torch.bfloat16)
