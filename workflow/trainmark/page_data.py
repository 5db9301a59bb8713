"""From tables and published figures to the data of the whole page: everything but words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainmark import findings, notes
from trainmark.environments import differences, merged
from trainmark.page_model import (
    Comparison,
    DraftReason,
    MachinePage,
    Page,
    PageTable,
)
from trainmark.published_model import Published, PublishedRow
from trainmark.table_model import Row, Table

SIZE_FIELDS = ("layers", "hidden", "heads", "sequence_length")


def build(
    machines: list[tuple[str, list[Table]]],
    published: Published | None,
    languages: list[str],
    draft: bool = False,
    draft_reasons: Iterable[DraftReason] = (),
) -> Page:
    """The page of one or more record sets, each a name and its tables in page order."""
    found_notes = notes.check(published) if published else []
    return Page(
        schema_version=1,
        draft=draft,
        draft_reasons=list(draft_reasons),
        languages=languages,
        published=published,
        machines=[_machine(name, tables, published, found_notes) for name, tables in machines],
    )


def _machine(
    name: str, tables: list[Table], published: Published | None, found_notes: list[notes.Note]
) -> MachinePage:
    runs = [run for table in tables for row in table.rows for run in row.runs if run.outcome]
    rows = [(f"{table.table}/{row.id}", row) for table in tables for row in table.rows]
    device = tables[0].device if tables else "cpu"
    times = sorted(run.started for run in runs if run.started)
    ends = sorted(run.finished for run in runs if run.finished)
    return MachinePage(
        id=name,
        hardware=tables[0].hardware if tables else name,
        title=tables[0].hardware_title if tables else name,
        device=device,
        tried=all(table.tried for table in tables),
        ranks=sorted({row.spec["ranks"] for _, row in rows if row.spec}),
        scaled_down=device == "cpu",
        tables=[
            _page_table(table, tables[:index], published, found_notes)
            for index, table in enumerate(tables)
        ],
        environments=merged(tables),
        differences=list(differences(tables)),
        started=times[0] if times else None,
        finished=ends[-1] if ends else None,
        busy_seconds=sum(run.duration_seconds or 0 for run in runs),
        runs=len(runs),
        commits=sorted({run.git_commit for run in runs if run.git_commit}),
        load_before=_range(run.load.before[0] for run in runs if run.load and run.load.before),
        foreign_cpu_percent=_range(
            run.load.foreign_cpu_percent
            for run in runs
            if run.load and run.load.foreign_cpu_percent is not None
        ),
        calibration_seconds=_range(
            seconds
            for run in runs
            for seconds in (run.load.calibration_seconds or () if run.load else ())
        ),
        missing=[where for where, row in rows if row.state != "measured" and not _failed(row)],
        failed=[where for where, row in rows if _failed(row)],
    )


def _failed(row: Row) -> bool:
    wrong = any(p.passed is False for p in (row.parity, row.parity_mixed) if p)
    return wrong or row.outcome in ("error", "timeout")


def _range(values: Iterable[float]) -> tuple[float, float] | None:
    known = sorted(values)
    return (known[0], known[-1]) if known else None


def _page_table(
    table: Table, earlier: list[Table], published: Published | None, found: list[notes.Note]
) -> PageTable:
    base = findings.baseline(table)
    figures = published.tables.get(table.table) if published else None
    same = bool(published) and same_hardware(table, published)
    result = PageTable(
        table=table,
        baseline=base.id if base else None,
        findings=findings.find(table, earlier),
        comparisons=[],
        comparison_baseline=None,
        same_hardware=same,
        notes=[note for note in found if note.table == table.table],
    )
    if figures is None:
        return result
    anchor = _comparison_baseline(table, figures.rows)
    result.comparison_baseline = anchor
    result.comparisons = [
        _compare(row, table, figures.rows, anchor, same)
        for row in table.rows
        if row.published and row.id in figures.rows
    ]
    return result


def _comparison_baseline(table: Table, figures: dict[str, PublishedRow]) -> str | None:
    """The table's baseline, or else the first row with a published throughput."""
    usable = [
        row.id
        for row in table.rows
        if row.id in figures and figures[row.id].samples_per_second is not None
    ]
    if table.baseline in usable:
        return table.baseline
    return next(iter(usable), None)


def _compare(
    row: Row, table: Table, figures: dict[str, PublishedRow], anchor: str | None, same: bool
) -> Comparison:
    theirs = figures[row.id]
    base = figures.get(anchor or "")
    our_base = next((r for r in table.rows if r.id == anchor), None)
    mean = row.samples_per_second.mean if row.samples_per_second else None
    our_mean = (
        our_base.samples_per_second.mean if our_base and our_base.samples_per_second else None
    )
    comparison = Comparison(
        row=row.id,
        our_throughput=_over(mean, our_mean),
        published_throughput=_over(
            theirs.samples_per_second, base.samples_per_second if base else None
        ),
        our_memory=_over(row.peak_memory_mib, our_base.peak_memory_mib if our_base else None),
        published_memory=_over(theirs.peak_memory_mib, base.peak_memory_mib if base else None),
    )
    if same and mean is not None and theirs.samples_per_second:
        comparison.deviation = mean / theirs.samples_per_second - 1
        if theirs.plus_minus:
            comparison.deviations = (mean - theirs.samples_per_second) / theirs.plus_minus
    if same and row.peak_memory_mib and theirs.peak_memory_mib:
        comparison.memory_deviation = row.peak_memory_mib / theirs.peak_memory_mib - 1
    return comparison


def _over(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def same_hardware(table: Table, published: Published | None) -> bool:
    """Were the records made on the published hardware, with the published sizes?"""
    figures = published.tables.get(table.table) if published else None
    if published is None or figures is None or table.device != "cuda" or not table.environments:
        return False
    wanted = published.environment
    model = wanted.gpu.removeprefix("Tesla ").lower()
    for entry in table.environments:
        devices = entry.machine.devices
        if len(devices) != wanted.gpus or not all(model in name.lower() for name in devices):
            return False
    size = figures.settings
    for row in table.rows:
        spec: dict[str, Any] = row.spec or {}
        if not row.published or not spec:
            continue
        if any(spec["model"].get(name) != getattr(size, name) for name in SIZE_FIELDS):
            return False
        if (spec["micro_batch"], spec["global_batch"]) != (size.micro_batch, size.global_batch):
            return False
    return True
