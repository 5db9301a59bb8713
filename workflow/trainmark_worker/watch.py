"""Wait for the ranks of a run: pass on their progress, stop what hangs, find what went wrong."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from .outcome import cause_of_exit, empty_cause, first_cause

POLL_SECONDS = 0.05  # each look costs the ranks a little of their CPU
PEER_GRACE_SECONDS = 5.0  # the other ranks of a failed one end by themselves, mostly within 3 s
TRACEBACK_GRACE_SECONDS = 0.5
LOG_EXCERPT_BYTES = 6000


class Events:
    """Follows the lines that the ranks append to `events.jsonl`."""

    def __init__(self, folder: Path):
        self.path, self.offset = folder / "events.jsonl", 0
        self.pids: Dict[int, int] = {}
        self.last_step: Optional[int] = None

    def new(self) -> List[Dict[str, Any]]:
        if not self.path.exists():
            return []
        with open(self.path, "rb") as lines:
            lines.seek(self.offset)
            text = lines.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.offset += len(whole)
        events = [json.loads(line) for line in whole.splitlines()]
        for event in events:
            if event["event"] == "rank_started":
                self.pids[event["rank"]] = event["pid"]
            if event["event"] == "step":
                self.last_step = event["step"]
        return events


class Watch:
    """Follows one started run to its end; `cause` is None when every rank reported success."""

    def __init__(self, group, run, folder: Path, on_event: Callable, kernel_oom: Callable):
        self.group, self.run, self.folder = group, run, folder
        self.on_event, self.kernel_oom = on_event, kernel_oom
        self.events = Events(folder)
        self.ranks = run["spec"]["ranks"]
        self.death_seen: Dict[int, float] = {}
        self.ended_by_us: set = set()

    def follow(self) -> None:
        deadline = time.monotonic() + self.run["time_limit_seconds"]
        self.timed_out = False
        failed_at: Optional[float] = None
        while not self.group.poll():
            self._notice()
            now = time.monotonic()
            if failed_at is None and self._something_failed():
                failed_at = now
            if failed_at is not None and now > failed_at + PEER_GRACE_SECONDS:
                break
            if now > deadline and failed_at is None:
                self.timed_out = True
                self._ask_for_tracebacks()
                break
            time.sleep(POLL_SECONDS)
        self._notice()
        codes = self.group.rank_codes()
        self.ended_by_us = {n for n in range(self.ranks) if n not in codes}
        self.group.kill()
        self._notice()

    def _notice(self) -> None:
        for event in self.events.new():
            self.on_event(event)
        for number in self.group.rank_codes():
            self.death_seen.setdefault(number, time.time())

    def _something_failed(self) -> bool:
        if any(code for code in self.group.rank_codes().values()):
            return True
        return any(not report["ok"] for report in self.reports().values())

    def _ask_for_tracebacks(self) -> None:
        for pid in self.events.pids.values():
            try:
                os.kill(pid, signal.SIGUSR1)
            except ProcessLookupError:
                pass
        time.sleep(TRACEBACK_GRACE_SECONDS)

    def reports(self) -> Dict[int, Dict[str, Any]]:
        found = {}
        for number in range(self.ranks):
            path = self.folder / f"report.{number}.json"
            if path.exists():
                found[number] = json.loads(path.read_text())
        return found

    def log(self, number: int) -> str:
        """The end of what a rank printed."""
        for name in (f"log.{number}", "log.torchrun"):
            path = self.folder / name
            if path.exists():
                return path.read_bytes()[-LOG_EXCERPT_BYTES:].decode(errors="replace")
        return ""

    def cause(self) -> Optional[Dict[str, Any]]:
        """Why the run failed; None: it did not."""
        if self.timed_out:
            return self._timeout()
        reports, codes = self.reports(), self.group.rank_codes()
        causes = [_reported(report, codes) for report in reports.values() if not report["ok"]]
        for number, code in codes.items():
            if number not in reports and number not in self.ended_by_us:
                silent = cause_of_exit(number, code, self.log(number), self.kernel_oom())
                silent["time"] = self.death_seen.get(number, time.time())
                causes.append(silent)
        first = first_cause(causes)
        if first is None and len(reports) < self.ranks:
            first = empty_cause("Exit", "the launcher ended before every rank had reported")
            first["traceback"] = self.log(0) or None
        if first:
            first.pop("time", None)
        return first

    def _timeout(self) -> Dict[str, Any]:
        limit, done = self.run["time_limit_seconds"], self.events.last_step
        progress = "before the first step ended" if done is None else f"after step {done}"
        cause = empty_cause("Timeout", f"not finished within {limit:g} s, {progress}")
        silent = [n for n in range(self.ranks) if n not in self.reports()]
        number = silent[0] if silent else 0
        cause.update(rank=number, step=done or 0, traceback=self.log(number) or None)
        return cause


def _reported(report: Dict[str, Any], codes: Dict[int, int]) -> Dict[str, Any]:
    cause = empty_cause(report["type"], report["message"])
    known = ("traceback", "rank", "phase", "step", "micro_batch_index", "time")
    cause.update({name: report[name] for name in known})
    cause["exit_code"] = codes.get(report["rank"])
    return cause
