"""Whatever kills a pipeline: nothing is left behind, and the same command goes on where it was."""

from __future__ import annotations

import signal
import time

import pytest
from pipeline import faults
from pipeline.conftest import Checkout, kill_group

pytestmark = pytest.mark.pipeline
ROW, TARGET = "mixed_precision/fp32", "mixed_precision_fp32"


def unmeasured(base: Checkout, folder, steps: int, **settings) -> Checkout:
    """A copy without results, with runs that are long enough to be interrupted."""
    checkout = faults.copy_of(base, folder / "a path 計測" / "trainmark", results=False)
    checkout.edit("config/config.yaml", lambda c: c.update(settings))
    checkout.edit(
        "config/hardware/cpu.yaml",
        lambda h: h["workloads"]["bert-pretraining"].update(timed_steps=steps),
    )
    return checkout


def hurt(checkout: Checkout, run: str, how) -> tuple[int, dict]:
    """Start the pipeline, hurt it while `run` is going on; its exit status, what was kept."""
    process = checkout.start(TARGET)
    try:
        faults.wait_for_step(checkout, ROW, run, process)
        how(process)
        status = process.wait(120)
        faults.nothing_left(checkout)
    finally:
        kill_group(process)
    return status, checkout.records()


def kill_launcher(checkout: Checkout):
    return lambda _process: faults.send(faults.launcher(checkout), signal.SIGKILL)


def kill_zygote(checkout: Checkout):
    return lambda _process: faults.send(faults.zygote(checkout), signal.SIGKILL)


def test_killed_in_every_way_then_the_same_command(base, tmp_path):
    checkout = unmeasured(base, tmp_path, steps=40, repeats=5, retries=0)
    ways = [
        ("throughput-1", lambda p: faults.interrupt_group(p, signal.SIGINT)),  # Ctrl-C
        ("throughput-2", lambda p: p.send_signal(signal.SIGTERM)),  # Snakemake alone
        ("throughput-3", kill_launcher(checkout)),
        ("throughput-4", lambda p: p.kill()),  # Snakemake alone
    ]
    kept: dict = {}
    for done, (run, how) in enumerate(ways):
        status, after = hurt(checkout, run, how)
        assert status != 0, (run, checkout.folder / "started.log")
        assert len(after) == done, (run, sorted(after))  # what had finished, and no half record
        assert {path: after[path] for path in kept} == kept  # and it was not measured again
        kept = after
    assert_needs_our_lock_check(checkout)
    status, after = hurt(checkout, "throughput-5", kill_zygote(checkout))
    assert status != 0  # every try of the row's last runs failed
    lost = faults.failed(checkout, ROW)
    assert {r["purpose"] for r in lost.values()} == {"throughput", "memory", "parity"}
    for record in lost.values():
        assert record["outcome"] == "error"
        assert record["cause"]["message"] == (
            "the worker was ended by SIGKILL before the run was finished"
        )
    result = checkout.snakemake(TARGET)
    assert result.returncode == 0, result.stdout[-3000:]
    new = faults.measured_between(after, checkout.records())
    assert new == {"fp32/throughput-5.json", "fp32/memory-1.json", "fp32/parity-1.json"}
    assert "nothing to measure" not in result.stdout
    assert not list(checkout.folder.glob(".snakemake/locks/*"))


def assert_needs_our_lock_check(checkout: Checkout) -> None:
    """Snakemake was killed just now: without our check the same command is refused."""
    line = "    interrupt.forget_dead_pipeline(ROOT)\n"
    faults.replace(checkout, "rules/common.smk", line, "")
    result = checkout.snakemake(TARGET)
    assert result.returncode != 0
    assert "LockException" in result.stdout or "cannot be locked" in result.stdout, result.stdout
    faults.replace(
        checkout, "rules/common.smk", "if IN_MAIN_PROCESS:\n", "if IN_MAIN_PROCESS:\n" + line
    )


def test_without_protection_processes_stay(base, tmp_path):
    """The switches that show that the test above would notice."""
    checkout = unmeasured(base, tmp_path, steps=100_000, repeats=1, retries=0)
    faults.replace(checkout, "rules/common.smk", "    interrupt.pass_on_sigterm()\n", "    pass\n")
    faults.replace(checkout, "workflow/trainmark/launch.py", "    stop_with_pipeline()\n", "")
    worker = "workflow/trainmark/worker.py"
    faults.replace(checkout, worker, "_prctl(PR_SET_PDEATHSIG, signal.SIGTERM)", "pass")
    own = "workflow/trainmark_worker/zygote.py"
    faults.replace(checkout, own, "limits.die_with_parent(signal.SIGTERM)\n", "pass\n")
    event = "        print(json.dumps(event), file=self.events, flush=True)\n"
    deaf = event.replace("        print", "            print")  # not even a broken pipe ends it
    faults.replace(
        checkout, own, event, f"        try:\n{deaf}        except OSError:\n            pass\n"
    )
    process = checkout.start(TARGET)
    try:
        faults.wait_for_step(checkout, ROW, "throughput-1", process)
        process.send_signal(signal.SIGTERM)
        time.sleep(3)
        assert faults.launcher(checkout), "Snakemake's own SIGTERM handling ended the launcher"
        process.kill()
        time.sleep(3)
        launcher = faults.launcher(checkout)
        assert launcher, "the launcher noticed"
        launcher.kill()
        time.sleep(3)
        assert faults.ranks(checkout), "the ranks noticed"
    finally:
        kill_group(process)
        faults.end(faults.below(checkout))


def test_a_second_pipeline_in_the_checkout_is_refused_while_the_first_lives(base, tmp_path):
    checkout = unmeasured(base, tmp_path, steps=100_000, repeats=1)
    process = checkout.start(TARGET)
    try:
        faults.wait_for(lambda: faults.launcher(checkout))
        second = checkout.snakemake(TARGET)
        assert second.returncode != 0
        assert "locked" in second.stdout
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        faults.nothing_left(checkout)
    finally:
        kill_group(process)
