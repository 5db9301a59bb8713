"""What a table shows, as facts: comparisons with intervals, the fastest row, the frontier, …"""

from __future__ import annotations

from collections.abc import Iterator

from trainmark import statistics
from trainmark.page_model import (
    Change,
    Failed,
    Fastest,
    Finding,
    Frontier,
    NotMeasured,
    OutOfMemory,
    SameSpec,
    Smallest,
    Throughput,
    Unmeasured,
)
from trainmark.table_model import Row, Table

FEW = 4  # up to this many rows each is compared with the baseline in a sentence of its own


def find(table: Table, earlier: list[Table]) -> list[Finding]:
    """All findings of a table, in the order in which they are told."""
    base = baseline(table)
    found: list[Finding] = []
    if len(table.rows) <= FEW:
        found += _each_against(table)
    found += [*_fastest(table, base), *_smallest(table, base), *_frontier(table)]
    found += [*_out_of_memory(table), *_failed(table), *_not_measured(table)]
    return found + list(_same_spec(table, earlier))


def baseline(table: Table) -> Row | None:
    """The declared baseline where it is measured, or else the first measured row."""
    usable = {row.id: row for row in table.rows if row.samples_per_second}
    return usable.get(table.baseline or "") or next(iter(usable.values()), None)


def change(row: Row, over: Row) -> Change | None:
    """Throughput of `row` against `over`; None where one of them has none."""
    if row.samples_per_second is None or over.samples_per_second is None:
        return None
    machine = _machine_change(row, over)
    ratio = statistics.ratio(
        row.samples_per_second.values, over.samples_per_second.values, systematic=machine or 0.0
    )
    if ratio is None:
        return None
    result = Change(
        row=row.id, over=over.id, change=ratio.change, n=ratio.n, machine_change=machine
    )
    if ratio.low is None or ratio.high is None:
        result.why_no_interval = "single" if min(ratio.n) < 2 else "constant"
    else:
        result.low, result.high, result.method = ratio.low, ratio.high, statistics.RATIO_METHOD
    return result


def _machine_change(row: Row, over: Row) -> float | None:
    """How much faster the machine itself was while `row` was measured than for `over`."""
    if not row.calibration_seconds or not over.calibration_seconds:
        return None
    return over.calibration_seconds / row.calibration_seconds - 1


def is_clear(found: Change) -> bool | None:
    """Does the interval exclude no change? None where there is no interval."""
    if found.low is None or found.high is None:
        return None
    return found.low > 0 or found.high < 0


def memory_change(row: Row, over: Row | None) -> float | None:
    if over is None or row is over or not row.peak_memory_mib or not over.peak_memory_mib:
        return None
    return row.peak_memory_mib / over.peak_memory_mib - 1


def _each_against(table: Table) -> Iterator[Finding]:
    declared = next((row for row in table.rows if row.id == table.baseline), table.rows[0])
    for row in table.rows:
        if row is declared:
            continue
        found = change(row, declared)
        if found:
            yield Throughput(change=found, memory_change=memory_change(row, declared))
            continue
        lacking = [r.id for r in (row, declared) if r.samples_per_second is None]
        if any(r.state == "measured" for r in (row, declared)):
            yield Unmeasured(row=row.id, over=declared.id, lacking=lacking)


def _fastest(table: Table, base: Row | None) -> Iterator[Finding]:
    rows = [row for row in table.rows if row.samples_per_second]
    if len(rows) < 2:
        return
    rows.sort(key=lambda row: -row.samples_per_second.mean if row.samples_per_second else 0)
    first, second = rows[:2]
    if first.samples_per_second is None:
        return
    yield Fastest(
        row=first.id,
        samples_per_second=first.samples_per_second.mean,
        against_baseline=change(first, base) if base and base is not first else None,
        runner_up=change(first, second),
        memory_change=memory_change(first, base),
    )


def _smallest(table: Table, base: Row | None) -> Iterator[Finding]:
    rows = [row for row in table.rows if row.peak_memory_mib]
    if len(rows) < 2:
        return
    row = min(rows, key=lambda row: row.peak_memory_mib or 0)
    other = base if base is not None and base is not row else None
    yield Smallest(
        row=row.id,
        peak_memory_mib=row.peak_memory_mib or 0,
        baseline=other.id if other else None,
        memory_change=memory_change(row, other),
        against_baseline=change(row, other) if other else None,
    )


def frontier_rows(table: Table) -> list[Row]:
    """Rows on the frontier of throughput and memory, smallest memory first."""
    rows = [row for row in table.rows if row.samples_per_second and row.peak_memory_mib]
    points = [
        (row.samples_per_second.mean, row.peak_memory_mib)
        for row in rows
        if row.samples_per_second and row.peak_memory_mib
    ]
    return [rows[index] for index in statistics.pareto_frontier(points)]


def _frontier(table: Table) -> Iterator[Finding]:
    count = sum(1 for row in table.rows if row.samples_per_second and row.peak_memory_mib)
    if count > 2:
        yield Frontier(rows=[row.id for row in frontier_rows(table)], of=count)


def _out_of_memory(table: Table) -> Iterator[Finding]:
    rows = [row for row in table.rows if row.outcome == "oom"]
    if rows:
        limits = {(row.spec or {}).get("memory_limit_mib") for row in rows}
        limit = limits.pop() if len(limits) == 1 else None
        yield OutOfMemory(rows=[row.id for row in rows], limit_mib=limit)


def _failed(table: Table) -> Iterator[Finding]:
    rows = [row.id for row in table.rows if row.outcome in ("error", "timeout")]
    if rows:
        yield Failed(rows=rows)


def _not_measured(table: Table) -> Iterator[Finding]:
    rows = [row.id for row in table.rows if row.state != "measured" and row.outcome is None]
    if rows:
        yield NotMeasured(rows=rows, of=len(table.rows))


def _same_spec(table: Table, earlier: list[Table]) -> Iterator[Finding]:
    for row in table.rows:
        for other_table in earlier:
            for other in other_table.rows:
                if row.spec_digest is None or row.spec_digest != other.spec_digest:
                    continue
                if found := change(row, other):
                    yield SameSpec(other_table=other_table.table, other_row=other.id, change=found)
