"""Record sets: the records of one hardware profile with their plans and checksums, kept for good.

records/<name>/set.json        what it is
records/<name>/plans/…         the plan of every row
records/<name>/records/…       the record of every wanted run
records/<name>/SHA256SUMS      checksums of all of these (sha256sum -c reads them)
records/<name>.tar.xz          the same folder as one file
"""

from __future__ import annotations

import io
import json
import lzma
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainmark.aggregate import REFERENCE, Aggregator
from trainmark.canonical import file_sha256
from trainmark.errors import UserError
from trainmark.table_model import Table

SCHEMA_VERSION = 1
MANIFEST, SUMS = "set.json", "SHA256SUMS"


@dataclass(frozen=True)
class Fault:
    """A file of a set that is not as it was archived: missing, tampered or foreign."""

    kind: Literal["missing", "tampered", "foreign"]
    file: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.file}"


def write(name: str, plans: Path, records: Path, out: Path) -> Path:
    """Make the set `name` below `out` from what is measured now; returns its folder."""
    folder = out / name
    if folder.exists():
        raise UserError(f"{folder}: exists already; choose another name or remove it")
    aggregator = Aggregator(plans, records)
    files = list(_wanted_files(aggregator))
    if not files:
        raise UserError(f"{records}: holds no record that the plans ask for; nothing to archive")
    beside = out / f".{name}.part"
    shutil.rmtree(beside, ignore_errors=True)
    for source in sorted(plans.glob("*/*.json")):
        _copy(source, beside / "plans" / source.relative_to(plans))
    for name_in in files:
        _copy(records / name_in, beside / "records" / name_in)
    manifest = json.dumps(_manifest(name, aggregator, len(files)), indent=1, sort_keys=True)
    (beside / MANIFEST).write_text(manifest + "\n", encoding="utf-8")
    (beside / SUMS).write_text(
        "".join(f"{file_sha256(beside / file)}  {file}\n" for file in _files(beside)),
        encoding="utf-8",
    )
    beside.rename(folder)
    _pack(folder, out / f"{name}.tar.xz")
    return folder


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _wanted_files(aggregator: Aggregator) -> Iterator[str]:
    """Final records of wanted runs, and of a failed run its last attempt."""
    for plan in aggregator.plans:
        for found in aggregator.find(plan).runs:
            if found.file:
                yield found.file


def _manifest(name: str, aggregator: Aggregator, count: int) -> dict[str, Any]:
    found = [f for plan in aggregator.plans for f in aggregator.find(plan).runs if f.record]
    ends = sorted(f.record.finished for f in found if f.record and f.record.finished)
    environments = {
        f.record.environment.model_dump_json(): f.record.environment.model_dump()
        for f in found
        if f.record
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "hardware": aggregator.plans[0]["hardware"],
        "measured_until": ends[-1] if ends else None,
        "records": count,
        "rows": sum(1 for plan in aggregator.plans if plan["table"] != REFERENCE),
        "environments": list(environments.values()),
    }


def _files(folder: Path) -> list[str]:
    """All files of a set but the list of checksums, as POSIX paths below it."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.name != SUMS
    )


def _pack(folder: Path, target: Path) -> None:
    """The same bytes for the same content: sorted names, no times, no owners."""
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as archive:
        for name in [SUMS, *_files(folder)]:
            entry = tarfile.TarInfo(f"{folder.name}/{name}")
            data = (folder / name).read_bytes()
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    target.write_bytes(lzma.compress(text.getvalue(), preset=6))


# --- reading --------------------------------------------------------------------------------------


def faults(folder: Path) -> list[Fault]:
    """Files that are missing, changed or not part of the set."""
    sums = _sums(folder)
    found = []
    present = set(_files(folder))
    for name, expected in sums.items():
        if name not in present:
            found.append(Fault("missing", name))
        elif file_sha256(folder / name) != expected:
            found.append(Fault("tampered", name))
    return found + [Fault("foreign", name) for name in sorted(present - set(sums))]


def _sums(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{folder}: is no record set (it has no {SUMS})") from None
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines) if name}


def name_of(folder: Path) -> str:
    try:
        return str(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return folder.name


def load(folder: Path, draft: bool = False) -> tuple[list[Table], list[Fault]]:
    """The tables of a set. Faults are refused with a list, unless it is for a draft."""
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such record set")
    found = faults(folder)
    if found and not draft:
        listed = "\n  ".join(str(fault) for fault in found[:40])
        more = f"\n  and {len(found) - 40} more" if len(found) > 40 else ""
        raise UserError(
            f"{folder}: {len(found)} files are not as archived (draft=true renders anyway):"
            f"\n  {listed}{more}"
        )
    aggregator = Aggregator(folder / "plans", folder / "records")
    return [aggregator.table(name) for name in aggregator.table_ids], found
