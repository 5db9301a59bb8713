"""Each stand-in is still needed, and none is active where CUDA is."""

from __future__ import annotations

import pytest
from conftest import ROOT

COMPAT = ROOT / "workflow/trainmark_worker/compat"

#: Code that fails as long as the stand-in is needed, and a word of the failure.
WITHOUT = {
    "fairscale_fsdp_cpu": (
        """
import os, torch, torch.distributed as dist
from trainmark_worker.launch import free_port
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
dist.init_process_group("gloo")
from fairscale.nn.data_parallel import FullyShardedDataParallel
model = FullyShardedDataParallel(torch.nn.Linear(4, 4), compute_device=torch.device("cpu"))
model(torch.ones(2, 4)).sum().backward()
""",
        ("CUDA", "cuda", "NVIDIA"),
    ),
    "megatron_core_cpu": (
        """
import torch
with __import__("trainmark_worker.compat.megatron_core_cpu", fromlist=["x"]).without_compile():
    from megatron.core.tensor_parallel.layers import (
        LinearWithGradAccumulationAndAsyncCommunication as Linear,
    )
import inspect
weight = torch.ones(4, 4, requires_grad=True)
count = len(inspect.signature(Linear.forward).parameters) - 4
options = [False] * 3 + [None] * (count - 3)
with torch.autocast("cpu", dtype=torch.bfloat16):
    out = Linear.apply(torch.ones(2, 4, requires_grad=True), weight, None, *options)
out.float().sum().backward()
""",
        ("dtype", "scalar type"),
    ),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_still_needed(launch, name):
    code, words = WITHOUT[name]
    done = launch.script(code)
    assert done.returncode != 0, f"compat/{name}.py is no longer needed: remove it"
    assert any(word in done.stderr for word in words), done.stderr[-1500:]


def test_bfloat16_products_are_needed_where_they_are_used(launch):
    """torch's own are many times slower than fp32 exactly where the stand-in is installed."""
    code = """
import time, torch
from trainmark_worker.compat import bfloat16_products
torch.set_num_threads(1)
def seconds(one, other):
    tries = []
    for _ in range(5):
        begin = time.perf_counter()
        one @ other
        tries.append(time.perf_counter() - begin)
    return min(tries)
one, other = torch.randn(640, 192), torch.randn(192, 768)
slow = seconds(one.bfloat16(), other.bfloat16()) > 8 * seconds(one, other)
spec = {"device": "cpu", "precision": "mixed", "mixed_dtype": "bfloat16"}
assert slow == (bfloat16_products.product_dtype(spec) == "float32"), slow
for other_spec in ({"device": "cuda"}, {"precision": "fp32"}, {"mixed_dtype": "float16"}):
    assert bfloat16_products.product_dtype({**spec, **other_spec}) is None
"""
    done = launch.script(code)
    assert done.returncode == 0, done.stderr[-1500:]


def test_bfloat16_products_are_torchs_own(launch):
    """Values, gradients and other types; the products rounded once."""
    code = """
import torch
from trainmark_worker.compat import bfloat16_products
torch.manual_seed(1)
cases = [(torch.mm, (4, 8), (8, 6), {}), (torch.bmm, (2, 4, 8), (2, 8, 6), {})]
scaled = {"beta": 0.5, "alpha": 2.0}
cases += [(torch.addmm, (6,), (4, 8), (8, 6), scaled)]
cases += [(torch.baddbmm, (2, 4, 6), (2, 4, 8), (2, 8, 6), scaled)]
def computed(dtype):
    found = []
    for product, *shapes, factors in cases:
        torch.manual_seed(2)
        tensors = [torch.randn(s).to(dtype).requires_grad_() for s in shapes]
        out = product(*tensors, **factors)
        assert out.dtype is dtype
        out.float().square().sum().backward()
        found += [out.detach().float(), *(t.grad.float() for t in tensors)]
    return found
own = {dtype: computed(dtype) for dtype in (torch.float32, torch.bfloat16)}
whole = torch.mm(torch.arange(4).view(2, 2), torch.arange(4).view(2, 2))
bfloat16_products.install()
for one, other in zip(own[torch.float32], computed(torch.float32)):
    assert torch.equal(one, other)
for one, other in zip(own[torch.bfloat16], computed(torch.bfloat16)):
    torch.testing.assert_close(one, other, rtol=2**-6, atol=2**-4)
one, other = torch.randn(64, 512).bfloat16(), torch.randn(512, 64).bfloat16()
assert torch.equal(one @ other, (one.float() @ other.float()).bfloat16())
assert torch.equal(torch.mm(torch.arange(4).view(2, 2), torch.arange(4).view(2, 2)), whole)
"""
    done = launch.script(code)
    assert done.returncode == 0, done.stderr[-1500:]


def test_stand_ins_here(launch):
    """DeepSpeed would compile; those for torch 1 are off; none is on with CUDA."""
    code = """
import os
os.environ["DS_ACCELERATOR"] = "cpu"
import torch, torch.distributed as dist
before = dist.all_reduce, torch.nn.functional.layer_norm
from trainmark_worker import compat
compat.prepare()
assert before == (dist.all_reduce, torch.nn.functional.layer_norm) or compat.torch_1()
import deepspeed.ops
assert deepspeed.ops.__compatible_ops__.get("deepspeed_shm_comm"), "no longer needed"
torch.cuda.is_available = lambda: True
assert not compat.on_cpu()
"""
    done = launch.script(code)
    assert done.returncode == 0, done.stderr[-1500:]


def test_strategies_install_stand_ins_on_cpu_only():
    """Every call stands behind `compat.on_cpu()`."""
    for path in (ROOT / "workflow/trainmark_worker/strategies").glob("*.py"):
        text = path.read_text()
        if ".install()" in text:
            assert "if compat.on_cpu():" in text, path


def test_each_names_what_it_is_for():
    for path in COMPAT.glob("[!_]*.py"):
        assert path.read_text().startswith('"""'), path
        assert any(c.isdigit() for c in path.read_text().split('"""')[1]) or "DeepSpeed" in (
            path.read_text()
        ), f"{path} names no version"
