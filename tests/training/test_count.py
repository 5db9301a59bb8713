"""Parameter counts: by formula without torch, and of the models themselves."""

from __future__ import annotations

import subprocess
import sys

from conftest import LAYOUTS
from trainmark_worker import count
from worker import ROOT, SPEC, spec

BERT_BASE = {"layers": 12, "hidden": 768, "heads": 12, "vocabulary": 30522, "sequence_length": 512}
GPT = {"layers": 24, "hidden": 2048, "heads": 32, "vocabulary": 50304, "sequence_length": 1024}


def full_size(workload, model, **changes):
    return {**spec(**changes), "workload": workload, "model": {**model, "dropout": 0.1}}


def test_published_sizes():
    assert count.parameters(full_size("bert-pretraining", BERT_BASE)) == 110_106_428
    assert count.parameters(full_size("bert-finetuning", BERT_BASE)) == 109_483_778
    assert count.parameters(full_size("gpt-pretraining", GPT)) == 1_313_722_368


def test_layouts():
    expected = {
        (2, 1): [658_059_264] * 4,
        (4, 1): [330_227_712] * 4,
        (1, 2): [709_419_008] * 2 + [707_325_952] * 2,
        (2, 2): [355_831_808] * 2 + [353_738_752] * 2,
    }
    for (tp, pp), counts in expected.items():
        changes = {"tensor_parallel": tp, "pipeline_parallel": pp}
        assert count.parameters_per_rank(full_size("gpt-pretraining", GPT, **changes)) == counts


def test_count_needs_no_torch():
    code = "import sys, trainmark_worker.count; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ROOT / "workflow"})


def test_trained_models_have_that_many(gpt, bert):
    assert gpt["ddp"]["parameters"]["model"] == count.parameters(SPEC)
    assert bert["ddp"]["parameters"]["model"] == count.parameters(bert["ddp"]["spec"])
    for tp, pp in LAYOUTS:
        record = gpt[f"tp{tp}-pp{pp}"]
        assert record["parameters"]["model"] == count.parameters(SPEC)
        assert record["parameters"]["per_rank"] == count.parameters_per_rank(record["spec"])


def test_sharded_parameters(gpt):
    whole = gpt["ddp"]["parameters"]["model"]
    for strategy in ("fsdp", "fsdp2", "zero3"):
        per_rank = gpt[strategy]["parameters"]["per_rank"]
        assert whole <= sum(per_rank) < 1.02 * whole
        assert max(per_rank) < 0.27 * whole


def test_full_size_models_on_the_meta_device(launch):
    code = f"""
import torch
from trainmark_worker import count, weights
from trainmark_worker.workloads import bert_pretraining, gpt_pretraining
for module in (bert_pretraining, gpt_pretraining):
    module.initialise = lambda *a, **k: None
base = {spec()!r}
for workload, module, model in (
    ("bert-pretraining", bert_pretraining, {BERT_BASE!r}),
    ("gpt-pretraining", gpt_pretraining, {GPT!r}),
):
    full = dict(base, workload=workload, model=dict(model, dropout=0.1))
    with torch.device("meta"):
        real = sum(p.numel() for p in module.build(full).parameters())
    assert real == count.parameters(full), (workload, real)
"""
    done = launch.script(code)
    assert done.returncode == 0, done.stderr[-2000:]
