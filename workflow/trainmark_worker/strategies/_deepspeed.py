"""What the three DeepSpeed ZeRO stages share."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os

import torch

from .. import compat, precision
from . import base

#: Elements per communication bucket. DeepSpeed's default of 5e8 would allocate gigabytes on a CPU.
BUCKET_ELEMENTS = {"cuda": 500_000_000, "cpu": 200_000}
#: What deepspeed.initialize imports (85 MiB, 4 s): before the fork, and before memory is limited.
LATE_IMPORTS = (
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "deepspeed.module_inject.auto_ep_layer",
    "deepspeed.runtime.superoffload.superoffload_stage3",
)


class DeepSpeedStrategy(base.Strategy):
    stage = 0

    @classmethod
    def prepare(cls, spec):
        if spec["device"] == "cpu":
            os.environ["DS_ACCELERATOR"] = "cpu"
        import deepspeed  # noqa: F401
        from deepspeed.utils import logger

        logger.setLevel(logging.WARNING)
        for name in LATE_IMPORTS:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        if compat.on_cpu():
            from ..compat import deepspeed_no_shm

            deepspeed_no_shm.install()

    def start(self):
        import deepspeed

        backend = "nccl" if self.device.type == "cuda" else "gloo"
        deepspeed.init_distributed(dist_backend=backend, verbose=False)

    def shard(self, model, workload):
        import deepspeed

        optimizer = self.torch_optimizer(model.parameters())
        self.model, self.optimizer, _, _ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=self.config(), dist_init_required=False
        )

    def build(self, workload):
        super().build(workload)
        self.scaler = None  # DeepSpeed scales the loss itself

    def config(self):
        """DeepSpeed's configuration, every size stated."""
        spec = self.spec
        bucket = BUCKET_ELEMENTS[self.device.type]
        zero = {"stage": self.stage, "reduce_bucket_size": bucket, "allgather_bucket_size": bucket}
        if self.stage == 3:
            zero["stage3_prefetch_bucket_size"] = bucket
            zero["stage3_max_live_parameters"] = 2 * bucket
            zero["stage3_param_persistence_threshold"] = 0
        config = {
            "train_batch_size": spec["global_batch"],
            "train_micro_batch_size_per_gpu": spec["micro_batch"],
            "gradient_accumulation_steps": spec["global_batch"]
            // (spec["micro_batch"] * self.ranks),
            "gradient_clipping": float(spec["gradient_clipping"]),
            "steps_per_print": 10**9,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": zero,
        }
        if self.half_weights():
            kind = "bf16" if spec["mixed_dtype"] == "bfloat16" else "fp16"
            config[kind] = {"enabled": True}
        return config

    def half_weights(self) -> bool:
        """Mixed precision is DeepSpeed's own: half weights beside an fp32 master copy."""
        return precision.is_mixed(self.spec)

    def autocast(self):
        return precision.no_autocast() if self.half_weights() else super().autocast()

    def step(self, batches, position):
        """The engine counts micro batches: `step` updates after the last one only."""
        losses = []
        for index, batch in enumerate(batches):
            position.enter("forward", index)
            with self.autocast():
                loss = self.model(**batch)
            losses.append(loss.detach().clone())
            position.enter("backward", index)
            self.model.backward(loss)
            position.enter("step", index)
            self.model.step()
        return torch.stack(losses).mean()

    def local_parameters(self):
        """ZeRO-3 keeps a padded shard of each parameter."""
        return sum(
            p.ds_tensor.numel() if hasattr(p, "ds_tensor") else p.numel()
            for p in self.model.parameters()
        )

    def dtypes(self):
        used = super().dtypes()
        if self.half_weights():
            used.update(
                weights=self.spec["mixed_dtype"],
                gradient_reduction=self.spec["mixed_dtype"],
                note="zero-half-weights",
            )
        return used
