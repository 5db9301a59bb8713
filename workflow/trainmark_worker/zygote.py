"""The worker's main process: imports once, then runs one fresh process group per run."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Optional

from . import data, launch, limits, machine, rank, records
from .watch import Watch


class Stopped(BaseException):
    """SIGTERM or SIGINT: end every rank at once."""

    def __init__(self, number: int):
        self.number = number


class Zygote:
    def __init__(self, todo: Dict[str, Any], out: Path, events):
        self.todo, self.out, self.events = todo, out, events
        self.device = todo["runs"][0]["spec"]["device"]

    def work(self) -> int:
        """Measure every run; the process's exit status."""
        signal.signal(signal.SIGTERM, _stop)
        signal.signal(signal.SIGINT, _stop)
        limits.die_with_parent(signal.SIGTERM)
        limits.adopt_orphans()
        scratch = Path(tempfile.mkdtemp(prefix="trainmark-"))
        try:
            self._import()
            complete = True
            for number, run in enumerate(self.todo["runs"]):
                complete &= self._attempt(run, scratch / str(number))
            return 0 if complete else 1
        except Stopped as stopped:
            return 128 + stopped.number
        finally:
            launch.end_all_children()
            shutil.rmtree(scratch, ignore_errors=True)

    def _import(self) -> None:
        started = time.monotonic()
        self.environment = machine.environment(self.todo["environment"])
        self.machine = machine.machine(self.device)
        if self.todo["launcher"] == "fork":
            rank.prepare(self.todo["runs"])
            gc.collect()
            gc.freeze()  # a collection in a rank would copy every page that it touches
        self.say({"event": "imported", "seconds": round(time.monotonic() - started, 3)})

    def _attempt(self, run: Dict[str, Any], folder: Path) -> bool:
        """One run; whether it left a record."""
        try:
            self._measure(dict(run, time_limit_seconds=self.todo["time_limit_seconds"]), folder)
            return True
        except OSError as error:  # no room, no permission: not a property of the run
            print(f"trainmark_worker: {records.run_name(run)}: {error}", file=sys.stderr)
            return False
        finally:
            launch.end_all_children()
            shutil.rmtree(folder, ignore_errors=True)

    def _measure(self, run: Dict[str, Any], folder: Path) -> None:
        spec, name = run["spec"], records.run_name(run)
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps(run))
        steps = spec["warmup_steps"] + spec["timed_steps"]
        self.say({"event": "run_started", "run": name, "steps": steps})
        facts = {
            "data": data_facts(run["data"]),
            "environment": self.environment,
            "machine": self.machine,
            "started": records.now(),
        }
        begin = time.monotonic()
        load = machine.Load(self.device, timed=spec["purpose"] == "throughput")
        oom_kills = limits.kernel_oom_kills()
        group = launch.LAUNCHERS[self.todo["launcher"]](run, folder)
        watch = Watch(
            group,
            run,
            folder,
            on_event=lambda event: self._progress(name, event),
            kernel_oom=lambda: limits.kernel_oom_kills() > oom_kills,
        )
        watch.follow()
        seconds = time.monotonic() - begin  # the clock on the wall may be set meanwhile
        facts.update(finished=records.now(), seconds=seconds, load=load.stop())
        self._keep(run, watch, facts)

    def _progress(self, name: str, event: Dict[str, Any]) -> None:
        if event["event"] == "step":
            self.say({"event": "step", "run": name, **event})

    def _keep(self, run: Dict[str, Any], watch: Watch, facts: Dict[str, Any]) -> None:
        cause, reports = watch.cause(), watch.reports()
        ordered = [reports[number] for number in sorted(reports)]
        record = records.compose(self.todo, run, cause, ordered, facts)
        path = records.path_of(self.out, run, record["outcome"], facts["finished"])
        records.write(path, record)
        self._show_logs(watch, 1 if cause is None else run["spec"]["ranks"])
        self.say(
            {
                "event": "run_finished",
                "run": records.run_name(run),
                "outcome": record["outcome"],
                "samples_per_second": (record["metrics"] or {}).get("samples_per_second"),
                "path": str(path),
            }
        )

    def _show_logs(self, watch: Watch, ranks: int) -> None:
        """What the ranks printed goes to this process's log."""
        for number in range(ranks):
            text = watch.log(number).strip()
            if text:
                print(f"--- rank {number}\n{text}", file=sys.stderr, flush=True)

    def say(self, event: Dict[str, Any]) -> None:
        print(json.dumps(event), file=self.events, flush=True)


def data_facts(folder: str) -> Optional[Dict[str, Any]]:
    return data.manifest(folder)


def _stop(number, _frame):
    raise Stopped(number)


def own_stdout():
    """The original stdout, for events only; whatever prints later goes to stderr."""
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return events
