"""Start the worker in its environment, read its events, and leave no process behind."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import psutil

GRACE_SECONDS = 5.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
FOLDER_PREFIX = "trainmark-launch-"
POLL_SECONDS = 0.5
WORKER_ENVIRONMENT = {
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


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def install_signal_handlers() -> None:
    """The first signal that asks to stop raises Interrupted; later ones do not disturb cleaning."""

    def handler(number: int, frame: object) -> None:
        for other in STOP_SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted(number)

    for number in STOP_SIGNALS:
        signal.signal(number, handler)


def stop_with_pipeline() -> None:
    """Stop when the Snakemake that started us is killed outright: nobody else tells us."""
    pipeline = _pipeline_process()
    if pipeline is None:
        return

    def watch() -> None:
        while pipeline.is_running() and pipeline.status() != psutil.STATUS_ZOMBIE:
            time.sleep(POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def adopt_orphans() -> None:
    """What a killed worker has started becomes our child, so that we can end it."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, argument: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def _die_with(parent: int) -> None:
    """In the child, before it becomes the worker: SIGTERM when the launcher dies in any way."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def remove_left_folders() -> None:
    """Temporary folders of launchers that were killed; their names hold the process ids."""
    for path in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*-*"):
        number = path.name.removeprefix(FOLDER_PREFIX).split("-")[0]
        if number.isdigit() and not psutil.pid_exists(int(number)):
            shutil.rmtree(path, ignore_errors=True)


def venv_command(
    python: str, workflow: Path, arguments: list[str], threads: int, temporary: Path | None = None
) -> list[str]:
    """The worker in a virtual environment: nothing of the caller's environment leaks in."""
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= WORKER_ENVIRONMENT
    environment["PATH"] = f"{Path(python).parent}:{environment.get('PATH', os.defpath)}"
    environment["PYTHONPATH"] = str(workflow)
    if temporary:
        environment["TMPDIR"] = str(temporary)
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
        remove_left_folders()
        adopt_orphans()
        launcher = os.getpid()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{launcher}-"))
        self.silent_seconds: float | None = None
        self.kill_command = kill_command
        self.process = subprocess.Popen(
            make_command(self.folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: _die_with(launcher),
            env={**os.environ, "TMPDIR": str(self.folder)},
        )

    def events(self, silence_limit: float, on_event: Callable[[dict[str, Any]], None]) -> int:
        """Pass on every event until the worker ends; return its exit status.

        A worker that says nothing for `silence_limit` seconds is ended.
        """
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        last, buffer = time.monotonic(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                if selector.select(POLL_SECONDS):
                    chunk = self.process.stdout.read()
                    if chunk == b"":
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            self.process.wait(GRACE_SECONDS)
                        break
                    last = time.monotonic()
                    *lines, buffer = (buffer + (chunk or b"")).split(b"\n")
                    for line in lines:
                        _pass_on(line, on_event)
                if time.monotonic() - last > silence_limit:
                    self.silent_seconds = silence_limit
                    break
        self.stop()
        return self.process.returncode

    def stop(self) -> None:
        """End the worker and everything it started; ask first, then insist."""
        if self.process.poll() is None:
            self._signal(signal.SIGTERM)
            if self.kill_command:
                subprocess.run(self.kill_command, capture_output=True, timeout=60, check=False)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_SECONDS)
        self._signal(signal.SIGKILL)
        self.process.wait()
        end_children()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


def end_children() -> None:
    """Kill every process below this one, adopted orphans included, until none is left."""
    for _ in range(100):
        left = psutil.Process().children(recursive=True)
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=0.5)


def _pass_on(line: bytes, on_event: Callable[[dict[str, Any]], None]) -> None:
    try:
        event = json.loads(line)
    except ValueError:
        return
    if isinstance(event, dict):
        on_event(event)


def _pipeline_process() -> psutil.Process | None:
    """The Snakemake that started us."""
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
