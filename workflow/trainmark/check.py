"""`python -m trainmark check`: exit 1 with a list of everything that keeps a page from release.

Strict: complete, one environment, right gradients, plausible numbers, spread under the limit.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trainmark import checks
from trainmark.page import tables_of


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="trainmark check", description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="results/<hardware>/tables")
    parser.add_argument("--plans", type=Path, help="build/plans/<hardware>: what is declared")
    parser.add_argument("--records", type=Path, help="results/<hardware>/records")
    options = parser.parse_args(argv)
    tables = tables_of(options.tables, options.plans, options.records)
    found = checks.faults(tables)
    for line in found:
        print(line, file=sys.stderr)
    rows = sum(len(table.rows) for table in tables)
    if found:
        print(f"not fit for release: {len(found)} faults in {rows} rows", file=sys.stderr)
        return 1
    print(f"fit for release: {rows} rows in {len(tables)} tables")
    return 0
