"""Every strategy trains the same model; a strategy that doesn't is noticed."""

from __future__ import annotations

import pytest
from conftest import LAYOUTS, SHARDING
from worker import difference, losses

FP32, MIXED = 1e-5, 5e-3
LAYOUT_NAMES = [f"tp{tp}-pp{pp}" for tp, pp in LAYOUTS]


def test_loss_falls(gpt, bert):
    for records in (gpt, bert):
        assert losses(records["ddp"])[-1] < losses(records["ddp"])[0] - 0.05


@pytest.mark.parametrize(
    "name",
    ["single", *SHARDING, *LAYOUT_NAMES, "tp1-pp1-checkpoint", "tp2-pp2-checkpoint", "sdpa"],
)
def test_gpt_fp32(gpt, name):
    assert difference(gpt[name], gpt["ddp"]) <= FP32


@pytest.mark.parametrize("name", ["ddp", *SHARDING, "tp1-pp1", "tp2-pp2"])
def test_gpt_mixed(gpt, name):
    change = difference(gpt[f"{name}-mixed"], gpt["ddp"])
    assert 0 < change <= MIXED
    assert change > FP32, "mixed precision computed in fp32"


@pytest.mark.parametrize("name", ["single", *SHARDING, "checkpoint"])
def test_bert_fp32(bert, name):
    assert difference(bert[name], bert["ddp"]) <= FP32


@pytest.mark.parametrize("name", ["ddp", "sdp", "fsdp", "fsdp2", "zero2"])
def test_bert_mixed(bert, name):
    assert FP32 < difference(bert[f"{name}-mixed"], bert["ddp"]) <= MIXED


@pytest.mark.parametrize("name", ["sdp", "sum", "data", "clip", "seed"])
def test_fault_is_noticed(gpt, name):
    assert difference(gpt[f"fault-{name}"], gpt["ddp"]) > 10 * FP32


def test_dtypes_are_recorded(gpt):
    assert gpt["ddp"]["dtypes"]["compute"] == "float32"
    assert gpt["oss-mixed"]["dtypes"]["compute"] == "bfloat16"
    assert gpt["oss-mixed"]["dtypes"]["weights"] == "float32"
    assert gpt["zero1-mixed"]["dtypes"]["weights"] == "bfloat16"


@pytest.mark.parametrize(
    "name, reason",
    [
        ("ranks", "world_size (4) is not divisible by 16"),
        ("heads", "2 attention heads do not divide by 4"),
        ("layers", "6 layers do not divide by 4"),
    ],
)
def test_unsupported_says_why(gpt, name, reason):
    record = gpt[f"unsupported-{name}"]
    assert record["outcome"] == "unsupported"
    assert reason in record["cause"]["message"]
    assert record["metrics"] is None
