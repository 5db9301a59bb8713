"""From the plan of a row and the records beside it to the row of a table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainmark import records, statistics
from trainmark.canonical import digest
from trainmark.errors import UserError
from trainmark.record_model import Record
from trainmark.records import InvalidRecord, Run
from trainmark.table_model import EnvironmentEntry, Losses, Parity, Row, RunEntry, Table, Throughput

MIB = 2**20
TOLERANCE = {"parity": 1e-5, "parity_mixed": 5e-3}  # max |loss difference|, see FACTS of parity
SEVERITY = ("ok", "unsupported", "oom", "timeout", "error")  # worst last
REFERENCE = "reference"

Plan = dict[str, Any]


@dataclass
class Found:
    """One wanted run: its final record, or the last failed attempt, or neither."""

    run: Run
    spec: dict[str, Any]
    record: Record | None = None
    failed_attempts: int = 0
    file: str | None = None

    @property
    def outcome(self) -> str | None:
        return self.record.outcome if self.record else None

    @property
    def is_final(self) -> bool:
        return self.outcome in records.FINAL


@dataclass
class FoundRow:
    """All wanted runs of a row, and the files that do not count."""

    plan: Plan
    runs: list[Found]
    invalid: list[str] = field(default_factory=list)

    def of(self, purpose: str) -> list[Found]:
        return [found for found in self.runs if found.run.purpose == purpose]

    def ok(self, purpose: str) -> list[Record]:
        return [f.record for f in self.of(purpose) if f.record and f.outcome == "ok"]


class Aggregator:
    """Makes tables from the plans and the records of one hardware profile."""

    def __init__(self, plans: Path, records_folder: Path) -> None:
        self.plans = read_plans(plans)
        self.folder = records_folder
        self._reference_losses: dict[tuple[str, str], list[float] | None] = {}

    @property
    def table_ids(self) -> list[str]:
        """Tables in page order, without the pseudo table of references."""
        return list(dict.fromkeys(p["table"] for p in self.plans if p["table"] != REFERENCE))

    def table(self, name: str) -> Table:
        plans = [plan for plan in self.plans if plan["table"] == name]
        if not plans:
            raise UserError(f"table {name!r} has no plans; known are {', '.join(self.table_ids)}")
        environments = Environments()
        rows = [self._row(self.find(plan), environments) for plan in plans]
        first = plans[0]
        return Table(
            schema_version=1,
            table=name,
            order=first["order"],
            hardware=first["hardware"],
            hardware_title=first.get("hardware_title") or first["hardware"],
            device=first["runs"][0]["spec"]["device"] if first["runs"] else "cpu",
            tried=first.get("tried", True),
            workload=first.get("workload") or first["runs"][0]["spec"]["workload"],
            baseline=first.get("baseline"),
            spread_limit=first.get("spread_limit") or 0.1,
            rows=rows,
            environments=environments.entries(),
        )

    # --- one row ----------------------------------------------------------------------------------

    def find(self, plan: Plan) -> FoundRow:
        """Look up every wanted run of a row."""
        folder = self.folder / plan["table"] / plan["row"]
        found = FoundRow(plan, [])
        failed = _failed_attempts(folder, {run["key"] for run in plan["runs"]})
        for run, spec in _runs(plan, folder):
            entry = Found(run, spec)
            attempts = failed.get((run.key, run.name), [])
            entry.failed_attempts = len(attempts)
            entry.record = self._record(run, folder, found)
            if entry.record:
                entry.file = f"{plan['table']}/{plan['row']}/{run.key}/{run.name}.json"
            else:
                self._last_failure(entry, attempts, found)
            found.runs.append(entry)
        return found

    def _record(self, run: Run, folder: Path, found: FoundRow) -> Record | None:
        plan = found.plan
        try:
            return records.load_run_model(run, folder, plan["table"], plan["row"])
        except InvalidRecord as error:
            found.invalid.append(self._relative(str(error)))
            return None

    def _relative(self, message: str) -> str:
        return message.replace(f"{self.folder}/", "")

    def _last_failure(self, entry: Found, attempts: list[Path], found: FoundRow) -> None:
        plan = found.plan
        for path in reversed(attempts):
            try:
                entry.record = records.load_model(path, plan["table"], plan["row"])
            except InvalidRecord as error:
                found.invalid.append(self._relative(str(error)))
                continue
            entry.file = path.relative_to(self.folder).as_posix()
            return

    def _row(self, found: FoundRow, environments: Environments) -> Row:
        plan = found.plan
        spec = next((f.spec for f in found.of("throughput")), None)
        throughput = _throughput(found)
        memory = found.ok("memory")
        outcome = worst(f.outcome for f in found.runs)
        missing = [f.run.name for f in found.runs if not f.is_final]
        any_valid = any(f.record for f in found.runs)
        stale = [] if any_valid or not missing else self.stale_parts(found)
        parity, parity_mixed = self._parity(found, "parity"), self._parity(found, "parity_mixed")
        bad = next((f.record for f in found.runs if f.outcome == outcome and f.record), None)
        per_rank = _peak_per_rank(memory)
        counted = next((r for r in _full_size(found) if r.parameters), None)
        row = Row(
            id=plan["row"],
            state="measured" if not missing else "stale" if stale else "missing",
            outcome=outcome,
            reason=None,
            n=len(found.ok("throughput")),
            wanted_repeats=len(found.of("throughput")),
            adaptive=bool(plan.get("auto_repeats")),
            samples_per_second=throughput,
            peak_memory_mib=max(per_rank) if per_rank else None,
            peak_memory_per_rank_mib=per_rank,
            memory_method=memory[0].memory.method if memory and memory[0].memory else None,
            calibration_seconds=_calibration(found),
            parameters=counted.parameters.model if counted and counted.parameters else None,
            declared_parameters=spec.get("declared_parameters") if spec else None,
            parameters_per_rank=(
                counted.parameters.per_rank if counted and counted.parameters else None
            ),
            parity=parity,
            parity_mixed=parity_mixed,
            mfu=_mfu(found, spec),
            spread_exceeded=bool(
                throughput
                and throughput.relative_spread is not None
                and throughput.relative_spread > (plan.get("spread_limit") or 0.1)
            ),
            losses=_losses(found),
            cause=bad.cause if bad and outcome != "ok" else None,
            dtypes=next((r.dtypes for r in _full_size(found) if r.dtypes), None),
            strategy=spec["strategy"] if spec else "",
            strategy_title=plan.get("strategy_title"),
            precision=_declared_precision(plan, spec),
            stand_in=plan.get("stand_in"),
            unsupported=plan.get("unsupported"),
            published=bool(plan.get("published", True)),
            spec=spec,
            spec_digest=digest(spec) if spec else None,
            stale_because=stale,
            missing_runs=missing,
            invalid=found.invalid,
            runs=[_entry(f, environments, plan["row"]) for f in found.runs],
        )
        row.reason = reason(row)
        return row

    # --- parity -----------------------------------------------------------------------------------

    def _parity(self, found: FoundRow, purpose: str) -> Parity | None:
        reference = found.plan.get("parity_reference")
        mine = next((r.metrics.losses for r in found.ok(purpose) if r.metrics), None)
        if not reference or mine is None:
            return None
        theirs = self._losses_of(reference["table"], reference["row"])
        result = Parity(
            passed=None,
            max_difference=None,
            tolerance=TOLERANCE[purpose],
            reference=reference["row"],
        )
        if theirs is None:
            result.reason = "its reference is not measured yet"
        elif len(mine) != len(theirs):
            result.passed = False
            result.reason = f"{len(mine)} steps here, {len(theirs)} in the reference"
        else:
            result.max_difference = max(abs(a - b) for a, b in zip(mine, theirs, strict=True))
            result.passed = result.max_difference <= result.tolerance
        return result

    def _losses_of(self, table: str, row: str) -> list[float] | None:
        if (table, row) not in self._reference_losses:
            self._reference_losses[table, row] = self._read_reference(table, row)
        return self._reference_losses[table, row]

    def _read_reference(self, table: str, row: str) -> list[float] | None:
        for plan in self.plans:
            if (plan["table"], plan["row"]) == (table, row):
                found = self.find(plan).ok("parity")
                return found[0].metrics.losses if found and found[0].metrics else None
        return None

    # --- staleness --------------------------------------------------------------------------------

    def stale_parts(self, found: FoundRow) -> list[str]:
        """Which parts of the key keep an older record from counting; [] without older records."""
        plan = found.plan
        folder = self.folder / plan["table"] / plan["row"]
        wanted = {run["purpose"]: run for run in plan["runs"]}
        best: list[str] = []
        for path in sorted(folder.glob("*/*.json")):
            try:
                old = records.load(path, plan["table"], plan["row"])
            except InvalidRecord:
                continue
            new = wanted.get(old["purpose"])
            if new is None or old["key"] == new["key"]:
                continue
            parts = differing_parts(old, new)
            if not best or len(parts) < len(best):
                best = parts
        return best


def differing_parts(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Names of the key parts that differ; for the spec, of its fields: `spec.timed_steps`."""
    parts: list[str] = []
    for name, value in new["key_parts"].items():
        if old["key_parts"].get(name) == value:
            continue
        if name == "spec":
            parts += [f"spec.{path}" for path in _differing_fields(old["spec"], new["spec"])]
        else:
            parts.append(name)
    return parts


def _differing_fields(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for name in sorted({*old, *new}):
        first, second = old.get(name), new.get(name)
        if first == second:
            continue
        if isinstance(first, dict) and isinstance(second, dict):
            names += _differing_fields(first, second, f"{prefix}{name}.")
        else:
            names.append(f"{prefix}{name}")
    return names


class Environments:
    """The distinct environments and machines of a table's records."""

    def __init__(self) -> None:
        self._entries: dict[str, EnvironmentEntry] = {}
        self._ids: dict[tuple[str, str], str] = {}

    def add(self, record: Record, row: str) -> str:
        key = record.environment.model_dump_json(), record.machine.model_dump_json()
        if key not in self._ids:
            self._ids[key] = digest(key, 8)
            self._entries[self._ids[key]] = EnvironmentEntry(
                id=self._ids[key], environment=record.environment, machine=record.machine, rows=[]
            )
        entry = self._entries[self._ids[key]]
        if row not in entry.rows:
            entry.rows.append(row)
        return entry.id

    def entries(self) -> list[EnvironmentEntry]:
        return list(self._entries.values())


def read_plans(folder: Path) -> list[Plan]:
    try:
        return list(records.read_plans(folder))
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: a plan there cannot be read ({error}); remove it") from None


def _failed_attempts(folder: Path, keys: set[str]) -> dict[tuple[str, str], list[Path]]:
    """Failed attempts by key and run, oldest first (their names carry the time)."""
    found: dict[tuple[str, str], list[Path]] = {}
    for key in keys:
        for path in sorted((folder / key / "failed").glob("*.json")):
            found.setdefault((key, path.name.split(".")[0]), []).append(path)
    return found


def worst(outcomes: Iterable[str | None]) -> Any:
    """The worst outcome; None where there is none."""
    known = [outcome for outcome in outcomes if outcome is not None]
    return max(known, key=SEVERITY.index) if known else None


def reason(row: Row) -> str | None:
    """Why a row is not simply measured and right, in one English sentence."""
    if row.outcome in ("oom", "unsupported", "error", "timeout"):
        cause = row.cause
        text = row.unsupported or (cause.message or cause.type if cause else None)
        return " ".join(str(text).split())[:300] if text else row.outcome
    if row.state == "stale":
        return f"only older records exist; different: {', '.join(row.stale_because)}"
    failed = [
        (name, parity)
        for name, parity in (("parity", row.parity), ("parity_mixed", row.parity_mixed))
        if parity and parity.passed is False
    ]
    for name, parity in failed:
        if parity.reason:
            return f"{name}: {parity.reason}"
        return (
            f"{name}: losses differ by {parity.max_difference:.2g}, more than {parity.tolerance:g}"
        )
    if row.state == "missing" and row.outcome is not None:
        return f"incomplete, without {', '.join(row.missing_runs)}"
    return None


def _runs(plan: Plan, folder: Path) -> list[tuple[Run, dict[str, Any]]]:
    """Wanted runs with their specs; with `repeats: auto` also the repeats that were added."""
    runs = [
        (run, raw["spec"]) for run, raw in zip(records.wanted_runs(plan), plan["runs"], strict=True)
    ]
    if plan.get("auto_repeats"):
        last, spec = max(
            ((r, s) for r, s in runs if r.purpose == "throughput"), key=lambda pair: pair[0].repeat
        )
        for repeat in range(last.repeat + 1, plan["auto_repeats"]["maximum"] + 1):
            extra = Run("throughput", repeat, last.key)
            if extra.path(folder).is_file():
                runs.append((extra, spec))
    return runs


def _full_size(found: FoundRow) -> list[Record]:
    return [*found.ok("throughput"), *found.ok("memory")]


def _declared_precision(plan: Plan, spec: dict[str, Any] | None) -> Any:
    if any(run["purpose"] == "parity_mixed" for run in plan["runs"]):
        return "mixed"
    return spec["precision"] if spec else "fp32"


def _throughput(found: FoundRow) -> Throughput | None:
    values = [
        r.metrics.samples_per_second
        for r in found.ok("throughput")
        if r.metrics and r.metrics.samples_per_second
    ]
    summary = statistics.summarise(values)
    if summary is None:
        return None
    fields = asdict(summary)
    del fields["n"]
    return Throughput(values=values, **fields)


def _peak_per_rank(memory: Sequence[Record]) -> list[float] | None:
    """The largest peak of each rank over the memory runs, in MiB."""
    peaks = [record.memory.peak_allocated_bytes for record in memory if record.memory]
    if not peaks:
        return None
    return [max(ranks) / MIB for ranks in zip(*peaks, strict=False)]


def _losses(found: FoundRow) -> Losses | None:
    for record in found.ok("throughput"):
        if record.metrics and record.metrics.losses:
            losses = record.metrics.losses
            return Losses(
                first=losses[0],
                last=losses[-1],
                smallest=min(losses),
                steps=len(losses),
                unigram=_baseline_loss(record),
            )
    return None


def _baseline_loss(record: Record) -> float | None:
    """Loss of knowing only frequencies; BERT's pre-training loss adds the next-sentence coin flip."""
    unigram = record.data.unigram_loss if record.data else None
    if unigram is not None and record.spec["workload"] == "bert-pretraining":
        return unigram + math.log(2)
    return unigram


def _mfu(found: FoundRow, spec: dict[str, Any] | None) -> float | None:
    """Model FLOPs utilisation: achieved model FLOPs per second over the peak of all ranks."""
    peaks = found.plan.get("peak_tflops") or {}
    if not spec or not peaks:
        return None
    dtype = "float32" if spec["precision"] == "fp32" else spec["mixed_dtype"]
    peak = peaks.get(dtype) or peaks.get(spec["precision"])
    rates = [
        r.metrics.flops_per_second
        for r in found.ok("throughput")
        if r.metrics and r.metrics.flops_per_second
    ]
    if not peak or not rates:
        return None
    return float(sum(rates) / len(rates) / (peak * 1e12 * spec["ranks"]))


def _calibration(found: FoundRow) -> float | None:
    loads = [record.load for record in found.ok("throughput") if record.load]
    seconds = [value for load in loads for value in load.calibration_seconds or ()]
    return sum(seconds) / len(seconds) if seconds else None


def _entry(found: Found, environments: Environments, row: str) -> RunEntry:
    record = found.record
    entry = RunEntry(
        purpose=found.run.purpose,
        repeat=found.run.repeat,
        key=found.run.key,
        outcome=record.outcome if record else None,
        file=found.file,
        failed_attempts=found.failed_attempts,
    )
    if record is None:
        return entry
    metrics = record.metrics
    if metrics:
        entry.samples_per_second = metrics.samples_per_second
        entry.wall_seconds = metrics.wall_seconds
        entry.timed_steps = len(metrics.step_seconds)
        if found.run.purpose == "throughput":
            entry.outlier_steps = statistics.outliers(metrics.step_seconds)
            entry.drift = statistics.drift(metrics.step_seconds)
    if record.memory:
        entry.peak_memory_mib = max(record.memory.peak_allocated_bytes) / MIB
    entry.duration_seconds = record.duration_seconds
    entry.load, entry.foreign_load_limit = record.load, record.foreign_load_limit
    entry.foreign_cpu_percent_before = record.foreign_cpu_percent_before
    entry.started, entry.finished = record.started, record.finished
    entry.git_commit, entry.command = record.git_commit, record.command
    entry.environment = environments.add(record, row)
    return entry
