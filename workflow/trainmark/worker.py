"""Start the worker in its environment, read its events, and leave no process behind."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import psutil

GRACE_SECONDS = 5.0
POLL_SECONDS = 0.5
# A repeatable allocation window for the memory limit, and no contention between CPU ranks.
WORKER_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "MALLOC_MMAP_MAX_": "1000000",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}
PASSED_ON = ("PATH", "LANG", "LC_ALL", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "NCCL_DEBUG")


class Interrupted(Exception):
    """A signal asked this process to stop; carries the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def install_signal_handlers() -> None:
    def handler(number: int, frame: object) -> None:
        raise Interrupted(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def venv_command(python: str, workflow: Path, arguments: list[str], threads: int) -> list[str]:
    """The worker in a virtual environment: nothing of the caller's environment leaks in."""
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= WORKER_ENVIRONMENT
    environment["PATH"] = f"{Path(python).parent}:{environment.get('PATH', os.defpath)}"
    environment["PYTHONPATH"] = str(workflow)
    environment["OMP_NUM_THREADS"] = environment["MKL_NUM_THREADS"] = str(threads)
    pairs = [f"{name}={value}" for name, value in environment.items()]
    return ["env", "-i", *pairs, python, "-m", "trainmark_worker", *arguments]


class Worker:
    """One worker process with its own session and its own temporary folder."""

    def __init__(
        self,
        make_command: Callable[[Path], list[str]],
        log: IO[str],
        kill_command: list[str] | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="trainmark-"))
        self.kill_command = kill_command
        self.process = subprocess.Popen(
            make_command(self.folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(self.folder)},
        )

    def events(self, silence_limit: float, on_event: Callable[[dict[str, Any]], None]) -> int:
        """Pass on every event until the worker ends; return its exit status.

        A worker that says nothing for `silence_limit` seconds, or whose pipeline died, is ended.
        """
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        pipeline = _pipeline_process()
        last, buffer = time.monotonic(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                if selector.select(POLL_SECONDS):
                    chunk = self.process.stdout.read()
                    if chunk == b"":
                        break
                    last = time.monotonic()
                    *lines, buffer = (buffer + (chunk or b"")).split(b"\n")
                    for line in lines:
                        _pass_on(line, on_event)
                if time.monotonic() - last > silence_limit:
                    break
                if pipeline is not None and not pipeline.is_running():
                    raise Interrupted(signal.SIGTERM)
        self.stop()
        return self.process.returncode

    def stop(self) -> None:
        """End the worker and everything it started; ask first, then insist."""
        family = self._family()
        if self.process.poll() is None:
            self._signal(signal.SIGTERM)
            if self.kill_command:
                subprocess.run(self.kill_command, capture_output=True, timeout=60, check=False)
        try:
            self.process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            family += self._family()
        self._signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(family, timeout=0.2)
        for process in alive:
            _quietly(process.kill)
        self.process.wait()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def _family(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except psutil.NoSuchProcess:
        pass


def _pass_on(line: bytes, on_event: Callable[[dict[str, Any]], None]) -> None:
    try:
        event = json.loads(line)
    except ValueError:
        return
    if isinstance(event, dict):
        on_event(event)


def _pipeline_process() -> psutil.Process | None:
    """The Snakemake that started us: when it is killed outright, nobody else tells us."""
    for process in psutil.Process().parents():
        try:
            if any("snakemake" in part for part in process.cmdline()[:3]):
                return process
        except psutil.Error:
            continue
    return None


def pipeline_id() -> int:
    """The process id of the Snakemake that started us, else of our parent."""
    process = _pipeline_process()
    return process.pid if process else os.getppid()
