"""`python -m trainmark tables`: aggregate records into one JSON and one CSV file per table.

In the CSV no outcome is a word that readers take for a missing value: `outcome` is one of ok, oom,
unsupported, error, timeout or not_measured. Numbers that do not exist are empty cells.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainmark.aggregate import Aggregator
from trainmark.canonical import write_atomic
from trainmark.errors import UserError
from trainmark.freshness import digest_path, inputs_digest
from trainmark.table_model import Row, Table

NOT_MEASURED = "not_measured"
CSV_FIELDS = (
    "table", "row", "strategy", "precision", "tensor_parallel", "pipeline_parallel", "ranks",
    "state", "outcome", "n", "samples_per_second_mean", "samples_per_second_stddev",
    "samples_per_second_median", "relative_spread", "interval_low", "interval_high",
    "peak_memory_mib", "parameters", "mfu", "parity_passed", "parity_max_difference",
    "parity_mixed_passed", "parity_mixed_max_difference", "reason",
)  # fmt: skip


def write(table: Table, folder: Path) -> None:
    write_atomic(folder / f"{table.table}.json", table.model_dump_json(indent=1) + "\n")
    write_atomic(folder / f"{table.table}.csv", to_csv(table))


def read(path: Path) -> Table:
    """Read a table file. Raises UserError when it is none."""
    try:
        return Table.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such table; run `trainmark tables` first") from None
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise UserError(
            f"{path}: is not a table of this version ({where}: {fault['msg']})"
        ) from None


def read_folder(folder: Path) -> list[Table]:
    """All tables of a folder, in page order."""
    return sorted((read(path) for path in folder.glob("*.json")), key=lambda table: table.order)


def to_csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in table.rows:
        writer.writerow(csv_row(table.table, row))
    return text.getvalue()


def csv_row(table: str, row: Row) -> dict[str, Any]:
    spec, rate = row.spec or {}, row.samples_per_second
    low, high = rate.interval if rate and rate.interval else (None, None)
    return {
        "table": table,
        "row": row.id,
        "strategy": row.strategy,
        "precision": row.precision,
        "tensor_parallel": spec.get("tensor_parallel"),
        "pipeline_parallel": spec.get("pipeline_parallel"),
        "ranks": spec.get("ranks"),
        "state": row.state,
        "outcome": row.outcome or NOT_MEASURED,
        "n": row.n,
        "samples_per_second_mean": rate.mean if rate else None,
        "samples_per_second_stddev": rate.stddev if rate else None,
        "samples_per_second_median": rate.median if rate else None,
        "relative_spread": rate.relative_spread if rate else None,
        "interval_low": low,
        "interval_high": high,
        "peak_memory_mib": row.peak_memory_mib,
        "parameters": row.parameters,
        "mfu": row.mfu,
        "parity_passed": row.parity.passed if row.parity else None,
        "parity_max_difference": row.parity.max_difference if row.parity else None,
        "parity_mixed_passed": row.parity_mixed.passed if row.parity_mixed else None,
        "parity_mixed_max_difference": (
            row.parity_mixed.max_difference if row.parity_mixed else None
        ),
        "reason": _plain(row.reason),
    }


def _plain(text: str | None) -> str | None:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text and text[0] in "=+-@\t\r" else text


def print_table(table: Table) -> None:
    from rich.console import Console
    from rich.table import Table as View
    from rich.text import Text

    view = View(title=f"{table.table} on {table.hardware_title}", title_justify="left")
    for name in ("row", "samples/s", "n", "peak MiB", "parity", "outcome"):
        view.add_column(name, justify="left" if name in ("row", "outcome") else "right")
    for row in table.rows:
        view.add_row(*(Text(cell) for cell in _cells(row)))
    Console().print(view)


def _cells(row: Row) -> list[str]:
    rate = row.samples_per_second
    speed = "—"
    if rate:
        error = f"{rate.stddev:.2f}" if rate.stddev is not None else "—"
        speed = f"{rate.mean:,.2f} ± {error}"
    memory = f"{row.peak_memory_mib:,.1f}" if row.peak_memory_mib is not None else "—"
    checks = [p for p in (row.parity, row.parity_mixed) if p]
    parity = "FAILED" if any(p.passed is False for p in checks) else "passed"
    if not checks or any(p.passed is None for p in checks):
        parity = "—"
    outcome: str = row.outcome or "not measured"
    if row.reason:
        outcome = f"{outcome}: {row.reason[:80]}"
    return [row.id, speed, str(row.n), memory, parity, outcome]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="trainmark tables", description=__doc__)
    parser.add_argument("--plans", type=Path, required=True, help="build/plans/<hardware>")
    parser.add_argument("--records", type=Path, required=True, help="results/<hardware>/records")
    parser.add_argument("--out", type=Path, help="folder for <table>.json and .csv")
    parser.add_argument("--table", action="append", help="only this table (may be repeated)")
    parser.add_argument("--print", action="store_true", help="show the tables in the terminal")
    options = parser.parse_args(argv)
    aggregator = Aggregator(options.plans, options.records)
    for name in options.table or aggregator.table_ids:
        table = aggregator.table(name)
        if options.out:
            write(table, options.out)
            digest = inputs_digest(options.plans, options.records, name)
            write_atomic(digest_path(options.out, name), digest + "\n")
        for message in (text for row in table.rows for text in row.invalid):
            print(f"does not count: {message}", file=sys.stderr)
        if options.print:
            print_table(table)
    return 0
