"""What is measured again, and what is not: every sentence by running Snakemake for real."""

from __future__ import annotations

import os
import time

import pytest

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(3000)]


def measured_between(before: dict, after: dict) -> set[str]:
    """Records that are new or that were measured again."""
    return {
        path
        for path, record in after.items()
        if before.get(path, {}).get("started") != record["started"]
    }


def test_second_report_measures_nothing_and_says_so(small_measured):
    before = small_measured.records()
    dry = small_measured.snakemake("report", "-n")
    assert "nothing to measure" in dry.stdout
    assert "measuring " not in dry.stdout
    started = time.monotonic()
    result = small_measured.snakemake("report")
    took = time.monotonic() - started
    assert result.returncode == 0, result.stdout[-3000:]
    assert "rendering the page" not in result.stdout
    assert measured_between(before, small_measured.records()) == set()
    print(f"the second report took {took:.1f} s")


def test_reordering_comments_and_touch_measure_nothing(small_measured):
    before = small_measured.records()
    small_measured.edit(
        "config/hardware/cpu.yaml",
        lambda h: [h.__setitem__(k, h.pop(k)) for k in reversed(list(h))],
    )
    worker = small_measured.folder / "workflow/trainmark_worker/train.py"
    worker.write_text("# another comment\n" + worker.read_text(encoding="utf-8"), encoding="utf-8")
    for path in small_measured.folder.rglob("*.yaml"):
        path.touch()
    for path in (small_measured.folder / "workflow").rglob("*.py"):
        path.touch()
    result = small_measured.snakemake("table_mixed_precision")
    assert result.returncode == 0, result.stdout[-3000:]
    assert measured_between(before, small_measured.records()) == set()


def test_one_more_repeat_measures_one_repeat_per_row(small_measured):
    before = small_measured.records()
    result = small_measured.snakemake("table_mixed_precision", repeats=3)
    assert result.returncode == 0, result.stdout[-3000:]
    new = measured_between(before, small_measured.records())
    assert {path.split("/")[-1] for path in new} == {"throughput-3.json"}
    assert {path.split("/")[1] for path in new} == {"fp32", "mixed"}
    assert [row["n"] for row in small_measured.table("mixed_precision")["rows"]] == [3, 3]


def test_changed_row_measures_that_row_only(small_measured):
    before = small_measured.records()

    def change(tables):
        tables["tables"][0]["rows"][1]["activation_checkpointing"] = True

    small_measured.edit("config/tables.yaml", change)
    result = small_measured.snakemake("table_mixed_precision")
    assert result.returncode == 0, result.stdout[-3000:]
    new = measured_between(before, small_measured.records())
    assert new and {path.split("/")[1] for path in new} == {"mixed"}


def test_changed_helper_measures_what_it_determines(small_measured):
    """A helper module that no rule names, imported by the worker: everything is measured again."""
    before = small_measured.records()
    helper = small_measured.folder / "workflow/trainmark_worker/weights.py"
    helper.write_text(helper.read_text(encoding="utf-8") + "\nCHANGED = 1\n", encoding="utf-8")
    other = small_measured.folder / "workflow/trainmark_worker/strategies/oss.py"
    dry = small_measured.snakemake("report", "-n")
    assert "measuring mixed_precision/fp32" in dry.stdout
    helper.write_text(
        helper.read_text(encoding="utf-8").replace("\nCHANGED = 1\n", ""), encoding="utf-8"
    )
    other.write_text(other.read_text(encoding="utf-8") + "\nCHANGED = 1\n", encoding="utf-8")
    dry = small_measured.snakemake("report", "-n")
    assert "measuring " not in dry.stdout  # another strategy's code determines nothing here
    assert measured_between(before, small_measured.records()) == set()


def test_changed_lock_measures_again(small_measured):
    lock = small_measured.folder / "envs/modern.txt"
    text = lock.read_text(encoding="utf-8")
    lock.write_text(text.replace("transformers==", "transformers==0.", 1), encoding="utf-8")
    dry = small_measured.snakemake("report", "-n")
    lock.write_text("# a comment changes nothing\n" + text, encoding="utf-8")
    unchanged = small_measured.snakemake("report", "-n")
    lock.write_text(text, encoding="utf-8")
    assert "building the training environment" in dry.stdout
    assert "measuring mixed_precision/mixed" in dry.stdout
    assert "measuring " not in unchanged.stdout


def test_measure_again_keeps_the_old_records_aside(small_measured):
    before = small_measured.records()
    result = small_measured.snakemake("mixed_precision_fp32", measure="again")
    assert result.returncode == 0, result.stdout[-3000:]
    new = measured_between(before, small_measured.records())
    assert {path.split("/")[1] for path in new} == {"fp32"}
    aside = small_measured.records("mixed_precision/fp32/superseded/*/*/*.json")
    assert {r["started"] for r in aside.values()} <= {r["started"] for r in before.values()}
    # the third repeat that an earlier test asked for goes too: old and new are never mixed
    names = {path.split("/")[-1] for path in new} | {"throughput-3.json"}
    assert {path.split("/")[-1] for path in aside} == names
    after = small_measured.records()
    dry = small_measured.snakemake("report", "-n")
    assert "measuring " not in dry.stdout, dry.stdout
    assert measured_between(after, small_measured.records()) == set()


def test_edited_record_changes_both_pages(small_measured):
    import json

    assert small_measured.snakemake("report").returncode == 0
    base = small_measured.folder / "results/cpu/records"
    rows = small_measured.table("mixed_precision")["rows"]
    key = next(run["key"] for run in rows[0]["runs"] if run["purpose"] == "throughput")
    path = base / "mixed_precision/fp32" / key / "throughput-1.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record["metrics"]["samples_per_second"] = 98765.4321
    path.write_text(json.dumps(record), encoding="utf-8")
    old = {language: small_measured.page(language) for language in ("ja", "en")}
    result = small_measured.snakemake("report")
    assert result.returncode == 0, result.stdout[-3000:]
    mean = small_measured.table("mixed_precision")["rows"][0]["samples_per_second"]["mean"]
    for language in ("ja", "en"):
        assert small_measured.page(language) != old[language]
        assert f"{mean:,.0f}"[:4] in small_measured.page(language)


def test_truncated_record_is_measured_again(small_measured):
    assert small_measured.snakemake("report").returncode == 0
    rows = small_measured.table("mixed_precision")["rows"]
    key = next(run["key"] for run in rows[1]["runs"] if run["purpose"] == "throughput")
    path = (
        small_measured.folder / f"results/cpu/records/mixed_precision/mixed/{key}/throughput-2.json"
    )
    before = small_measured.records()
    os.truncate(path, 100)
    result = small_measured.snakemake("report")
    assert result.returncode == 0, result.stdout[-3000:]
    assert measured_between(
        {k: v for k, v in before.items() if not k.endswith(f"{key}/throughput-2.json")},
        small_measured.records(),
    ) == {f"mixed_precision/mixed/{key}/throughput-2.json"}
