"""The strict check: each fault alone keeps a page from release."""

import pytest
from records_factory import Results, make_cause
from trainmark import check, checks, status
from trainmark.aggregate import Aggregator


@pytest.fixture
def results(tmp_path):
    made = Results(tmp_path)
    made.declare_references()
    made.measure("reference", "bert-pretraining")
    made.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32", order=1)
    return made


def faults(results):
    aggregator = Aggregator(results.plans, results.records)
    return checks.faults([aggregator.table(name) for name in aggregator.table_ids])


def test_complete_and_plausible_results_pass(results, capsys):
    results.measure("mixed_precision", "fp32")
    assert faults(results) == []
    arguments = ["--plans", str(results.plans), "--records", str(results.records)]
    assert check.main(["--tables", str(results.tables), *arguments]) == 0
    assert "fit for release: 1 rows" in capsys.readouterr().out


LOSSES = [6.9 - 0.1 * step for step in range(10)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"outcome": "error", "cause": make_cause(message="it broke")}, "error: it broke"),
        ({"throughput": [5.0, 9.0, 5.0]}, "spread by"),
        ({"parity_shift": 1e-3}, "losses differ by 0.001"),
        ({"only": ("throughput",)}, "not measured: memory-1, parity-1"),
        ({"parameters": {"model": 7, "per_rank": [7]}}, "7 parameters counted"),
    ],
)
def test_each_fault_is_told(results, options, told):
    results.measure("mixed_precision", "fp32", **options)
    assert [line for line in faults(results) if told in line], faults(results)


def test_losses_must_fall_below_the_unigram_model(results):
    results.measure("mixed_precision", "fp32", only=("memory", "parity"))
    results.measure("mixed_precision", "fp32", only=("throughput",))
    row = Aggregator(results.plans, results.records).table("mixed_precision")
    losses = row.rows[0].losses
    losses.steps, losses.first, losses.last, losses.unigram = 40, 7.0, 6.5, 6.0
    assert [line for line in checks.faults([row]) if "unigram" in line]
    losses.last = losses.first + 0.1
    assert [line for line in checks.faults([row]) if "does not fall" in line]


def test_mfu_above_one_is_implausible(results):
    results.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32", order=1,
                    more={"peak_tflops": {"fp32": 1e-6}})  # fmt: skip
    results.measure("mixed_precision", "fp32")
    assert [line for line in faults(results) if "MFU" in line]


def test_records_of_two_environments_are_named(results):
    paths = results.measure("mixed_precision", "fp32")
    text = paths[0].read_text().replace("2.13.0+cpu", "2.14.0+cpu")
    paths[0].write_text(text)
    found = faults(results)
    assert len(found) == 1 and "records differ in torch: " in found[0]
    assert "2.13.0+cpu" in found[0] and "2.14.0+cpu" in found[0]


def shown(results, capsys):
    status.main(["--plans", str(results.plans), "--records", str(results.records)])
    return " ".join(capsys.readouterr().out.split())


def test_status_tells_missing_measured_failed_and_stale(results, capsys):
    assert "mixed_precision/fp32 missing 0 — 5 of 5 runs" in shown(results, capsys)
    results.measure("mixed_precision", "fp32", outcome="error", cause=make_cause())
    assert "mixed_precision/fp32 failed 0" in shown(results, capsys)
    results.measure("mixed_precision", "fp32")
    text = shown(results, capsys)
    assert "mixed_precision/fp32 measured 3 2026-11-01" in text
    assert "measures 3 runs of 3 rows" in text  # the references not measured yet
    results.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32", order=1,
                    parts={"environment": "new"})  # fmt: skip
    text = shown(results, capsys)
    assert "mixed_precision/fp32 stale 0 — changed: environment" in text
    assert "measures 8 runs of 4 rows, roughly" in text
