"""`python -m trainmark clean`: records that no row asks for any more are listed, then removed.

These are superseded records, records under keys that no plan wants, and rows that left the
configuration. Without --yes nothing is removed.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from trainmark import records


def unwanted(plans: Path, kept: Path) -> list[Path]:
    """Folders below results/<hardware>/records that the plans do not ask for."""
    wanted = {
        kept / plan["table"] / plan["row"] / run.key
        for plan in records.read_plans(plans)
        for run in records.wanted_runs(plan)
    }
    return sorted(path for path in kept.glob("*/*/*") if path.is_dir() and path not in wanted)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=Path, required=True, help="build/plans/<hardware>")
    parser.add_argument("--records", type=Path, required=True, help="results/<hardware>/records")
    parser.add_argument("--yes", action="store_true", help="remove what is listed")
    arguments = parser.parse_args(argv)
    found = unwanted(arguments.plans, arguments.records)
    for path in found:
        print(f"{path}  ({len(list(path.rglob('*.json')))} records)")
        if arguments.yes:
            shutil.rmtree(path)
    if not found:
        print("nothing to remove: every record belongs to a row")
    elif arguments.yes:
        print(f"removed {len(found)} folders")
    else:
        print("nothing was removed; to remove these, add: --config yes=true")
    return 0
