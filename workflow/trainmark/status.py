"""`python -m trainmark status`: every row, and what the next report would run."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmark import estimate
from trainmark.aggregate import REFERENCE, Aggregator, FoundRow
from trainmark.formatting import moment
from trainmark.records import FAILED


def word(found: FoundRow, stale: list[str]) -> tuple[str, str]:
    """State and what there is to say about it."""
    outcomes = [f.outcome for f in found.runs]
    failed = next((f for f in found.runs if f.outcome in FAILED), None)
    if failed and failed.record:
        cause = failed.record.cause
        message = (cause.message or cause.type or "") if cause else ""
        return "failed", f"{failed.outcome}: {' '.join(message.split())[:60]}"
    if all(f.is_final for f in found.runs):
        bad = [str(outcome) for outcome in outcomes if outcome not in ("ok", None)]
        return "measured", bad[0] if bad else ""
    if stale:
        return "stale", f"changed: {', '.join(stale)}"
    missing = sum(1 for f in found.runs if not f.is_final)
    return "missing", f"{missing} of {len(found.runs)} runs"


def last_time(found: FoundRow) -> str:
    times = [f.record.finished or f.record.started for f in found.runs if f.record]
    return moment(max(times)) if times else "—"


def rows(aggregator: Aggregator) -> list[tuple[FoundRow, tuple[str, str]]]:
    result = []
    for plan in aggregator.plans:
        found = aggregator.find(plan)
        stale = [] if any(f.record for f in found.runs) else aggregator.stale_parts(found)
        result.append((found, word(found, stale)))
    return result


def outlook(aggregator: Aggregator, found: list[FoundRow]) -> str:
    """What the next report would run."""
    missing = [
        (row.plan["table"], row.plan["row"], [f.run for f in row.runs if not f.is_final])
        for row in found
        if not row.plan.get("unsupported")
    ]
    count = sum(len(runs) for _, _, runs in missing)
    if not count:
        return "The next report measures nothing."
    places = sum(1 for _, _, runs in missing if runs)
    seconds = estimate.seconds_left(missing, aggregator.folder)
    return (
        f"The next report measures {count} runs of {places} rows, "
        f"roughly {estimate.duration(seconds)}."
    )


def show(aggregator: Aggregator) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    view = Table(box=None, pad_edge=False)
    for name in ("row", "state", "n", "last run", ""):
        view.add_column(name, justify="right" if name == "n" else "left")
    colours = {"measured": "green", "stale": "yellow", "missing": "", "failed": "red"}
    found = rows(aggregator)
    for row, (state, detail) in found:
        plan = row.plan
        shown = len(row.ok("parity" if plan["table"] == REFERENCE else "throughput"))
        view.add_row(
            f"{plan['table']}/{plan['row']}",
            Text(state, style=colours[state]),
            str(shown),
            last_time(row),
            Text(detail),
        )
    console = Console()
    console.print(view)
    for row, _ in found:
        for message in row.invalid:
            console.print(Text(f"does not count: {message}", style="yellow"))
    console.print(f"\n{outlook(aggregator, [row for row, _ in found])}")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="trainmark status", description=__doc__)
    parser.add_argument("--plans", type=Path, required=True, help="build/plans/<hardware>")
    parser.add_argument("--records", type=Path, required=True, help="results/<hardware>/records")
    options = parser.parse_args(argv)
    show(Aggregator(options.plans, options.records))
    return 0
