"""megatron-core: tensor and pipeline parallelism (1F1B), data parallelism over what is left."""

from __future__ import annotations

import inspect

import torch
import torch.distributed as dist

from .. import compat, precision
from ..outcome import Unsupported
from . import base

BUCKET_ELEMENTS = 4_000_000  # gradients travel in flat buckets of 16 MiB


class Strategy(base.Strategy):
    shards = "every layer (tensor parallel) and the list of layers (pipeline parallel)"

    @classmethod
    def prepare(cls, spec):
        from ..compat import megatron_core_cpu

        with megatron_core_cpu.without_compile():
            import megatron.core.pipeline_parallel
            import megatron.core.tensor_parallel
            import megatron.core.transformer.transformer_config  # noqa: F401

    def check(self):
        """What megatron-core itself accepts or meets too late."""
        spec, model = self.spec, self.spec["model"]
        tp, pp = spec["tensor_parallel"], spec["pipeline_parallel"]
        if spec["workload"] != "gpt-pretraining":
            raise Unsupported(f"no tensor-parallel model for {spec['workload']}")
        for name, count, parts, kind in (
            ("attention heads", model["heads"], tp, "tensor-parallel ranks"),
            ("vocabulary entries", model["vocabulary"], tp, "tensor-parallel ranks"),
            ("layers", model["layers"], pp, "pipeline stages"),
        ):
            if count % parts:
                raise Unsupported(f"{count} {name} do not divide by {parts} {kind}")

    def start(self):
        if compat.on_cpu():
            from ..compat import megatron_core_cpu

            megatron_core_cpu.install()
        from megatron.core import parallel_state as mpu

        tp, pp = self.spec["tensor_parallel"], self.spec["pipeline_parallel"]
        known = inspect.signature(mpu.initialize_model_parallel).parameters
        options = {"create_gloo_process_groups": False}
        options = {name: value for name, value in options.items() if name in known}
        try:
            mpu.initialize_model_parallel(tp, pp, **options)
        except RuntimeError as error:
            if "divisible" not in str(error):
                raise
            raise Unsupported(str(error)) from error
        self.mpu = mpu

    @property
    def data_parallel_rank(self):
        return self.mpu.get_data_parallel_rank()

    @property
    def data_parallel_size(self):
        return self.mpu.get_data_parallel_world_size()

    @property
    def random_seed(self):
        """The same in a tensor-parallel group: its ranks drop the same hidden activations."""
        stage = self.mpu.get_pipeline_model_parallel_rank()
        return self.spec["seed"] + 1 + self.data_parallel_rank + 1000 * stage

    @property
    def has_loss(self):
        return self.model.last

    def build(self, workload):
        from megatron.core.enums import ModelType

        from ..models.megatron_layers import MegatronLayers

        self.config = self.transformer_config()
        self.layers = MegatronLayers(self.config)
        self.model = workload.build(self.spec, self.layers).to(self.device)
        self.model.config = self.config  # both are read by the schedules
        self.model.model_type = ModelType.encoder_or_decoder
        self.optimizer = self.torch_optimizer(self.model.parameters())
        self.parameter_count = self.count_whole_model()
        self.scaler = precision.loss_scaler(self.spec)
        if self.scaler:
            self.scaler.scale(torch.zeros(1, device=self.device))  # stages without a loss need it
            self.config.grad_scale_func = self.scaler.scale

    def transformer_config(self):
        from megatron.core.transformer.transformer_config import TransformerConfig

        model = self.spec["model"]
        return TransformerConfig(
            num_layers=model["layers"],
            hidden_size=model["hidden"],
            num_attention_heads=model["heads"],
            tensor_model_parallel_size=self.spec["tensor_parallel"],
            pipeline_model_parallel_size=self.spec["pipeline_parallel"],
            params_dtype=torch.float32,
            pipeline_dtype=torch.float32,  # the residual stream stays fp32 under autocast
            use_cpu_initialization=True,
            gradient_accumulation_fusion=False,  # needs apex
            batch_p2p_comm=False,
            deallocate_pipeline_outputs=True,
        )

    def step(self, batches, position):
        from megatron.core.pipeline_parallel import get_forward_backward_func

        per_step = self.spec["global_batch"] // (self.spec["micro_batch"] * self.data_parallel_size)
        losses = get_forward_backward_func()(
            forward_step_func=self.forward_step(position),
            data_iterator=iter(batches),
            model=[self.model],
            num_microbatches=per_step,
            seq_length=self.spec["model"]["sequence_length"],
            micro_batch_size=self.spec["micro_batch"],
            forward_only=False,
        )
        position.enter("reduce")
        self.average_gradients()
        position.enter("step")
        self.update()
        return torch.stack(losses).mean() if self.has_loss else torch.zeros((), device=self.device)

    def forward_step(self, position):
        """The schedule's callback; it runs the backward passes itself, between these calls."""
        count = iter(range(self.spec["global_batch"]))

        def step(batches, model):
            index = next(count)
            position.enter("forward", index)
            with self.autocast():
                output = model(**next(batches))
            position.enter("backward", index)
            return output, split_loss

        return step

    def average_gradients(self):
        """Over the data-parallel ranks; then the two copies of the tied embedding are summed."""
        gradients = [p.grad for p in self.model.parameters()]
        if self.data_parallel_size > 1:
            for bucket in buckets(gradients):
                average(bucket, self.mpu.get_data_parallel_group(), self.data_parallel_size)
        if self.layers.stages > 1 and (self.model.first or self.model.last):
            dist.all_reduce(self.model.tokens.weight.grad, group=self.mpu.get_embedding_group())

    def counts_here(self, parameter) -> bool:
        """Whether this rank speaks for `parameter` in a sum over the whole model."""
        if self.model.last and not self.model.first and parameter is self.model.tokens.weight:
            return False  # the first stage does
        return getattr(parameter, "tensor_model_parallel", False) or self.layers.tp_rank == 0

    def count_whole_model(self) -> int:
        counted = sum(p.numel() for p in self.model.parameters() if self.counts_here(p))
        return int(self.sum_over_model(torch.tensor(counted, device=self.device)))

    def sum_over_model(self, value):
        dist.all_reduce(value, group=self.mpu.get_model_parallel_group())
        return value

    @torch.no_grad()
    def clip(self, limit):
        squares = torch.zeros((), dtype=torch.float64, device=self.device)
        for parameter in self.model.parameters():
            if self.counts_here(parameter):
                squares += parameter.grad.double().pow(2).sum()
        norm = self.sum_over_model(squares).sqrt().item()
        factor = min(1.0, limit / (norm + 1e-6))
        for parameter in self.model.parameters():
            parameter.grad.mul_(factor)


def split_loss(output):
    """What to differentiate and what to keep: the schedule divides the first in place."""
    return output.clone(), output.detach().clone()


def buckets(tensors):
    """Lists of tensors of up to BUCKET_ELEMENTS together (or one larger tensor)."""
    bucket, size = [], 0
    for tensor in tensors:
        if bucket and size + tensor.numel() > BUCKET_ELEMENTS:
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.numel()
    if bucket:
        yield bucket


def average(tensors, group, ranks) -> None:
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(flat, group=group)
    flat /= ranks
    for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors])):
        tensor.copy_(part.view_as(tensor))
