"""`python -m trainmark verdict`: exit 1 when a row failed or trains another model, else 0."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from trainmark.table_model import Row, Table
from trainmark.tables import read_folder


def failures(tables: list[Table], logs: Path | None = None) -> Iterator[str]:
    """One line per row that failed, or whose losses differ from its reference run's."""
    for table in tables:
        for row in table.rows:
            log = logs / f"{table.table}-{row.id}.log" if logs else None
            where = f"; log: {log}" if log and log.is_file() else ""
            if row.outcome in ("error", "timeout"):
                yield f"{table.table}/{row.id}: {row.outcome}: {row.reason}{where}"
            for text in _parity_failures(row):
                yield f"{table.table}/{row.id}: {text}{where}"


def _parity_failures(row: Row) -> Iterator[str]:
    for name, parity in (("parity", row.parity), ("parity_mixed", row.parity_mixed)):
        if parity is None or parity.passed is not False:
            continue
        if parity.max_difference is None:
            yield f"{name} failed: {parity.reason}"
        else:
            yield (
                f"{name} failed: losses differ from {parity.reference} by "
                f"{parity.max_difference:.2g}, more than {parity.tolerance:g}"
            )


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="trainmark verdict", description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="results/<hardware>/tables")
    parser.add_argument("--logs", type=Path, help="default: logs beside the tables' folder")
    options = parser.parse_args(argv)
    logs = options.logs or options.tables.parent / "logs"
    found = list(failures(read_folder(options.tables), logs))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0
