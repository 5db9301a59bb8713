"""One measurement at a time on a machine, whoever starts it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

import pytest
from pipeline import faults
from pipeline.conftest import ROOT, Checkout, kill_group

pytestmark = pytest.mark.pipeline
ROW, TARGET = "mixed_precision/fp32", "mixed_precision_fp32"
NOBODY = 65534


def intervals(checkout: Checkout) -> list[tuple[datetime, datetime]]:
    return [
        (datetime.fromisoformat(record["started"]), datetime.fromisoformat(record["finished"]))
        for record in checkout.records().values()
    ]


def overlaps(first: Checkout, second: Checkout) -> int:
    """Pairs of runs of two checkouts that went on at the same time."""
    return sum(a[0] < b[1] and b[0] < a[1] for a in intervals(first) for b in intervals(second))


def two_pipelines(base: Checkout, folder: Path, locks: list[Path]) -> list[Checkout]:
    """Two checkouts measure the same row, started together; both end well."""
    checkouts, processes = [], []
    for number, lock in enumerate(locks):
        copied = faults.copy_of(base, folder / f"計測 {number}" / "trainmark", results=False)
        checkout = Checkout(copied.folder, lock)
        checkout.edit("config/config.yaml", lambda c: c.update(repeats=1, retries=0))
        checkout.edit(
            "config/hardware/cpu.yaml",
            lambda h: h["workloads"]["bert-pretraining"].update(timed_steps=100),
        )
        checkouts.append(checkout)
    try:
        for checkout in checkouts:
            processes.append(checkout.start(TARGET))
        assert [process.wait(300) for process in processes] == [0, 0]
    finally:
        for process in processes:
            kill_group(process)
    return checkouts


def test_two_pipelines_in_two_checkouts_never_overlap(base, tmp_path):
    lock = tmp_path / "measure.lock"
    checkouts = two_pipelines(base, tmp_path, [lock, lock])
    assert [len(intervals(checkout)) for checkout in checkouts] == [3, 3]
    assert overlaps(*checkouts) == 0
    logs = [(c.folder / "started.log").read_text(encoding="utf-8") for c in checkouts]
    told = [log for log in logs if f", {ROW}) is measuring on this machine" in log]
    assert len(told) == 1, logs
    assert "waiting: " in told[0] and "(process " in told[0]
    assert lock.read_text() == ""  # nobody holds it


def test_without_a_common_lock_they_overlap(base, tmp_path):
    checkouts = two_pipelines(base, tmp_path, [tmp_path / "lock-1", tmp_path / "lock-2"])
    assert overlaps(*checkouts) > 0


# --- the lock alone -------------------------------------------------------------------------------

HOLD = """
import sys, time
from trainmark.hostlock import host_lock
with host_lock("a test", lambda text: print(text, flush=True)):
    print("held", flush=True)
    time.sleep(float(sys.argv[1]))
"""


@pytest.fixture
def shared():
    """A folder as /tmp is: everybody may write, nobody may remove what others own."""
    folder = Path(tempfile.mkdtemp())
    (folder / "trainmark").mkdir()
    for name in ("__init__", "hostlock", "errors"):
        shutil.copy(ROOT / f"workflow/trainmark/{name}.py", folder / "trainmark")
    folder.chmod(0o1777)
    os.chmod(folder / "trainmark", 0o755)
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def holding(folder: Path, seconds: float = 60, user: int | None = None):
    """A process that takes the lock, as another user too."""
    become = ["setpriv", "--clear-groups", f"--reuid={user}", f"--regid={user}"] if user else []
    process = subprocess.Popen(
        [*become, sys.executable, "-c", HOLD, str(seconds)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1",
             "TRAINMARK_LOCK": str(folder / "measure.lock")},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def line(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip()


def test_a_killed_holder_lets_go(shared):
    with holding(shared) as first:
        assert line(first) == "held"
        with holding(shared) as second:
            assert f"(process {first.pid}, a test) is measuring on this machine" in line(second)
            first.send_signal(signal.SIGKILL)
            assert line(second) == "held"


def test_a_holder_that_only_stopped_keeps_it(shared):
    with holding(shared) as first:
        assert line(first) == "held"
        first.send_signal(signal.SIGSTOP)
        with holding(shared) as second:
            assert "is measuring" in line(second)


@pytest.mark.parametrize("users", [(NOBODY, None), (None, NOBODY), (NOBODY, NOBODY - 1)], ids=str)
def test_the_lock_of_another_user(shared, users):
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    with holding(shared, user=users[0]) as first:
        assert line(first) == "held"
        with holding(shared, user=users[1]) as second:
            assert f"process {first.pid}" in line(second)
            first.kill()
            assert line(second) == "held"


def test_a_lock_that_cannot_be_opened_is_named(shared):
    (shared / "measure.lock").symlink_to(shared / "elsewhere")
    with holding(shared) as process:
        text = process.communicate()[0]
    assert "measure.lock: the lock that keeps measurements apart cannot be opened" in text
    assert "set TRAINMARK_LOCK" in text
