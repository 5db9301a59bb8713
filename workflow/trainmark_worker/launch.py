"""Two ways to start the ranks of a run: forked from a process that has imported everything (CPU),
or by torchrun (GPU). Both hand over the same folder and leave the same reports.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Dict

from . import limits


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def private_environment(folder: Path) -> Dict[str, str]:
    """Each run has its own temporary files and compiled extensions: no lock of another one."""
    folders = {"TMPDIR": folder / "tmp", "TORCH_EXTENSIONS_DIR": folder / "extensions"}
    for path in folders.values():
        path.mkdir(exist_ok=True)
    return {name: str(path) for name, path in folders.items()}


class ForkedRanks:
    """Forks `ranks` processes, each the leader of its own session. Needs `rank.prepare` before."""

    def __init__(self, run: Dict[str, Any], folder: Path):
        from . import rank

        self.folder, self.codes = folder, {}  # type: Path, Dict[int, int]
        self.pids: Dict[int, int] = {}
        count, zygote = run["spec"]["ranks"], os.getpid()
        shared = {
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "LOCAL_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            **private_environment(folder),
        }
        sys.stdout.flush()
        sys.stderr.flush()
        for number in range(count):
            pid = os.fork()
            if pid == 0:
                _become_rank(zygote)
                os.environ.update(shared, RANK=str(number), LOCAL_RANK=str(number))
                _in_rank(lambda: rank.run_rank(run, folder), folder / f"log.{number}")
            self.pids[pid] = number

    def poll(self) -> bool:
        """Collect the ended ranks; whether all have ended."""
        for pid, number in self.pids.items():
            if number not in self.codes:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self.codes[number] = os.waitstatus_to_exitcode(status)
        return len(self.codes) == len(self.pids)

    def rank_codes(self) -> Dict[int, int]:
        """Exit status by rank, a signal as its negative number."""
        return self.codes

    def kill(self) -> None:
        """End what is left, and every process that a rank has started."""
        for pid, number in self.pids.items():
            _kill_group(pid)
        while not self.poll():
            time.sleep(0.01)


def _become_rank(zygote: int) -> None:
    limits.die_with_parent(parent=zygote)
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _in_rank(work, log: Path) -> None:
    """Run `work` with its output in `log`, and never return."""
    code = 1
    try:
        output = os.open(str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


class Torchrun:
    """One `torchrun --standalone`; its ranks run `python -m trainmark_worker.rank FOLDER`."""

    def __init__(self, run: Dict[str, Any], folder: Path):
        self.folder = folder
        self.log = folder / "log.torchrun"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc_per_node", str(run["spec"]["ranks"]), "--max_restarts", "0"]
        command += ["-m", "trainmark_worker.rank", str(folder)]
        environment = {**os.environ, **private_environment(folder)}
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                preexec_fn=limits.die_with_parent,
            )

    def poll(self) -> bool:
        return self.process.poll() is not None

    def rank_codes(self) -> Dict[int, int]:
        """torchrun keeps the exit status of failed ranks in its message only.

        It ends the other ranks with SIGTERM: that is no failure of theirs.
        """
        text = self.log.read_text(errors="replace")
        found = re.findall(r"rank\s*:\s*(\d+) .*?\n\s*exitcode\s*:\s*(-?\d+)", text)
        codes = {int(number): int(code) for number, code in found}
        return {number: code for number, code in codes.items() if code != -signal.SIGTERM}

    def kill(self) -> None:
        _kill_group(self.process.pid)
        self.process.wait()


LAUNCHERS = {"fork": ForkedRanks, "torchrun": Torchrun}


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        pass


def children() -> list:
    """Process ids of this process's children, orphans that it adopted included."""
    pids = []
    for thread in Path("/proc/self/task").iterdir():
        pids += map(int, (thread / "children").read_text().split())
    return pids


def end_all_children() -> None:
    """Kill and collect whatever a run has left behind."""
    for _ in range(100):
        left = children()
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
