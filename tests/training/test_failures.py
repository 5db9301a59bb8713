"""Out of memory needs evidence; killed, hanging and raising ranks are told apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from conftest import _megatron
from trainmark_worker import startup
from trainmark_worker.outcome import first_cause, outcome_of
from worker import spec, write_data

BIG = dict(heads=8, sequence_length=320, hidden=64, micro_batch=2, global_batch=16, timed_steps=2)


@pytest.fixture(scope="module")
def failures(launch, tmp_path_factory):
    data = write_data(tmp_path_factory.mktemp("long"), length=320)
    specs = {
        "oom": _megatron(1, 1, memory_limit_mib=70, dropout=0.1, **BIG),
        "more memory": _megatron(1, 1, memory_limit_mib=180, dropout=0.1, **BIG),
    }
    return launch.run(specs, data=data)


@pytest.fixture(scope="module")
def faults(launch):
    specs = {
        "killed": spec("faulty.killed"),
        "raising": spec("faulty.raising"),
        "after": spec(timed_steps=2),
    }
    return launch.run(specs)


def test_only_a_memory_limit_changes_the_allocator():
    def allocator(*limits, device="cpu"):
        specs = [spec(memory_limit_mib=limit, device=device) for limit in limits]
        variables = startup.variables([{"spec": found} for found in specs])
        return {name for name in variables if name.startswith("MALLOC_")}

    assert allocator(None, None) == allocator(70, device="cuda") == set()
    assert allocator(None, 70) == set(startup.MALLOC)


def test_out_of_memory_is_real(failures):
    record = failures["oom"]
    cause = record["cause"]
    assert record["outcome"] == "oom", cause
    assert "can't allocate memory" in cause["message"]
    assert "models/gpt.py" in cause["traceback"] or cause["phase"] == "backward"
    assert cause["phase"] in ("forward", "backward")
    assert record["metrics"] is None


def test_more_memory_lets_it_through(failures):
    assert failures["more memory"]["outcome"] == "ok", failures["more memory"]["cause"]


def test_killed_is_not_out_of_memory(faults):
    record = faults["killed"]
    assert record["outcome"] == "error"
    assert record["cause"]["type"] == "killed"
    assert (record["cause"]["rank"], record["cause"]["signal"]) == (1, "SIGKILL")
    assert record["cause"]["exit_code"] == -9


def test_first_failure_decides(faults):
    cause = faults["raising"]["cause"]
    assert (cause["type"], cause["rank"]) == ("ValueError", 2)
    assert cause["message"] == "the fault of rank 2"


def test_a_failure_does_not_reach_the_next_run(faults):
    assert faults["after"]["outcome"] == "ok"


def test_hang_is_a_timeout(launch):
    record = launch.run({"hang": spec("faulty.hanging")}, limit=8.0)["hang"]
    assert record["outcome"] == "timeout"
    assert record["duration_seconds"] < 20
    assert "after step 1" in record["cause"]["message"]
    assert "wait_for_ever" in record["cause"]["traceback"] or record["cause"]["rank"] != 1
    assert not _running("sleep 4321"), "a rank's child has survived"


def test_without_a_time_limit_it_hangs_until_sigterm_ends_every_rank(launch):
    process, out = launch.start({"hang": spec("faulty.hanging")}, limit=1e6)
    deadline = time.monotonic() + 60
    while '"step"' not in (out / "events").read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(8)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=5) == 128 + signal.SIGTERM
    assert not _running(str(out))
    assert not _running("sleep 4321")


def test_ranks_die_with_the_zygote(launch):
    process, out = launch.start({"hang": spec("faulty.hanging")})
    deadline = time.monotonic() + 60
    while '"step"' not in (out / "events").read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.kill()
    process.wait()
    time.sleep(0.5)
    left = _running(str(out))
    assert not left
    for pid in _running("sleep 4321"):  # its parent died with SIGKILL: nobody could end it
        os.kill(pid, signal.SIGKILL)


def test_events_are_json_lines(launch):
    process, out = launch.start({"ddp": spec(timed_steps=2)})
    assert process.wait() == 0
    events = [json.loads(line) for line in (out / "events").read_text().splitlines()]
    assert [e["event"] for e in events] == [
        "imported",
        "run_started",
        "step",
        "step",
        "run_finished",
    ]
    assert events[-1]["outcome"] == "ok"
    assert events[2] | {"samples_per_second": 0, "loss": 0} == {
        "event": "step",
        "run": "parity-1",
        "step": 1,
        "steps": 2,
        "samples_per_second": 0,
        "loss": 0,
    }


def test_lost_peers_never_decide():
    peer = {"type": "RuntimeError", "message": "Connection closed by peer", "time": 1.0}
    killed = {"type": "killed", "message": "rank 1 was ended by SIGKILL", "time": 2.0}
    assert first_cause([peer, killed]) is killed
    assert outcome_of(killed) == "error"
    assert outcome_of({"type": "KernelOutOfMemory", "message": ""}) == "oom"
    assert outcome_of({"type": "MemoryError", "message": ""}) == "error"


def _running(text: str) -> list[int]:
    """Processes whose command line contains `text`."""
    listing = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True).stdout
    found = [line.split(None, 1) for line in listing.splitlines()[1:] if text in line]
    return [int(pid) for pid, args in found if "ps -eo" not in args]
