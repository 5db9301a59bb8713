"""The whole report, reduced: every row of every table, trained by the real frameworks."""

from __future__ import annotations

import itertools
import math
import time
from datetime import datetime

import pandas
import pytest
from pipeline.conftest import Checkout, make_checkout

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(3000)]
ROWS = {
    "mixed_precision": ["fp32", "mixed"],
    "sharding": ["baseline", "mixed", "oss", "sdp", "fsdp", "zero1", "zero2", "zero3", "fsdp2"],
    "parallelism": ["tp1_pp1", "tp2_pp1", "tp4_pp1", "tp1_pp2", "tp1_pp4", "tp2_pp2", "tp4_pp4"],
    "onnxruntime": ["fp32", "mixed", "ort", "ort_mixed"],
}


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Checkout:
    checkout = make_checkout(tmp_path_factory.mktemp("report") / "with space 計測" / "trainmark")
    started = time.monotonic()
    result = checkout.snakemake("report", timeout=2400)
    print(f"the reduced report took {time.monotonic() - started:.0f} s")
    assert result.returncode == 0, result.stdout[-6000:]
    return checkout


def rows_of(report: Checkout):
    return [(table, row) for table in ROWS for row in report.table(table)["rows"]]


def test_every_row_is_there_in_order(report):
    for table, names in ROWS.items():
        assert [row["id"] for row in report.table(table)["rows"]] == names


def test_every_row_is_measured_or_really_out_of_memory(report):
    for table, row in rows_of(report):
        name = f"{table}/{row['id']}"
        assert row["state"] == "measured", name
        if name == "sharding/baseline":
            assert row["outcome"] == "oom"
        else:
            assert (row["outcome"], row["n"]) == ("ok", 2), (name, row["reason"])
            assert row["samples_per_second"]["stddev"] > 0, name
            assert row["peak_memory_mib"] > 0, name


def test_the_oom_has_evidence_and_a_traceback_into_the_model(report):
    for record in report.records("sharding/baseline/*/throughput-*.json").values():
        cause = record["cause"]
        assert "can't allocate memory" in cause["message"]
        assert cause["phase"] in ("forward", "backward")
        assert (cause["step"], cause["micro_batch_index"]) > (0, 0)
        assert "forward" in cause["traceback"]


def test_every_row_trains_the_same_model_as_its_reference(report):
    for table, row in rows_of(report):
        assert row["parity"]["passed"] is True, (table, row["id"], row["parity"])
        assert row["parity"]["max_difference"] <= 1e-5
        if row["precision"] == "mixed":
            assert row["parity_mixed"]["passed"] is True, (table, row["id"], row["parity_mixed"])


def test_parameters_of_the_real_model_equal_the_declared_count(report):
    for path, record in report.records().items():
        if record["outcome"] == "ok":
            assert record["parameters"]["model"] == record["spec"]["declared_parameters"], path


def test_runs_are_distinct_and_never_overlap(report):
    spans = sorted(
        (datetime.fromisoformat(record["started"]), datetime.fromisoformat(record["finished"]))
        for record in report.records().values()
    )
    assert len({start for start, _ in spans}) == len(spans)
    for (_, end), (start, _) in zip(spans, spans[1:], strict=False):
        assert end <= start


def test_rows_of_a_table_follow_one_another(report):
    """A shared machine changes its speed over minutes, so rows that are compared stand together."""
    ordered = sorted(report.records().values(), key=lambda record: record["started"])
    tables = [name for name, _ in itertools.groupby(record["table"] for record in ordered)]
    assert len(tables) <= 2 * len(set(tables)), tables


def test_the_speed_of_the_machine_stands_beside_every_timed_run(report):
    for path, record in report.records().items():
        seconds = record["load"]["calibration_seconds"]
        if record["purpose"] == "throughput":
            assert len(seconds) == 2 and all(0 < value < 30 for value in seconds), path
        else:
            assert seconds is None, path


def test_losses_are_finite(report):
    for path, record in report.records().items():
        if record["outcome"] == "ok":
            assert all(math.isfinite(loss) for loss in record["metrics"]["losses"]), path


def test_memory_falls_as_more_is_sharded(report):
    peak = {row["id"]: row["peak_memory_mib"] for row in report.table("sharding")["rows"]}
    assert peak["mixed"] > peak["oss"] > peak["sdp"], peak
    assert peak["fsdp"] < peak["oss"], peak
    layouts = {row["id"]: row["peak_memory_mib"] for row in report.table("parallelism")["rows"]}
    assert layouts["tp1_pp1"] > layouts["tp2_pp1"] > layouts["tp4_pp1"] > layouts["tp4_pp4"], (
        layouts
    )


def test_pages_in_both_languages_show_every_number(report):
    for language in ("ja", "en"):
        page = report.page(language)
        assert f'lang="{language}"' in page
        for _, row in rows_of(report):
            if row["samples_per_second"]:
                mean = row["samples_per_second"]["mean"]
                assert any(f"{mean:,.{digits}f}" in page for digits in (0, 1, 2)), row["id"]


def test_pandas_reads_the_csv_without_turning_outcomes_into_nan(report):
    frame = pandas.read_csv(report.folder / "results/cpu/tables/sharding.csv")
    assert list(frame["row"]) == ROWS["sharding"]
    assert frame["outcome"].tolist()[0] == "oom"
    assert frame["outcome"].notna().all()


def test_a_second_report_measures_nothing(report):
    before = {path: record["started"] for path, record in report.records().items()}
    started = time.monotonic()
    result = report.snakemake("report")
    print(f"the second report took {time.monotonic() - started:.1f} s")
    assert result.returncode == 0, result.stdout[-3000:]
    assert "nothing to measure" in result.stdout
    assert {path: record["started"] for path, record in report.records().items()} == before


def test_one_table_alone_prints_itself(report):
    result = report.snakemake("table_parallelism")
    assert result.returncode == 0
    assert "tp4_pp4" in result.stdout and "±" in result.stdout
