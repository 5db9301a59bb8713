"""`python -m trainmark verdict`: exit 1 when a row failed or trains another model, else 0."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from trainmark import records
from trainmark.table_model import Row, Table
from trainmark.tables import read_folder


def failures(
    tables: list[Table], logs: Path | None = None, complete: bool = False
) -> Iterator[str]:
    """One line per row that failed, or whose losses differ from its reference run's.

    `complete`: everything was to be measured, so what is still missing has failed too.
    """
    for table in tables:
        for row in table.rows:
            log = logs / f"{table.table}-{row.id}.log" if logs else None
            where = f"; log: {log}" if log and log.is_file() else ""
            if row.outcome in records.FAILED:
                yield f"{table.table}/{row.id}: {row.outcome}: {row.reason}{where}"
            elif complete and row.state != "measured":
                yield f"{table.table}/{row.id}: {row.reason}{where}"
            for text in _parity_failures(row, complete):
                yield f"{table.table}/{row.id}: {text}{where}"


def _parity_failures(row: Row, complete: bool) -> Iterator[str]:
    for name, parity in (("parity", row.parity), ("parity_mixed", row.parity_mixed)):
        if complete and parity and parity.passed is None:
            yield f"{name} was not checked: {parity.reason}"
        if parity is None or parity.passed is not False:
            continue
        if parity.max_difference is None:
            yield f"{name} failed: {parity.reason}"
        else:
            yield (
                f"{name} failed: losses differ from {parity.reference} by "
                f"{parity.max_difference:.2g}, more than {parity.tolerance:g}"
            )


def row_failure(summary: Path, logs: Path) -> str | None:
    """One line on a row by itself, from its summary: which of its runs failed."""
    row = json.loads(summary.read_text(encoding="utf-8"))
    bad = [f"{name} {outcome}" for name, outcome in records.failed_runs(row).items()]
    log = logs / f"{row['table']}-{row['row']}.log"
    return f"{row['table']}/{row['row']}: {', '.join(bad)}; log: {log}" if bad else None


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="trainmark verdict", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--tables", type=Path, help="results/<hardware>/tables")
    what.add_argument("--row", type=Path, help="a row's summary: results/<hardware>/rows/…")
    parser.add_argument("--table", help="of --tables, this one alone")
    parser.add_argument("--logs", type=Path, help="default: logs in results/<hardware>")
    parser.add_argument(
        "--complete", action="store_true", help="fail also for what is not measured"
    )
    options = parser.parse_args(argv)
    results = options.row.parents[2] if options.row else options.tables.parent
    logs = options.logs or results / "logs"
    if options.row:
        told = row_failure(options.row, logs)
        found = [told] if told else []
    else:
        tables = [t for t in read_folder(options.tables) if options.table in (None, t.table)]
        found = list(failures(tables, logs, options.complete))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0
