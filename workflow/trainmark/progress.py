"""What a person sees while a row is measured: a live line on a terminal, plain lines in a log."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import IO, Any

from trainmark.estimate import duration


class Progress:
    """Turns the worker's events into lines on stderr and in the row's log."""

    def __init__(self, row: str, log: IO[str], seconds_left: float) -> None:
        self.row = row
        self.log = log
        self.deadline = time.monotonic() + seconds_left
        self.live = sys.stderr.isatty()
        self.width = 0

    def event(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        if kind == "imported":
            self.say(f"{self.row}: frameworks imported in {event['seconds']:.1f} s")
        elif kind == "step":
            self._step(event)
        elif kind == "run_finished":
            self._finished(event)

    def _step(self, event: dict[str, Any]) -> None:
        speed = event.get("samples_per_second")
        rate = f", {speed:.2f} samples/s" if speed else ""
        loss = f", loss {event['loss']:.3f}" if event.get("loss") is not None else ""
        text = f"{self.row}: {event['run']} step {event['step']}/{event['steps']}{rate}{loss}"
        if self.live:
            self._redraw(f"{text}  [{self.left()}]")
        print(text, file=self.log, flush=True)

    def _finished(self, event: dict[str, Any]) -> None:
        speed = event.get("samples_per_second")
        rate = f" {speed:.2f} samples/s" if speed else ""
        self.say(f"{self.row}: {event['run']} {event['outcome']}{rate}  [{self.left()}]")

    def left(self) -> str:
        seconds = self.deadline - time.monotonic()
        return f"about {duration(seconds)} left in all" if seconds > 0 else "nearly done"

    def say(self, text: str) -> None:
        if self.live:
            self._redraw("")
        print(text, file=sys.stderr, flush=True)
        print(text, file=self.log, flush=True)

    def _redraw(self, text: str) -> None:
        columns = shutil.get_terminal_size().columns - 1
        text = text[:columns]
        sys.stderr.write("\r" + text.ljust(min(self.width, columns)) + ("\r" if not text else ""))
        sys.stderr.flush()
        self.width = len(text)


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    try:
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
