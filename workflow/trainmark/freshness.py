"""Does a table still say what its plans, records and the code that makes it say? By content alone."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

CODE = ("aggregate", "statistics", "checks", "formulas", "record_model", "table_model", "tables")


def inputs_digest(plans: Path, records: Path, table: str) -> str:
    """A hash of everything that a table is made from, its parity references included."""
    total = hashlib.sha256(_code_digest().encode())
    for plan in sorted((plans / table).glob("*.json")):
        for name in (f"{table}/{plan.stem}", *_references(plan)):
            _add(total, plans / f"{name}.json", plans)
            for path in sorted((records / name).rglob("*.json")):
                if "superseded" not in path.parts:
                    _add(total, path, records)
    return total.hexdigest()


def _references(plan: Path) -> list[str]:
    reference = json.loads(plan.read_text(encoding="utf-8"))["parity_reference"]
    return [f"{reference['table']}/{reference['row']}"] if reference else []


def _add(total: hashlib._Hash, path: Path, root: Path) -> None:
    total.update(str(path.relative_to(root)).encode() + b"\0")
    total.update(hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b"none")


@functools.cache
def _code_digest() -> str:
    here = Path(__file__).parent
    paths = (here / f"{name}.py" for name in CODE)
    return "".join(hashlib.sha256(p.read_bytes()).hexdigest() for p in paths if p.is_file())


def digest_path(tables: Path, table: str) -> Path:
    return tables / f"{table}.inputs.sha256"


def drop_outdated_tables(plans: Path, results: Path) -> None:
    """Remove tables whose inputs have changed, so that Snakemake makes them again."""
    for path in (results / "tables").glob("*.json"):
        try:
            kept = digest_path(path.parent, path.stem).read_text(encoding="utf-8").strip()
        except OSError:
            kept = ""
        if kept != inputs_digest(plans, results / "records", path.stem):
            path.unlink()
