"""Records: one JSON file per run, complete or absent."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any, Dict, List, Optional

from . import count
from .outcome import empty_cause, outcome_of

SCHEMA_VERSION = 1
FAILED = ("error", "timeout")  # attempts, not results: kept apart, measured again


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def timestamp(moment: datetime.datetime) -> str:
    """ISO 8601, UTC, milliseconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def run_name(run: Dict[str, Any]) -> str:
    return f"{run['purpose']}-{run['repeat']}"


def path_of(out: Path, run: Dict[str, Any], outcome: str, moment: datetime.datetime) -> Path:
    folder = out / run["key"]
    if outcome in FAILED:
        suffix = moment.strftime("%Y%m%dT%H%M%S.%f") + "Z"
        return folder / "failed" / f"{run_name(run)}.{suffix}.json"
    return folder / f"{run_name(run)}.json"


def write(path: Path, record: Dict[str, Any]) -> None:
    """Appear whole or not at all, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1, ensure_ascii=False, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def measurements(spec: Dict[str, Any], reports: List[Dict[str, Any]]) -> Dict[str, Any]:
    """The record's fields from the reports of all ranks, in rank order."""
    first = reports[0]
    wall = max(report["wall_seconds"] for report in reports)
    rate = spec["global_batch"] * spec["timed_steps"] / wall
    losses = first["losses"]
    if not all(_finite(loss) for loss in losses):
        losses = [loss if _finite(loss) else None for loss in losses]
    return {
        "metrics": {
            "step_seconds": [max(s) for s in zip(*(r["step_seconds"] for r in reports))],
            "wall_seconds": wall,
            "samples_per_second": rate,
            "losses": losses,
            "flops_per_second": rate * count.flops_per_sample(spec),
        },
        "parameters": {
            "model": first["parameters"]["model"],
            "per_rank": [report["parameters"]["local"] for report in reports],
        },
        "dtypes": first["dtypes"],
        "memory": _memory(reports),
    }


def _finite(value: Optional[float]) -> bool:
    return value is not None and value - value == 0


def _memory(reports: List[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    parts = [report["memory"] for report in reports]
    if not all(parts):
        return None
    reserved = [part["peak_reserved_bytes"] for part in parts]
    return {
        "method": parts[0]["method"],
        "peak_allocated_bytes": [part["peak_allocated_bytes"] for part in parts],
        "steady_bytes": [part["steady_bytes"] for part in parts],
        "peak_reserved_bytes": reserved if all(r is not None for r in reserved) else None,
    }


def compose(todo, run, cause, reports, facts) -> Dict[str, Any]:
    """The whole record. `facts`: data, environment, machine, load, started, finished, seconds."""
    nothing = {"metrics": None, "parameters": None, "dtypes": None, "memory": None}
    measured = measurements(run["spec"], reports) if cause is None else nothing
    if cause is None and None in measured["metrics"]["losses"]:
        step = measured["metrics"]["losses"].index(None)
        cause = empty_cause("NonFiniteLoss", f"the loss of step {step} is not a number")
    outcome = outcome_of(cause)
    context = dict(todo.get("context") or {})
    return {
        **context,
        "schema_version": SCHEMA_VERSION,
        "table": todo["table"],
        "row": todo["row"],
        "hardware": todo["hardware"],
        "purpose": run["purpose"],
        "repeat": run["repeat"],
        "key": run["key"],
        "key_parts": run["key_parts"],
        "spec": run["spec"],
        "outcome": outcome,
        "cause": cause,
        **measured,
        "data": facts["data"],
        "environment": facts["environment"],
        "machine": facts["machine"],
        "load": facts["load"],
        "started": timestamp(facts["started"]),
        "finished": timestamp(facts["finished"]),
        "duration_seconds": round(facts["seconds"], 3),
        "git_commit": context.get("git_commit"),
        "command": todo.get("commands", {}).get(run_name(run)),
    }
