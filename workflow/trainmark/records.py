"""Reading records: one JSON file per run, valid or with the reason why it does not count."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainmark.canonical import digest

if TYPE_CHECKING:
    from trainmark.record_model import Record as Model

SCHEMA_VERSION = 1
FINAL = ("ok", "oom", "unsupported")  # outcomes that the next invocation does not repeat
FAILED = ("error", "timeout")
REQUIRED = ("table", "row", "purpose", "repeat", "key", "key_parts", "spec", "outcome", "started")

Record = dict[str, Any]


class InvalidRecord(ValueError):
    """A file among the records that is no record of its row; the message says why."""


@dataclass(frozen=True)
class Run:
    """One wanted run of a row, as its plan lists it."""

    purpose: str
    repeat: int
    key: str

    @property
    def name(self) -> str:
        return f"{self.purpose}-{self.repeat}"

    def path(self, row_folder: Path) -> Path:
        return row_folder / self.key / f"{self.name}.json"

    def failed_paths(self, row_folder: Path) -> list[Path]:
        """The failed attempts at this run, oldest first (their names carry the time)."""
        return sorted((row_folder / self.key / "failed").glob(f"{self.name}.*.json"))


def wanted_runs(plan: dict[str, Any], row_folder: Path | None = None) -> list[Run]:
    """The runs that a plan lists; with adaptive repeats also the added ones that exist."""
    runs = [Run(run["purpose"], run["repeat"], run["key"]) for run in plan["runs"]]
    if plan.get("auto_repeats") and row_folder is not None:
        runs.extend(_added_repeats(runs, row_folder, plan["auto_repeats"]["maximum"]))
    return runs


def _added_repeats(runs: list[Run], row_folder: Path, maximum: int) -> Iterator[Run]:
    last = max((run for run in runs if run.purpose == "throughput"), key=lambda run: run.repeat)
    for repeat in range(last.repeat + 1, maximum + 1):
        run = Run("throughput", repeat, last.key)
        if run.path(row_folder).is_file():
            yield run


def key_of(key_parts: dict[str, Any]) -> str:
    """A record's key: the hash of the hashes of everything that determines it."""
    return digest(key_parts)


def load(path: Path, table: str | None = None, row: str | None = None) -> Record:
    """Read a record and check that it is whole, of this schema, of this row and under its own key.

    Raises InvalidRecord with one sentence. Missing files raise FileNotFoundError.
    """
    return _load(path, table, row)[0]


def load_model(path: Path, table: str, row: str) -> Model:
    """As `load`, with types."""
    return _load(path, table, row)[1]


def _load(path: Path, table: str | None, row: str | None) -> tuple[Record, Model]:
    try:
        record = _parse(path.read_bytes())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidRecord(f"{path}: not complete JSON ({error})") from error
    except _NotANumber as error:
        raise InvalidRecord(f"{path}: contains {error}, which is no measurement") from error
    except (OSError, RecursionError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise InvalidRecord(f"{path}: cannot be read ({error})") from error
    if not isinstance(record, dict):
        raise InvalidRecord(f"{path}: holds {type(record).__name__}, not a record")
    return record, _check(record, path, table, row)


def _parse(content: bytes) -> Any:
    from pydantic_core import from_json  # several times as fast, but its messages are poor

    try:
        return from_json(content, allow_inf_nan=False)
    except ValueError:
        return json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)


def why_invalid(path: Path, table: str, row: str) -> str:
    """One sentence on a file that does not count as a run's record."""
    try:
        outcome = load(path, table, row)["outcome"]
    except InvalidRecord as error:
        return str(error)
    return f"{path}: lies where another record belongs, or ended with {outcome}"


class _NotANumber(ValueError):
    pass


def _refuse_constant(name: str) -> None:
    raise _NotANumber(name)


def _check(record: Record, path: Path, table: str | None, row: str | None) -> Model:
    version = record.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InvalidRecord(f"{path}: has schema version {version!r}, not {SCHEMA_VERSION}")
    if missing := [name for name in REQUIRED if name not in record]:
        raise InvalidRecord(f"{path}: lacks {', '.join(missing)}")
    if table is not None and (record["table"], record["row"]) != (table, row):
        raise InvalidRecord(f"{path}: is a record of {record['table']}/{record['row']}")
    model = _model(record, path)
    parts = record["key_parts"]
    if digest(record["spec"]) != parts.get("spec") or key_of(parts) != record["key"]:
        raise InvalidRecord(f"{path}: its spec does not match its key; was it edited by hand?")
    if record["outcome"] not in FINAL + FAILED:
        raise InvalidRecord(f"{path}: has the unknown outcome {record['outcome']!r}")
    if record["outcome"] == "ok":
        _check_metrics(record, path)
    return model


def _model(record: Record, path: Path) -> Model:
    """The types of all known fields: what the tables read must be there and be a number."""
    from pydantic import ValidationError

    from trainmark.record_model import Record as Model

    try:
        return Model.model_validate(record)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise InvalidRecord(f"{path}: {where}: {fault['msg'].lower()}") from None


def _check_metrics(record: Record, path: Path) -> None:
    metrics = record.get("metrics") or {}
    losses = metrics.get("losses") or []
    if not losses or not all(isinstance(x, (int, float)) and math.isfinite(x) for x in losses):
        raise InvalidRecord(f"{path}: an ok run without finite losses")
    if record["purpose"] == "throughput" and not (metrics.get("samples_per_second") or 0) > 0:
        raise InvalidRecord(f"{path}: an ok throughput run without samples per second")
    if record["purpose"] == "memory" and not record.get("memory"):
        raise InvalidRecord(f"{path}: an ok memory run without a peak")


def load_run(run: Run, row_folder: Path, table: str, row: str) -> Record | None:
    """The record of a wanted run, or None when there is none; raises InvalidRecord."""
    found = _load_run(run, row_folder, table, row)
    return found[0] if found else None


def load_run_model(run: Run, row_folder: Path, table: str, row: str) -> Model | None:
    """As `load_run`, with types."""
    found = _load_run(run, row_folder, table, row)
    return found[1] if found else None


def _load_run(run: Run, row_folder: Path, table: str, row: str) -> tuple[Record, Model] | None:
    path = run.path(row_folder)
    try:
        record, model = _load(path, table, row)
    except FileNotFoundError:
        return None
    if (record["purpose"], record["repeat"], record["key"]) != (run.purpose, run.repeat, run.key):
        raise InvalidRecord(f"{path}: is the record of {record['purpose']}-{record['repeat']}")
    return record, model


def missing_runs(plan: dict[str, Any], row_folder: Path) -> list[Run]:
    """The wanted runs that have no valid final record yet."""
    return [run for run in wanted_runs(plan) if not _is_done(run, row_folder, plan)]


def _is_done(run: Run, row_folder: Path, plan: dict[str, Any]) -> bool:
    try:
        record = load_run(run, row_folder, plan["table"], plan["row"])
    except InvalidRecord:
        return False
    return record is not None and record["outcome"] in FINAL


def summary_keys(plan: dict[str, Any]) -> dict[str, str]:
    """{run name: key} of a plan: what a row's summary was made from."""
    return {run.name: run.key for run in wanted_runs(plan)}


def summary(plan: dict[str, Any], row_folder: Path) -> dict[str, Any]:
    """A row's summary: the outcome of every run, failed attempts and missing ones included."""
    outcomes = {}
    for run in wanted_runs(plan, row_folder):
        try:
            record = load_run(run, row_folder, plan["table"], plan["row"])
        except InvalidRecord:
            record = None
        record = record or last_failure(run, row_folder)
        outcomes[run.name] = record["outcome"] if record else "missing"
    return {
        "schema_version": 1,
        "table": plan["table"],
        "row": plan["row"],
        "keys": summary_keys(plan),
        "outcomes": outcomes,
    }


def failed_runs(summary: dict[str, Any]) -> dict[str, str]:
    """{run name: outcome} of a summary's runs that left no result."""
    outcomes = summary["outcomes"].items()
    return {name: outcome for name, outcome in outcomes if outcome not in FINAL}


def last_failure(run: Run, row_folder: Path) -> Record | None:
    """The newest readable failed attempt at a run."""
    for path in reversed(run.failed_paths(row_folder)):
        try:
            return load(path)
        except InvalidRecord:
            continue
    return None


def read_plans(folder: Path) -> Iterator[dict[str, Any]]:
    """All plans below build/plans/<hardware>, in the declared order of tables and rows."""
    plans = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*/*.json")]
    yield from sorted(plans, key=lambda plan: plan["order"])
