"""`python -m trainmark archive`: keep the records as a record set (and as one file)."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from trainmark import recordset
from trainmark.errors import UserError


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="trainmark archive", description=__doc__)
    parser.add_argument("--name", required=True, help="name of the set, such as cpu-2026-11")
    parser.add_argument("--plans", type=Path, required=True, help="build/plans/<hardware>")
    parser.add_argument("--records", type=Path, required=True, help="results/<hardware>/records")
    parser.add_argument("--out", type=Path, default=Path("records"), help="folder of the sets")
    options = parser.parse_args(argv)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", options.name):
        raise UserError(
            f"archive: found the name {options.name!r}; give one with --config name=…, of letters, "
            "digits, dots, dashes and underscores"
        )
    folder = recordset.write(options.name, options.plans, options.records, options.out)
    packed = folder.with_name(f"{folder.name}.tar.xz")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder} ({size / 1e6:.1f} MB), {packed} ({packed.stat().st_size / 1e3:.0f} kB)")
    return 0
