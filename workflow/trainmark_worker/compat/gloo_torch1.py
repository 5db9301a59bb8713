"""gloo of torch 1.12 lacks collectives: reduce_scatter, `_base` forms, AVG, and all of bfloat16.

fairscale's FSDP and DeepSpeed's ZeRO need the first three; half weights and tensor parallelism
under autocast need bfloat16. Written here with all_reduce in fp32 and with copies that travel as
float16 bits: the results are the same, the bytes that travel are more. torch 2 has them all.
"""

from __future__ import annotations

import torch
import torch.distributed as dist


class _Done:
    """A finished asynchronous operation."""

    def wait(self, *_):
        return True

    def is_completed(self):
        return True


_all_reduce, _all_gather, _broadcast = dist.all_reduce, dist.all_gather, dist.broadcast


def _finish(async_op: bool):
    return _Done() if async_op else None


def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    """gloo's, with bfloat16 summed in fp32."""
    if tensor.dtype is not torch.bfloat16:
        return _all_reduce(tensor, op=op, group=group, async_op=async_op)
    wide = tensor.float()
    _all_reduce(wide, op=op, group=group)
    tensor.copy_(wide)
    return _finish(async_op)


def _bits(tensor):
    """The same memory as a type that gloo moves; only for operations that do no arithmetic."""
    return tensor.view(torch.float16) if tensor.dtype is torch.bfloat16 else tensor


def all_gather(tensor_list, tensor, group=None, async_op=False):
    parts = [_bits(part) for part in tensor_list]
    return _all_gather(parts, _bits(tensor), group=group, async_op=async_op)


def broadcast(tensor, src, group=None, async_op=False):
    return _broadcast(_bits(tensor), src, group=group, async_op=async_op)


def _reduce_scatter(output, flat, op, group):
    count = output.numel()
    average = op == getattr(dist.ReduceOp, "AVG", object())
    all_reduce(flat, op=dist.ReduceOp.SUM if average else op, group=group)
    output.copy_(flat.narrow(0, dist.get_rank(group) * count, count).view_as(output))
    if average:
        output.div_(dist.get_world_size(group))


def reduce_scatter(output, input_list, op=dist.ReduceOp.SUM, group=None, async_op=False):
    _reduce_scatter(output, torch.cat([part.reshape(-1) for part in input_list]), op, group)
    return _finish(async_op)


def reduce_scatter_base(output, input, op=dist.ReduceOp.SUM, group=None, async_op=False):
    _reduce_scatter(output, input.reshape(-1).clone(), op, group)
    return _finish(async_op)


def all_gather_base(output_tensor, input_tensor, group=None, async_op=False):
    parts = list(output_tensor.view(-1).chunk(dist.get_world_size(group)))
    flat = input_tensor.reshape(-1).contiguous()
    return all_gather(parts, flat, group=group, async_op=async_op)


def install() -> None:
    dist.all_reduce = all_reduce
    dist.all_gather = all_gather
    dist.broadcast = broadcast
    dist.reduce_scatter = reduce_scatter
    dist._reduce_scatter_base = reduce_scatter_base
    dist._all_gather_base = all_gather_base
