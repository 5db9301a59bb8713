"""torchrun and fork train alike; gradients travel as often as each strategy says."""

from __future__ import annotations

import json

import pytest
from conftest import _megatron
from worker import difference, spec

STEPS = 3


@pytest.fixture(scope="module")
def counted(launch):
    """What each strategy hands to Python-level collectives in a step of two micro batches."""
    names = ("oss", "sdp")
    specs = {
        name: spec("faulty.counting", counted=name, timed_steps=STEPS, gradient_clipping=0.0)
        for name in names
    }
    specs["megatron"] = {
        **_megatron(1, 1, counted="megatron", timed_steps=STEPS, gradient_clipping=0.0),
        "strategy": "faulty.counting",
    }
    specs["tp2"] = {
        **_megatron(2, 1, counted="megatron", timed_steps=STEPS, gradient_clipping=0.0),
        "strategy": "faulty.counting",
    }
    records = launch.run(specs)
    for record in records.values():
        assert record["outcome"] == "ok", record["cause"]
    return {n: (json.loads(r["dtypes"]["note"]), r) for n, r in records.items()}


def test_torchrun_trains_as_fork_and_tells_who_was_killed(launch):
    ddp = spec(timed_steps=STEPS)
    forked = launch.run({"ddp": ddp})["ddp"]
    torchrun = launch.run({"ddp": ddp, "killed": spec("faulty.killed")}, launcher="torchrun")
    assert difference(forked, torchrun["ddp"]) == 0
    record = torchrun["killed"]
    assert record["outcome"] == "error"
    assert (record["cause"]["rank"], record["cause"]["signal"]) == (1, "SIGKILL")


def test_gradients_travel_once_per_step(counted):
    moved, record = counted["megatron"]
    gradients = 4 * record["parameters"]["model"]
    assert gradients <= moved["all_reduce"] < 1.01 * gradients  # and sums for the loss


def test_sdp_reduces_each_gradient_to_its_owner(counted):
    moved, record = counted["sdp"]
    assert moved["reduce"] == 4 * record["parameters"]["model"]


def test_oss_hands_out_every_weight(counted):
    moved, record = counted["oss"]
    assert moved["broadcast"] == 4 * record["parameters"]["model"]


def test_tensor_parallel_moves_activations(counted):
    """Forward and backward: two sums per layer each, and those of embedding, logits, loss."""
    moved, record = counted["tp2"]
    s = record["spec"]
    micro_batches = s["global_batch"] // (s["micro_batch"] * 2)
    activation = 4 * s["micro_batch"] * s["model"]["sequence_length"] * s["model"]["hidden"]
    layers = 4 * s["model"]["layers"] + 2
    gradients = 4 * record["parameters"]["per_rank"][0]
    expected = micro_batches * layers * activation + gradients
    assert expected <= moved["all_reduce"] < 1.05 * expected
