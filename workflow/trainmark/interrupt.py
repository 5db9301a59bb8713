"""A pipeline may be killed at any time, in any way; the same command starts it again."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path
from types import FrameType

import psutil

_held: list[int] = []  # open for as long as this process lives


def forget_dead_pipeline(root: Path) -> None:
    """Remove Snakemake's locks when no pipeline lives in this checkout.

    Snakemake's own lock files outlive a `kill -9` or a power cut and do not say whose they are.
    An flock beside them does: the kernel takes it from a dead holder.
    """
    folder = root / ".snakemake"
    try:
        folder.mkdir(exist_ok=True)
        handle = os.open(folder / "trainmark.alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return  # Snakemake says what is wrong with the folder
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return
    _held.append(handle)
    for path in (folder / "locks").glob("*.lock"):
        with contextlib.suppress(OSError):
            path.unlink()


def pass_on_sigterm() -> None:
    """Let SIGTERM end running measurements too: Snakemake alone would wait for them for hours."""
    previous = signal.getsignal(signal.SIGTERM)

    def handler(number: int, frame: FrameType | None) -> None:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "trainmark" in process.cmdline():
                    process.terminate()
        if callable(previous):
            previous(number, frame)

    signal.signal(signal.SIGTERM, handler)


def correct_future_times(root: Path, results: Path) -> None:
    """Files that a wrong clock has dated later than now become files of now.

    Snakemake refuses to go on when an output is older than its input. Content decides here what is
    made again, so their times mean nothing.
    """
    now = time.time()
    derived = [results / name for name in ("rows", "tables", "page")]
    sources = [root / name for name in ("build/plans", "build/recipes", "config", "report")]
    files = [path for folder in (*derived, *sources) for path in folder.rglob("*")]
    files += (root / "workflow").rglob("*.py")
    files += (root / "build").glob("data/*/manifest.json")
    for path in files:
        with contextlib.suppress(OSError):
            if path.stat().st_mtime > now:
                os.utime(path, (now, now))


def date_stamp(path: Path, newer: bool) -> None:
    """The input that makes rows be measured again: newer than every summary, else older.

    It is always an input, because Snakemake also runs a job again whose set of inputs has changed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if newer or not path.exists():
        path.write_text(f"{os.getpid()} {time.time()}\n", encoding="utf-8")
    if not newer:
        os.utime(path, (0, 0))
