"""The load that others put on the machine, looked at before a measurement starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil

SAMPLE_SECONDS = 1.0


def foreign_cpu_percent() -> float:
    """CPU use of the whole machine over one second, in %; called while nothing of ours runs."""
    return float(psutil.cpu_percent(interval=SAMPLE_SECONDS))


def wait_for_quiet(
    limit: float, seconds: float, given_up: Path, tell: Callable[[str], None]
) -> float:
    """Wait up to `seconds` for CPU use to fall below `limit` %; return the last value seen.

    `given_up` is a marker of this pipeline: a machine that stayed busy is not waited for again.
    """
    percent = foreign_cpu_percent()
    if percent <= limit or given_up.exists():
        return percent
    deadline = time.monotonic() + seconds
    tell(
        f"others use {percent:.0f} % of the CPU; waiting up to {seconds:.0f} s for a quiet machine"
    )
    while percent > limit and time.monotonic() < deadline:
        percent = foreign_cpu_percent()
    if percent > limit:
        tell("it stays busy: measuring all the same; the load is recorded with every run")
        given_up.parent.mkdir(parents=True, exist_ok=True)
        given_up.touch()
    return percent
