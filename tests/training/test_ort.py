"""ONNX Runtime trains the same classifier, in its own engine, and says what it computes in."""

from __future__ import annotations

import json

import numpy as np
import pytest
import worker
from test_parity import FP32, MIXED
from worker import difference, losses

STEPS = 10
#: Memory is compared where activations are several MiB: pages, and what Python allocates within a
#: step, are no part of the comparison.
LARGER = {"hidden": 128, "micro_batch": 16, "global_batch": 64, "timed_steps": 4}


def classifier(strategy: str = "ddp", precision: str = "fp32", **changes) -> dict:
    small = {"layers": 2, "timed_steps": STEPS, "workload": "bert-finetuning"}
    return worker.spec(strategy, precision, **{**small, **changes})


def write_pairs(root, vocabulary=256, length=32, rows=64):
    """Sentence pairs: a token of one half of the vocabulary or the other decides the label."""
    random = np.random.RandomState(5)
    labels = random.randint(0, 2, rows)
    half = vocabulary // 2
    ids = random.randint(5, half, (rows, length)) + labels[:, None] * (half - 5)
    lengths = random.randint(length // 2, length + 1, rows)
    mask = np.arange(length) < lengths[:, None]
    second = np.arange(length) >= lengths[:, None] // 2
    folder = root / "bert-finetuning"
    folder.mkdir(parents=True)
    np.save(folder / "input_ids.npy", np.where(mask, ids, 0).astype(np.int32))
    np.save(folder / "attention_mask.npy", mask.astype(np.uint8))
    np.save(folder / "token_type_ids.npy", (second & mask).astype(np.uint8))
    np.save(folder / "labels.npy", labels.astype(np.uint8))
    (folder / "manifest.json").write_text(json.dumps({"key": "test", "unigram_loss": 0.69}))
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module")
def eager(launch, data) -> dict[str, dict]:
    """Its own launch: importing ORTModule patches torch, an eager row must never see that."""
    specs = {
        "fp32": classifier(),
        "mixed": classifier(precision="mixed"),
        "memory": classifier(purpose="memory", **LARGER),
    }
    return launch.run(specs, data=data)


@pytest.fixture(scope="module")
def ort(launch, data) -> dict[str, dict]:
    specs = {
        "fp32": classifier("ort"),
        "single": classifier("ort", ranks=1),
        "mixed": classifier("ort", "mixed"),
        "memory": classifier("ort", purpose="memory", **LARGER),
        "bfloat16": classifier("faulty.ort_bfloat16", "mixed"),
        "fallback": classifier("faulty.ort_fallback"),
        "sdpa": classifier("ort", attention="sdpa", dropout=0.1),
    }
    return launch.run(specs, data=data)


def test_loss_falls(eager, ort):
    for record in (eager["fp32"], ort["fp32"], ort["mixed"]):
        assert losses(record)[-1] < losses(record)[0]


def test_fp32_parity(eager, ort):
    assert difference(ort["fp32"], eager["fp32"]) <= FP32
    assert difference(ort["single"], eager["fp32"]) <= FP32


def test_mixed_parity(eager, ort):
    assert difference(ort["mixed"], eager["fp32"]) <= MIXED
    assert difference(eager["mixed"], eager["fp32"]) <= MIXED


def test_mixed_says_that_it_is_emulated(eager, ort):
    assert ort["mixed"]["dtypes"]["compute"] == "float32"
    assert ort["mixed"]["dtypes"]["note"] == "emulated_float16_on_cpu"
    assert ort["fp32"]["dtypes"]["note"] is None
    assert eager["mixed"]["dtypes"]["compute"] == "bfloat16"


def test_bfloat16_is_the_frameworks_own_error(ort):
    """Why the mixed row is emulated float16: ORT on a CPU cannot compute in bfloat16."""
    record = ort["bfloat16"]
    assert record["outcome"] == "error", "bfloat16 works now: use it in strategies/ort.py"
    assert "onnxruntime" in record["cause"]["traceback"]
    assert "Could not find an implementation for MatMul" in record["cause"]["message"]


def test_silent_fallback_is_refused(ort):
    assert ort["fallback"]["outcome"] == "error"
    assert "did not train in ONNX Runtime" in ort["fallback"]["cause"]["message"]


def test_sdpa_cannot_be_exported_with_dropout(ort):
    """Why both sides of the table use eager attention, as fast here as sdpa (measured)."""
    assert ort["sdpa"]["outcome"] == "error", "sdpa trains now: the table may use it"


def test_memory_counts_what_ort_allocates(eager, ort):
    """Its activations are seen (about as many as PyTorch's); its weights and states are torch's."""
    ours, theirs = (
        max(r["memory"]["peak_allocated_bytes"]) for r in (ort["memory"], eager["memory"])
    )
    assert ort["memory"]["memory"]["method"] == "torch.profiler+resident"
    assert eager["memory"]["memory"]["method"] == "torch.profiler"
    assert 0.6 * theirs < ours < 1.2 * theirs
    held, expected = (max(r["memory"]["steady_bytes"]) for r in (ort["memory"], eager["memory"]))
    assert held == pytest.approx(expected, rel=0.05)


def test_both_ways_to_measure_memory_agree(launch, data, eager):
    """Eager PyTorch, measured as ORT is."""
    other = launch.run(
        {"ddp": classifier("faulty.ddp_resident", purpose="memory", **LARGER)}, data=data
    )
    assert other["ddp"]["memory"]["method"] == "torch.profiler+resident"
    ways = [max(r["memory"]["peak_allocated_bytes"]) for r in (other["ddp"], eager["memory"])]
    assert ways[0] == pytest.approx(ways[1], rel=0.05)


def test_eager_rows_never_import_ort(launch):
    code = """
import sys
from trainmark_worker import rank
rank.prepare([{"spec": {"strategy": "ddp", "workload": "bert-finetuning"}}])
assert not any(name.startswith("onnxruntime") for name in sys.modules)
"""
    done = launch.script(code)
    assert done.returncode == 0, done.stderr[-1500:]


def test_shim_is_still_needed(launch):
    code = """
import os
os.environ["ORTMODULE_FALLBACK_POLICY"] = "FALLBACK_DISABLE"
from onnxruntime.training.ortmodule import ORTModule
import torch
ORTModule(torch.nn.Linear(2, 2))(torch.ones(1, 2)).sum().backward()
"""
    assert launch.script(code).returncode != 0, "compat/onnxruntime.py is no longer needed"
