"""Measure one row: run what is missing, one fresh process group per run, and sum the row up.

The row's environment is imported once per launch. A row ends well whatever its outcome is; only
what stops any measurement (no environment, no disk) is an error.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from trainmark import estimate, hostlock, load, preflight, records
from trainmark.canonical import write_json
from trainmark.errors import UserError
from trainmark.experiments import git_commit
from trainmark.progress import Progress, tail
from trainmark.records import Record, Run
from trainmark.worker import (
    Interrupted,
    Worker,
    install_signal_handlers,
    pipeline_id,
    stop_with_pipeline,
    venv_command,
)

MINIMUM_FREE_BYTES = 50 * 2**20
IMPORT_LIMIT_SECONDS = 600  # silence allowed while frameworks are imported on a busy machine


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Measure one row of a table: every wanted run that has no record yet.",
        epilog="Normally run by Snakemake. `--record FILE` repeats the run that a record describes "
        "and prints the result beside the old one, without touching the records.",
    )
    parser.add_argument("--plan", type=Path, help="the row's plan (build/plans/...)")
    parser.add_argument("--results", type=Path, help="results/<hardware>")
    parser.add_argument("--environment", type=Path, help="environment.json or image.json")
    parser.add_argument("--log", type=Path, help="log of the frameworks' output")
    parser.add_argument("--again", action="store_true", help="set old records aside and repeat")
    parser.add_argument("--retries", type=int, default=1, help="more tries after an error")
    parser.add_argument("--load-limit", type=float, default=25.0, help="foreign CPU use, in %%")
    parser.add_argument("--load-wait", type=float, default=15.0, help="seconds to wait for quiet")
    parser.add_argument("--allow-mismatch", action="store_true", help="go on after preflight")
    parser.add_argument("--record", type=Path, help="repeat the run of this record, by hand")
    return parser


def main(argv: list[str]) -> int:
    arguments = parser().parse_args(argv)
    install_signal_handlers()
    stop_with_pipeline()
    try:
        if arguments.record:
            return repeat_record(arguments.record)
        required = (arguments.plan, arguments.results, arguments.environment, arguments.log)
        if None in required:
            raise UserError("--plan, --results, --environment and --log belong together")
        measure(arguments)
        return 0
    except Interrupted as stop:
        print(f"\ntrainmark measure: stopped by {stop}; finished runs are kept", file=sys.stderr)
        return 128 + stop.number
    except OSError as error:
        where = error.filename or f"{arguments.results} or {arguments.log}"
        raise UserError(
            f"{where}: {error.strerror}; the row is not finished. "
            "Free the disk or make the folder writable, then run the same command again"
        ) from None


@dataclass
class Launch:
    """Everything that one launch needs to know."""

    plan: dict[str, Any]
    environment: dict[str, Any]
    folder: Path  # results/<hardware>/records/<table>/<row>
    root: Path
    log: IO[str]
    log_path: Path
    progress: Progress
    context: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.plan['table']}/{self.plan['row']}"


def measure(arguments: argparse.Namespace) -> None:
    plan = json.loads(arguments.plan.read_text(encoding="utf-8"))
    folder = arguments.results / "records" / plan["table"] / plan["row"]
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.again:
        set_aside(plan, folder)
    arguments.log.parent.mkdir(parents=True, exist_ok=True)
    with arguments.log.open("a", encoding="utf-8") as log:
        launch = _prepare(arguments, plan, folder, log)
        missing = records.missing_runs(plan, folder)
        if missing and plan["unsupported"]:
            _record_unsupported(launch, missing)
        elif missing or _next_repeat(launch):
            _check_disk(folder)
            with hostlock.host_lock(launch.name, launch.progress.say):
                _run_with_retries(launch, arguments)
        _summarise(launch, arguments.results)


def _prepare(
    arguments: argparse.Namespace, plan: dict[str, Any], folder: Path, log: IO[str]
) -> Launch:
    environment = json.loads(arguments.environment.read_text(encoding="utf-8"))
    seconds = _seconds_left(arguments.plan.parent.parent, arguments.results / "records")
    root = Path.cwd()
    return Launch(
        plan=plan,
        environment=environment,
        folder=folder,
        root=root,
        log=log,
        log_path=arguments.log,
        progress=Progress(f"{plan['table']}/{plan['row']}", log, seconds),
        context={"git_commit": git_commit(root)},
    )


def _seconds_left(plans: Path, kept: Path) -> float:
    missing = [
        (plan["table"], plan["row"], records.missing_runs(plan, kept / plan["table"] / plan["row"]))
        for plan in records.read_plans(plans)
    ]
    return estimate.seconds_left(missing, kept)


def _check_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < MINIMUM_FREE_BYTES:
        raise UserError(
            f"{folder}: only {free / 2**20:.0f} MiB are free; a measurement wants at least "
            f"{MINIMUM_FREE_BYTES // 2**20} MiB. Free some space and run the same command again"
        )


def set_aside(plan: dict[str, Any], folder: Path) -> None:
    """Keep superseded records, under superseded/<time>/, where they no longer count."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    for key in {run.key for run in records.wanted_runs(plan)}:
        if (folder / key).is_dir():
            target = folder / "superseded" / stamp / key
            target.parent.mkdir(parents=True, exist_ok=True)
            (folder / key).rename(target)


def remove_half_files(folder: Path) -> None:
    """What writers that were killed have left; the machine is ours now, so nobody is writing."""
    for pattern in (".*.part", ".*.json.*"):
        for path in folder.rglob(pattern):
            path.unlink()


def set_invalid_aside(launch: Launch) -> None:
    """Keep files that do not count, and say why, before the run that they stand for is repeated."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    for run in records.missing_runs(launch.plan, launch.folder):
        path = run.path(launch.folder)
        if not path.exists():
            continue
        target = launch.folder / "superseded" / stamp / run.key / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
        reason = records.why_invalid(target, launch.plan["table"], launch.plan["row"])
        launch.progress.say(f"{launch.name}: {run.name} is measured again: {reason}")


def _changed_data(launch: Launch) -> set[str]:
    """The keys of missing runs whose data was changed after it was prepared; these fail.

    Without its manifest the data is prepared again by the next invocation.
    """
    from trainmark import data

    started, changed = datetime.now(UTC), set()
    wanted = {(run["purpose"], run["repeat"]): run["data"] for run in launch.plan["runs"]}
    for run in records.missing_runs(launch.plan, launch.folder):
        folder = launch.root / wanted[run.purpose, run.repeat]
        try:
            data.verify(folder)
        except UserError as error:
            changed.add(run.key)
            cause = {
                "type": "DataChanged",
                "message": f"{error}; the next run does so",
                "traceback": None,
            }
            _record_lost(launch, run, launch.folder, started, cause)
    for run in launch.plan["runs"]:
        if run["key"] in changed:
            (launch.root / run["data"] / "manifest.json").unlink(missing_ok=True)
    return changed


def _preflight(launch: Launch, allowed: bool) -> None:
    """Is this machine, now, what the profile declares? Told once per pipeline, in full."""
    name = launch.plan["hardware"]
    told = launch.root / "build/preflight" / f"{name}-refused-{pipeline_id()}"
    if told.exists():
        raise UserError(f"{launch.name}: not measured, for the reasons given above")
    hardware = preflight.read_hardware(launch.root / f"config/hardware/{name}.yaml")
    found = preflight.inspect(hardware, launch.folder)
    if found.mismatches and not allowed:
        write_json(told, preflight.report(name, found, allowed=False))
        raise UserError(preflight.refusal(f"config/hardware/{name}.yaml", found))
    found.machine["host"].pop("disk_path")  # a record names no place on one machine
    launch.context["preflight"] = preflight.report(name, found, allowed=allowed)


def _run_with_retries(launch: Launch, arguments: argparse.Namespace) -> None:
    _preflight(launch, arguments.allow_mismatch)
    percent = load.wait_for_quiet(
        arguments.load_limit,
        arguments.load_wait,
        launch.root / f"build/busy-{pipeline_id()}",
        launch.progress.say,
    )
    launch.context["foreign_cpu_percent_before"] = percent
    launch.context["foreign_load_limit"] = arguments.load_limit
    remove_half_files(launch.folder)
    set_invalid_aside(launch)
    changed = _changed_data(launch)
    for attempt in range(1 + arguments.retries):
        missing = records.missing_runs(launch.plan, launch.folder)
        missing = [run for run in missing if run.key not in changed]
        if not missing and not _next_repeat(launch):
            break
        if attempt and missing:
            launch.progress.say(f"{launch.name}: trying again ({attempt} of {arguments.retries})")
        run_worker(launch, missing, launch.folder, _more_repeats(launch))


def _more_repeats(launch: Launch) -> list[Run]:
    """repeats: auto: the throughput runs that may be added, up to the declared bound."""
    auto = launch.plan["auto_repeats"]
    if auto is None:
        return []
    wanted = records.wanted_runs(launch.plan, launch.folder)
    last = max((run for run in wanted if run.purpose == "throughput"), key=lambda run: run.repeat)
    numbers = range(last.repeat + 1, auto["maximum"] + 1)
    return [Run("throughput", number, last.key) for number in numbers]


def _next_repeat(launch: Launch) -> Run | None:
    """repeats: auto: one more throughput run while the interval of the mean is too wide."""
    from trainmark.statistics import summarise

    auto = launch.plan["auto_repeats"]
    if auto is None or records.missing_runs(launch.plan, launch.folder):
        return None
    done = [
        (run, records.load_run(run, launch.folder, launch.plan["table"], launch.plan["row"]))
        for run in records.wanted_runs(launch.plan, launch.folder)
        if run.purpose == "throughput"
    ]
    values = [r["metrics"]["samples_per_second"] for _, r in done if r and r["outcome"] == "ok"]
    last = max((run for run, _ in done), key=lambda run: run.repeat)
    summary = summarise(values)
    if summary is None or summary.interval is None or last.repeat >= auto["maximum"]:
        return None
    low, high = summary.interval
    if (high - low) / 2 <= auto["interval_limit"] * summary.mean:
        return None
    return Run("throughput", last.repeat + 1, last.key)


# --- one worker -----------------------------------------------------------------------------------


class Enough(Exception):
    """The runs that `repeats: auto` could still add are not needed."""


def run_worker(launch: Launch, runs: list[Run], out: Path, more: Sequence[Run] = ()) -> None:
    """Start the worker for `runs`, then for as many of `more` as the row's interval asks for.

    Runs that it left without a record get one that says so.
    """
    started = datetime.now(UTC)
    failed_before = {path for run in runs for path in run.failed_paths(out)}
    todo = _todo(launch, [*runs, *more])
    silence = max(IMPORT_LIMIT_SECONDS, 2 * launch.plan["time_limit_seconds"])
    worker = _start(launch, todo, out)
    waiting = {run.name for run in runs}

    def on_event(event: dict[str, Any]) -> None:
        launch.progress.event(event)
        if event.get("event") == "run_finished":
            waiting.discard(event["run"])
            if more and not waiting and not _next_repeat(launch):
                raise Enough

    status = 0
    try:
        status = worker.events(silence, on_event)
    except Enough:
        pass
    finally:
        worker.close()
    for run in runs:
        if not run.path(out).is_file() and failed_before.issuperset(run.failed_paths(out)):
            _record_lost(launch, run, out, started, _lost_cause(launch, worker, status))


def _todo(launch: Launch, runs: list[Run]) -> dict[str, Any]:
    listed = {(run["purpose"], run["repeat"]): run for run in launch.plan["runs"]}
    chosen = []
    for run in runs:
        template = listed.get((run.purpose, run.repeat)) or listed[(run.purpose, 1)]
        data = str((launch.root / template["data"]).resolve())
        chosen.append({**template, "repeat": run.repeat, "data": data})
    environment = launch.environment
    return {
        "schema_version": 1,
        "table": launch.plan["table"],
        "row": launch.plan["row"],
        "hardware": launch.plan["hardware"],
        "environment": {
            "name": launch.plan["environment"]["name"],
            "hash": launch.plan["environment"]["hash"],
            "image_digest": environment.get("digest"),
        },
        "launcher": launch.plan["launcher"],
        "time_limit_seconds": launch.plan["time_limit_seconds"],
        "context": launch.context,
        "commands": {run.name: command_of(run, launch.folder) for run in runs},
        "runs": chosen,
    }


def command_of(run: Run, folder: Path) -> str:
    """The command that repeats a run by hand, from the root of the checkout."""
    python = "PYTHONPATH=workflow .venv/bin/python"
    return f"{python} -m trainmark measure --record {shlex.quote(str(run.path(folder)))}"


def _start(launch: Launch, todo: dict[str, Any], out: Path) -> Worker:
    out.mkdir(parents=True, exist_ok=True)
    workflow = launch.root / "workflow"
    if launch.plan["environment"]["name"] == "cu102":
        from trainmark import container

        return container.start_worker(launch.environment, todo, out.resolve(), workflow, launch.log)

    def command(folder: Path) -> list[str]:
        write_json(folder / "todo.json", todo)
        arguments = ["--todo", str(folder / "todo.json"), "--out", str(out.resolve())]
        threads = todo["runs"][0]["spec"]["threads_per_rank"]
        return venv_command(launch.environment["python"], workflow, arguments, threads, folder)

    return Worker(command, launch.log)


def _lost_cause(launch: Launch, worker: Worker, status: int) -> dict[str, Any]:
    """The worker itself ended before a run had a record (import failed, killed, no memory)."""
    how = (
        f"was ended by {signal.Signals(-status).name}"
        if status < 0
        else f"ended with status {status}"
    )
    if worker.silent_seconds is not None:
        how = f"said nothing for {worker.silent_seconds:g} s and was ended"
    return {
        "type": "WorkerLost",
        "message": f"the worker {how} before the run was finished",
        "traceback": tail(launch.log_path, 30),
        "rank": None,
        "phase": "launch",
        "step": None,
        "micro_batch_index": None,
        "exit_code": status if status >= 0 else None,
        "signal": signal.Signals(-status).name if status < 0 else None,
    }


def _record_lost(
    launch: Launch, run: Run, out: Path, started: datetime, cause: dict[str, Any]
) -> None:
    """A failed attempt that the worker could not write down itself."""
    record = _empty_record(launch, run, "error", cause, started)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    write_json(out / run.key / "failed" / f"{run.name}.{stamp}.json", record)
    launch.progress.say(f"{launch.name}: {run.name} error: {cause['message']}")


def _record_unsupported(launch: Launch, runs: list[Run]) -> None:
    """A layout that cannot exist on this machine is recorded with the reason, without a launch."""
    started = datetime.now(UTC)
    cause = {"type": "Unsupported", "message": launch.plan["unsupported"], "traceback": None}
    for run in runs:
        record = _empty_record(launch, run, "unsupported", cause, started)
        write_json(run.path(launch.folder), record)
    launch.progress.say(f"{launch.name}: unsupported: {launch.plan['unsupported']}")


def _empty_record(
    launch: Launch, run: Run, outcome: str, cause: dict[str, Any], started: datetime
) -> Record:
    finished = datetime.now(UTC)
    todo = _todo(launch, [run])
    chosen = todo["runs"][0]
    return {
        "schema_version": records.SCHEMA_VERSION,
        **{name: todo[name] for name in ("table", "row", "hardware")},
        **{name: chosen[name] for name in ("purpose", "repeat", "key", "key_parts", "spec")},
        "outcome": outcome,
        "cause": cause,
        "metrics": None,
        "parameters": None,
        "dtypes": None,
        "memory": None,
        "data": None,
        "environment": {**todo["environment"], "python": None, "packages": {}},
        "machine": {},
        "load": None,
        "started": started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "finished": finished.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "duration_seconds": (finished - started).total_seconds(),
        "git_commit": launch.context["git_commit"],
        "command": todo["commands"][run.name],
    }


# --- afterwards -----------------------------------------------------------------------------------


def _summarise(launch: Launch, results: Path) -> None:
    """Write the row's summary, a file derived from its records."""
    plan = launch.plan
    summary = records.summary(plan, launch.folder)
    write_json(results / "rows" / plan["table"] / f"{plan['row']}.json", summary)
    failed = sorted(set(records.failed_runs(summary).values()))
    if failed:
        launch.progress.say(f"{launch.name}: {', '.join(failed)}; see {launch.log_path}")


def repeat_record(path: Path) -> int:
    """Repeat the run of one record by hand; the new record goes to build/repeated/."""
    old = records.load(path)
    root = Path.cwd()
    plan_path = root / "build/plans" / old["hardware"] / old["table"] / f"{old['row']}.json"
    if not plan_path.is_file():
        raise UserError(f"{path}: its row has no plan here; run `snakemake -n report` once")
    plan = json.loads(plan_path.read_text(encoding="utf-8"))
    name, hash_ = old["environment"]["name"], old["environment"]["hash"]
    stamp = root / (
        f"build/image/{hash_}/image.json"
        if name == "cu102"
        else f"build/envs/{name}-{hash_}/environment.json"
    )
    if not stamp.is_file():
        raise UserError(f"{stamp}: the environment of this record is not built here any more")
    plan["runs"] = [
        {
            **{key: old[key] for key in ("purpose", "repeat", "key", "key_parts", "spec")},
            "data": f"build/data/{old['key_parts']['data']}",
        }
    ]
    plan["auto_repeats"] = None
    run = Run(old["purpose"], old["repeat"], old["key"])
    out = root / "build/repeated" / old["table"] / old["row"]
    out.mkdir(parents=True, exist_ok=True)
    run.path(out).unlink(missing_ok=True)
    with (out / "worker.log").open("a", encoding="utf-8") as log:
        environment = json.loads(stamp.read_text(encoding="utf-8"))
        progress = Progress(f"{old['table']}/{old['row']}", log, old["duration_seconds"])
        context = {"git_commit": git_commit(root)}
        launch = Launch(plan, environment, out, root, log, out / "worker.log", progress, context)
        with hostlock.host_lock(str(path), progress.say):
            run_worker(launch, [run], out)
    new = records.load_run(run, out, old["table"], old["row"]) or records.last_failure(run, out)
    assert new is not None
    _print_beside(old, new, run.path(out))
    return 0 if new["outcome"] == old["outcome"] else 1


def _print_beside(old: Record, new: Record, path: Path) -> None:
    for title, record in (("recorded", old), ("repeated", new)):
        metrics = record["metrics"] or {}
        speed = metrics.get("samples_per_second")
        losses = metrics.get("losses") or [None]
        print(f"{title}: {record['outcome']}, {speed} samples/s, final loss {losses[-1]}")
    print(f"the new record is {path}")
