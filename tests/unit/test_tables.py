"""From plans and records to tables: states, outcomes, parity, and files that do not count."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from records_factory import (
    Results,
    key_parts,
    make_cause,
    make_record,
    reference_losses,
    write_json,
)
from trainmark import catalogues, tables, verdict
from trainmark.aggregate import Aggregator
from trainmark.findings import change, is_clear
from trainmark.row_view import remarks
from trainmark.sentences import Narrator

LOCALES = Path(__file__).parents[2] / "report" / "locales"


@pytest.fixture
def results(tmp_path):
    made = Results(tmp_path)
    made.declare_references()
    for row in ("bert-pretraining", "gpt-pretraining"):
        made.measure("reference", row)
    made.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32", order=1)
    made.declare("mixed_precision", "mixed", "bert-pretraining", "ddp", "mixed", order=2)
    return made


def table_of(results, name="mixed_precision"):
    return Aggregator(results.plans, results.records).table(name)


def row_of(results, row="fp32"):
    return next(found for found in table_of(results).rows if found.id == row)


def run_of(results, purpose="throughput", repeat=1, row="fp32"):
    plan = results.plan("mixed_precision", row)
    runs = plan["runs"]
    return plan, next(r for r in runs if (r["purpose"], r["repeat"]) == (purpose, repeat))


def test_a_measured_row_has_mean_deviation_peak_and_parity(results):
    results.measure("mixed_precision", "fp32", throughput=[20.0, 21.0, 22.0], peak_mib=118.25)
    row = row_of(results)
    assert (row.state, row.outcome, row.n, row.reason) == ("measured", "ok", 3, None)
    assert row.samples_per_second.mean == 21.0
    assert row.samples_per_second.stddev == pytest.approx(1.0)
    assert row.peak_memory_mib == 118.25  # the largest rank
    assert row.parity.passed is True and row.parity.max_difference == 0
    assert row.parameters == row.declared_parameters


def test_rows_keep_the_declared_order(results):
    assert [row.id for row in table_of(results).rows] == ["fp32", "mixed"]


def test_a_row_without_records_is_missing(results):
    row = row_of(results)
    assert (row.state, row.outcome, row.n, row.samples_per_second) == ("missing", None, 0, None)


def test_one_repeat_has_no_deviation(results, tmp_path):
    single = Results(tmp_path / "single", repeats=1)
    single.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32")
    single.measure("mixed_precision", "fp32", throughput=[20.0])
    row = row_of(single)
    assert row.n == 1 and row.samples_per_second.stddev is None


def test_some_missing_repeats_leave_the_row_incomplete(results):
    paths = results.measure("mixed_precision", "fp32")
    paths[1].unlink()
    row = row_of(results)
    assert (row.state, row.outcome, row.n) == ("missing", "ok", 2)
    assert row.missing_runs == ["throughput-2"]


@pytest.mark.parametrize("part", ["code", "environment", "data"])
def test_a_stale_row_names_the_part_that_differs(results, part):
    results.measure("mixed_precision", "fp32")
    results.declare(
        "mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32", parts={part: "new"}
    )
    row = row_of(results)
    assert (row.state, row.stale_because, row.n) == ("stale", [part], 0)


def test_a_stale_row_names_the_field_of_the_spec(results):
    results.measure("mixed_precision", "fp32")
    results.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32", global_batch=32)
    assert row_of(results).stale_because == ["spec.global_batch"]


def test_failed_attempts_never_count_and_name_the_cause(results):
    results.measure(
        "mixed_precision", "fp32", outcome="error", cause=make_cause(message="it broke")
    )
    row = row_of(results)
    assert (row.state, row.outcome, row.n) == ("missing", "error", 0)
    assert row.reason == "it broke" and row.cause.rank == 1


def test_an_old_failure_beside_a_record_is_only_counted(results):
    results.measure("mixed_precision", "fp32", outcome="error", cause=make_cause())
    results.measure("mixed_precision", "fp32")
    row = row_of(results)
    assert (row.state, row.outcome) == ("measured", "ok")
    assert sum(run.failed_attempts for run in row.runs) == 4


def test_the_worst_outcome_wins_and_the_mean_uses_ok_runs(results):
    results.measure("mixed_precision", "fp32", throughput=[20.0, 22.0, 0.5])
    plan, run = run_of(results, repeat=3)
    results.write(make_record(plan, run, outcome="oom", cause=make_cause(message="no memory")))
    row = row_of(results)
    assert (row.state, row.outcome, row.n) == ("measured", "oom", 2)
    assert row.samples_per_second.mean == 21.0


def test_parity_fails_above_its_tolerance(results):
    results.measure("mixed_precision", "fp32", parity_shift=3e-5)
    row = row_of(results)
    assert row.parity.passed is False
    assert row.parity.max_difference == pytest.approx(3e-5)
    assert row.outcome == "ok"


def test_mixed_parity_has_its_own_tolerance(results):
    results.measure("mixed_precision", "mixed", parity_shift=0)
    row = row_of(results, "mixed")
    assert row.parity_mixed.passed is True and row.parity_mixed.tolerance == 5e-3


def test_parity_with_another_number_of_steps_fails(results):
    results.measure("mixed_precision", "fp32")
    plan, run = run_of(results, "parity")
    losses = reference_losses("bert-pretraining")[:-1]
    results.write(make_record(plan, run, losses=losses))
    assert row_of(results).parity.passed is False


def test_parity_without_a_reference_is_open(tmp_path):
    results = Results(tmp_path)
    results.declare_references()
    results.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32")
    results.measure("mixed_precision", "fp32")
    assert row_of(results).parity.passed is None


def damage(name):
    def truncate(path, record):
        path.write_text(path.read_text()[:200])

    def empty(path, record):
        path.write_text("")

    def other_row(path, record):
        write_json(path, {**record, "row": "mixed"})

    def other_schema(path, record):
        write_json(path, {**record, "schema_version": 2})

    def edited_spec(path, record):
        write_json(path, {**record, "spec": {**record["spec"], "seed": 1}})

    def not_a_number(path, record):
        record["metrics"]["losses"][0] = math.nan
        path.write_text(json.dumps(record))

    def no_rate(path, record):
        record["metrics"]["samples_per_second"] = None
        write_json(path, record)

    def rate_as_text(path, record):
        record["metrics"]["samples_per_second"] = "5"
        write_json(path, record)

    def a_list(path, record):
        write_json(path, [record])

    def parts_as_text(path, record):
        write_json(path, {**record, "key_parts": "abc"})

    def other_repeat(path, record):
        write_json(path, {**record, "repeat": 2})

    def not_utf8(path, record):
        path.write_bytes(b"\xff\xfe\x00")

    return locals()[name]


@pytest.mark.parametrize(
    "name",
    ["truncate", "empty", "other_row", "other_schema", "edited_spec", "not_a_number", "no_rate",
     "rate_as_text", "a_list", "parts_as_text", "other_repeat", "not_utf8"],
)  # fmt: skip
def test_damaged_records_never_count_and_are_reported(results, name):
    results.measure("mixed_precision", "fp32", throughput=[20.0, 21.0, 22.0])
    plan, run = run_of(results)
    path = results.records / "mixed_precision" / "fp32" / run["key"] / "throughput-1.json"
    damage(name)(path, json.loads(path.read_text()))
    row = row_of(results)
    assert (row.state, row.n) == ("missing", 2)
    assert row.samples_per_second.mean == 21.5
    assert len(row.invalid) == 1
    assert row.invalid[0].startswith("mixed_precision/fp32/"), row.invalid


def test_an_ok_memory_run_needs_a_peak(results):
    results.measure("mixed_precision", "fp32")
    plan, run = run_of(results, "memory")
    results.write(make_record(plan, run, memory=None))
    row = row_of(results)
    assert row.peak_memory_mib is None and "peak" in row.invalid[0]


def test_adaptive_repeats_count_beyond_the_declared_ones(results):
    results.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32", order=1,
                    more={"auto_repeats": {"maximum": 10, "interval_limit": 0.02}})  # fmt: skip
    results.measure("mixed_precision", "fp32", throughput=[20.0, 21.0, 22.0])
    plan, run = run_of(results)
    results.write(make_record(plan, {**run, "repeat": 4}, samples_per_second=25.0))
    row = row_of(results)
    assert row.adaptive and row.n == 4


def test_without_auto_further_repeats_do_not_count(results):
    results.measure("mixed_precision", "fp32", throughput=[20.0, 21.0, 22.0])
    plan, run = run_of(results)
    results.write(make_record(plan, {**run, "repeat": 4}, samples_per_second=25.0))
    assert row_of(results).n == 3


def test_mfu_uses_the_peak_of_all_ranks(results):
    results.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32", order=1,
                    more={"peak_tflops": {"fp32": 1.0}})  # fmt: skip
    results.measure("mixed_precision", "fp32", throughput=[20.0])
    assert row_of(results).mfu == pytest.approx(20.0 * 6e9 / 4e12)


def test_key_parts_of_the_factory_are_those_of_the_pipeline(results):
    from trainmark.canonical import digest

    spec = run_of(results)[1]["spec"]
    assert key_parts(spec)["spec"] == digest(spec)


# --- files ----------------------------------------------------------------------------------------


def command(results, *more):
    return tables.main(
        ["--plans", str(results.plans), "--records", str(results.records),
         "--out", str(results.tables), *more]
    )  # fmt: skip


def test_pandas_reads_the_csv_back_with_outcomes_as_words(results):
    results.measure("mixed_precision", "fp32", outcome="oom", cause=make_cause(message="=1+1"))
    assert command(results) == 0
    frame = pd.read_csv(results.tables / "mixed_precision.csv").set_index("row")
    assert frame.loc["fp32", "outcome"] == "oom"
    assert frame.loc["mixed", "outcome"] == "not_measured"
    assert not frame["outcome"].isna().any() and not frame["state"].isna().any()
    assert frame["samples_per_second_mean"].dtype == "float64"
    assert frame.loc["fp32", "reason"] == "'=1+1"  # no formula for a spreadsheet


def test_the_json_reads_back_equal(results):
    results.measure("mixed_precision", "fp32")
    command(results)
    read = tables.read(results.tables / "mixed_precision.json")
    assert read == table_of(results)
    assert read.model_dump_json() == table_of(results).model_dump_json()


def test_tables_are_printed_on_demand(results, capsys):
    results.measure("mixed_precision", "fp32", throughput=[20.0, 21.0, 22.0])
    command(results, "--table", "mixed_precision", "--print")
    text = capsys.readouterr().out
    assert "21.00 ± 1.00" in text and "not measured" in text


def test_the_verdict_names_failures_and_their_logs(results, capsys):
    results.measure("mixed_precision", "fp32", outcome="timeout", cause=make_cause(message="slow"))
    results.measure("mixed_precision", "mixed", parity_shift=1.0)
    command(results)
    (results.folder / "logs").mkdir()
    (results.folder / "logs" / "mixed_precision-fp32.log").write_text("")
    assert verdict.main(["--tables", str(results.tables)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("mixed_precision/fp32: timeout: slow; log: ")
    assert [line for line in lines if "mixed_precision/mixed: parity failed" in line]


def test_the_verdict_on_one_table_and_on_one_row(results, tmp_path, capsys):
    results.measure("mixed_precision", "fp32", outcome="timeout", cause=make_cause())
    made = tables.main([
        "--plans", str(results.plans), "--records", str(results.records),
        "--out", str(tmp_path / "tables"),
    ])  # fmt: skip
    folder = ["--tables", str(tmp_path / "tables")]
    assert made == 0
    assert verdict.main([*folder, "--table", "mixed_precision"]) == 1
    assert "mixed_precision/fp32: timeout" in capsys.readouterr().err
    assert verdict.main([*folder, "--table", "sharding"]) == 0
    summary = tmp_path / "rows/sharding/oss.json"
    outcomes = {"throughput-1": "timeout", "memory-1": "oom", "parity-1": "ok"}
    write_json(summary, {"table": "sharding", "row": "oss", "outcomes": outcomes})
    assert verdict.main(["--row", str(summary)]) == 1
    assert "sharding/oss: throughput-1 timeout; log: " in capsys.readouterr().err
    write_json(summary, {"table": "sharding", "row": "oss", "outcomes": {"memory-1": "oom"}})
    assert verdict.main(["--row", str(summary)]) == 0


def test_the_verdict_accepts_oom_and_unmeasured_rows(results):
    results.measure("mixed_precision", "fp32", outcome="oom", cause=make_cause())
    command(results)
    assert verdict.main(["--tables", str(results.tables)]) == 0


def remarks_of(row):
    """In both languages."""
    texts = [catalogues.load(LOCALES, language) for language in ("en", "ja")]
    views = [remarks(row, "", text, 0.5) for text in texts]
    return " ".join(part["text"] for view in views if view for part in view["parts"])


def test_products_that_a_stand_in_computed_are_told(results):
    used = {"compute": "bfloat16", "weights": "float32", "optimizer": "float32"}
    results.measure("mixed_precision", "mixed", dtypes=used)
    assert "AVX-512" not in remarks_of(row_of(results, "mixed"))
    results.measure("mixed_precision", "mixed", dtypes={**used, "products": "float32"})
    assert remarks_of(row_of(results, "mixed")).count("AVX-512") >= 2


def test_load_by_others_is_told_when_it_is_above_the_limit_of_its_run(results):
    load = {"before": [0.1] * 3, "after": [0.1] * 3, "foreign_cpu_percent": 12.0}
    busy = {**load, "foreign_gpu_memory_mib": 900}
    context = {"foreign_load_limit": 15, "foreign_cpu_percent_before": 2.0}

    def told(**changes):
        results.measure("mixed_precision", "fp32", **{**context, **changes})
        return remarks_of(row_of(results))

    assert "12%" not in told(load=load)
    assert "Other processes used up to 12% of" in (text := told(load=load, foreign_load_limit=10))
    assert "最大 12% を" in text
    assert "up to 40%" in told(load=load, foreign_cpu_percent_before=40.0)
    assert "900 MiB" not in told(load=load)
    assert "up to 900 MiB on a GPU" in (text := told(load=busy)) and "最大 900 MiB" in text


def calibrated(seconds):
    return {"before": [0.1] * 3, "after": [0.1] * 3, "calibration_seconds": [seconds, seconds]}


def test_a_slower_machine_widens_the_interval_and_is_told(results):
    rates = {"fp32": [20.0, 20.2, 20.1], "mixed": [25.0, 25.2, 25.1]}
    for row, rate in rates.items():
        results.measure("mixed_precision", row, throughput=rate, load=calibrated(0.08))
    fp32, mixed = (row_of(results, row) for row in rates)
    steady = change(mixed, fp32)
    assert steady.machine_change == 0 and is_clear(steady)
    results.measure("mixed_precision", "fp32", throughput=rates["fp32"], load=calibrated(0.12))
    drifted = change(mixed, row_of(results))
    assert drifted.machine_change == pytest.approx(0.5)  # faster while `mixed` was measured
    assert drifted.change == steady.change and not is_clear(drifted)
    assert drifted.low == pytest.approx((1 + steady.low) / 1.5 - 1)
    assert drifted.high == pytest.approx((1 + steady.high) * 1.5 - 1)
    for language, words in (("en", "own speed meanwhile: +50.0%"), ("ja", "速度変化 +50.0%")):
        narrator = Narrator(catalogues.load(LOCALES, language), "mixed_precision", {})
        assert words in narrator.change(drifted)
