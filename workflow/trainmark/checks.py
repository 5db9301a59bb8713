"""The strict checks on numbers: what keeps a set of tables from being published."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainmark.environments import differences
from trainmark.table_model import Row, Table

PRETRAINING = ("bert-pretraining", "gpt-pretraining")
LEARNING_STEPS = 20  # a shorter run need only fall
NOT_ENVIRONMENT = (
    "git commit",
)  # what runs is in the key; the commit only says where it came from


def faults(tables: list[Table]) -> list[str]:
    """Every reason against publishing, one short line each."""
    found = [
        f"{table.table}/{row.id}: {fault}"
        for table in tables
        for row in table.rows
        for look in ROW_CHECKS
        for fault in look(table, row)
    ]
    return found + list(_environment(tables))


def complete(table: Table, row: Row) -> Iterator[str]:
    if row.outcome in ("error", "timeout"):
        yield f"{row.outcome}: {row.reason}"
    elif row.state == "stale":
        yield f"only older records ({', '.join(row.stale_because)} changed)"
    elif row.state == "missing":
        yield f"not measured: {', '.join(row.missing_runs)}"


def valid(table: Table, row: Row) -> Iterator[str]:
    for message in row.invalid:
        yield f"does not count: {message}"


def same_training(table: Table, row: Row) -> Iterator[str]:
    for name, parity in (("parity", row.parity), ("parity_mixed", row.parity_mixed)):
        if parity is None or parity.passed:
            continue
        difference = f"{parity.max_difference:.2g}" if parity.max_difference is not None else ""
        why = parity.reason or f"losses differ by {difference}, more than {parity.tolerance:g}"
        yield f"{name}: {why}"


def utilisation(table: Table, row: Row) -> Iterator[str]:
    if row.mfu is not None and not 0 < row.mfu <= 1:
        yield f"MFU {row.mfu:.3g} is not between 0 and 1"


def losses(table: Table, row: Row) -> Iterator[str]:
    """Losses fall; pre-training of some length ends below what frequencies alone reach."""
    if row.losses is None:
        return
    if row.losses.last >= row.losses.first:
        yield f"the loss does not fall ({row.losses.first:.3f} to {row.losses.last:.3f})"
    unigram = row.losses.unigram if row.losses.steps >= LEARNING_STEPS else None
    if table.workload in PRETRAINING and unigram is not None and row.losses.last >= unigram:
        yield f"the loss ends at {row.losses.last:.3f}, not below the unigram model's {unigram:.3f}"


def parameters(table: Table, row: Row) -> Iterator[str]:
    declared = row.declared_parameters
    if row.parameters is not None and declared is not None and row.parameters != declared:
        yield f"{row.parameters:,} parameters counted, {declared:,} declared"


def spread(table: Table, row: Row) -> Iterator[str]:
    rate = row.samples_per_second
    if row.spread_exceeded and rate and rate.relative_spread is not None:
        yield f"the runs spread by {rate.relative_spread:.1%}, more than {table.spread_limit:.0%}"


ROW_CHECKS: tuple[Callable[[Table, Row], Iterator[str]], ...] = (
    complete,
    valid,
    same_training,
    utilisation,
    losses,
    parameters,
    spread,
)


def _environment(tables: list[Table]) -> Iterator[str]:
    for difference in differences(tables):
        if difference.name not in NOT_ENVIRONMENT:
            parts = [
                f"{value} ({len(rows)} rows, {rows[0]} …)"
                for value, rows in difference.values.items()
            ]
            yield f"records differ in {difference.name}: {'; '.join(parts)}"
