"""Finding and hurting the processes of a running pipeline, from outside."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pipeline.conftest import Checkout

PATIENCE = 240.0  # seconds until a moment comes on a busy machine


def below(checkout: Checkout) -> list[psutil.Process]:
    """Every living process that works in this checkout, whoever its parent is by now."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE and process.cwd().startswith(
                str(checkout.folder)
            ):
                found.append(process)
    return found


def _with_argument(checkout: Checkout, *words: str) -> list[psutil.Process]:
    found = []
    for process in below(checkout):
        with contextlib.suppress(psutil.Error):
            if all(word in process.cmdline() for word in words):
                found.append(process)
    return found


def launcher(checkout: Checkout) -> psutil.Process | None:
    return next(iter(_with_argument(checkout, "trainmark", "measure")), None)


def zygote(checkout: Checkout, row: str | None = None) -> psutil.Process | None:
    """The worker's main process, of this row."""
    workers = _with_argument(checkout, "trainmark_worker")
    pids = {process.pid for process in workers}
    for process in workers:
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            todo = Path(process.cmdline()[process.cmdline().index("--todo") + 1])
            names = json.loads(todo.read_text())
            right = row is None or f"{names['table']}/{names['row']}" == row
            if right and process.ppid() not in pids:
                return process
    return None


def ranks(checkout: Checkout, row: str | None = None) -> list[psutil.Process]:
    """The ranks of the run that is going on, in their order."""
    main = zygote(checkout, row)
    with contextlib.suppress(psutil.Error):
        return sorted(main.children(), key=lambda p: p.pid) if main else []
    return []


def wait_for(what: Callable[[], Any], seconds: float = PATIENCE, message: str = "") -> Any:
    """The first true value of `what`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(message or f"{what} stayed false for {seconds} s")


def new_ranks(
    checkout: Checkout, row: str, known: set[int], count: int = 4
) -> list[psutil.Process]:
    """Wait for the next process group of a row; `known` are ranks of earlier ones."""

    def fresh() -> list[psutil.Process] | None:
        found = [rank for rank in ranks(checkout, row) if rank.pid not in known]
        return found if len(found) == count else None

    found = wait_for(fresh, message=f"no new ranks of {row}")
    known.update(rank.pid for rank in found)
    return found


def log_of(checkout: Checkout, row: str) -> Path:
    return checkout.folder / f"results/cpu/logs/{row.replace('/', '-')}.log"


def wait_for_step(
    checkout: Checkout, row: str, run: str, pipeline: subprocess.Popen[bytes] | None = None
) -> None:
    """Until the row's log says that this run has finished its first step."""
    log, text = log_of(checkout, row), f"{run} step 1/"

    def reached() -> bool:
        assert pipeline is None or pipeline.poll() is None, (
            checkout.folder / "started.log"
        ).read_text()
        return log.is_file() and text in log.read_text(encoding="utf-8", errors="replace")

    wait_for(reached, message=f"{row}: {text} never came")


def nothing_left(checkout: Checkout, seconds: float = 20.0) -> None:
    """No process of the pipeline lives, and no file is half written."""
    wait_for(lambda: not below(checkout), seconds, f"still alive: {below(checkout)}")
    assert half_files(checkout) == []


def half_files(checkout: Checkout) -> list[Path]:
    results = checkout.folder / "results"
    return [
        path
        for path in results.rglob("*")
        if path.is_file() and (path.name.startswith(".") or path.suffix in (".part", ".tmp"))
    ]


def end(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=5)


def send(process: psutil.Process, number: int) -> None:
    os.kill(process.pid, number)


def copy_of(checkout: Checkout, folder: Path, results: bool = True) -> Checkout:
    """A copy of a measured checkout; without its results it has data and environment alone."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    ignore = None if results else shutil.ignore_patterns("results", ".snakemake")
    shutil.copytree(checkout.folder, folder, symlinks=True, ignore=ignore)
    return Checkout(folder, folder / "measure.lock")


def replace(checkout: Checkout, name: str, old: str, new: str) -> None:
    """Take a protection out of the copy's code, or put a fault in."""
    path = checkout.folder / name
    text = path.read_text(encoding="utf-8")
    assert old in text, f"{name} no longer contains {old!r}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def measured_between(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """`<row>/<file>` of the records that are new or were measured again."""
    changed = {
        path
        for path, record in after.items()
        if before.get(path, {}).get("started") != record["started"]
    }
    return {f"{path.split('/')[1]}/{path.split('/')[-1]}" for path in changed}


def failed(checkout: Checkout, row: str) -> dict[str, dict[str, Any]]:
    """The failed attempts of a row, oldest first."""
    found = checkout.records(f"{row}/*/failed/*.json")
    return dict(sorted(found.items(), key=lambda item: item[1]["finished"]))


def row_of(checkout: Checkout, table: str, row: str) -> dict[str, Any]:
    return next(entry for entry in checkout.table(table)["rows"] if entry["id"] == row)


@contextlib.contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[None]:
    """A mount for the block's time; root alone may do that."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", *arguments, str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting needs root with CAP_SYS_ADMIN: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def interrupt_group(process: subprocess.Popen[bytes], number: int) -> None:
    """As a terminal does on Ctrl-C."""
    os.killpg(process.pid, number)


def stop_and_continue(first: psutil.Process) -> Callable[[], None]:
    send(first, signal.SIGSTOP)
    return lambda: send(first, signal.SIGCONT)
