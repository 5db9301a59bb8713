"""Roughly how long what is missing will take: from earlier records, else from a guess per purpose."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from trainmark.records import Run

if TYPE_CHECKING:
    from trainmark.experiments import RowPlan

GUESS_SECONDS = {"throughput": 12.0, "memory": 8.0, "parity": 6.0, "parity_mixed": 6.0}
LAUNCH_SECONDS = 12.0  # importing the frameworks, once per row
BYTES_PER_RUN = 20_000


def seconds_left(missing: Iterable[tuple[str, str, list[Run]]], records: Path) -> float:
    """Estimate for [(table, row, missing runs)]; earlier records of the same row count most."""
    known = _durations(records)
    total = 0.0
    for table, row, runs in missing:
        if runs:
            total += LAUNCH_SECONDS
        for run in runs:
            same_row = known.get((table, row, run.purpose))
            other = [
                s
                for (_, _, purpose), found in known.items()
                if purpose == run.purpose
                for s in found
            ]
            total += median(same_row or other or [GUESS_SECONDS[run.purpose]])
    return total


def _durations(records: Path) -> dict[tuple[str, str, str], list[float]]:
    known: dict[tuple[str, str, str], list[float]] = {}
    for path in records.glob("*/*/*/*.json"):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            key = (record["table"], record["row"], record["purpose"])
            known.setdefault(key, []).append(float(record["duration_seconds"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return known


def duration(seconds: float) -> str:
    """`45 s`, `7 min`, `3 h 20 min`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def announcement(
    rows: list[RowPlan], hardware: str, records: Path, environment_exists: bool
) -> str:
    """What a measurement of these rows will cost, told before it starts."""
    shown = [row for row in rows if row.table != "reference"]
    open_rows = [row for row in shown if row.missing and not row.plan["unsupported"]]
    unsupported = [f"{row.table}/{row.row}" for row in shown if row.plan["unsupported"]]
    note = f" ({', '.join(unsupported)}: unsupported on this hardware)" if unsupported else ""
    missing = [(row.table, row.row, row.missing) for row in rows if not row.plan["unsupported"]]
    runs = sum(len(found) for _, _, found in missing)
    if not runs:
        return f"trainmark: nothing to measure, all {len(shown)} rows on {hardware} have their runs{note}"
    seconds = seconds_left(missing, records)
    setup = "" if environment_exists else ", after building the environment (some minutes, once)"
    return (
        f"trainmark: {len(open_rows)} of {len(shown)} rows on {hardware} are to be measured: {runs} runs, "
        f"roughly {duration(seconds)} and {max(1, runs * BYTES_PER_RUN // 10**6)} MB{setup}{note}; "
        "only what the target needs is run"
    )
