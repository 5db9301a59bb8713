"""Faults of issue 5, each provoked on the real pipeline; then the same command again.

What is asserted each time: no process left, no half file, the cause in one sentence with the log,
other rows finished, the page rendered with the row marked, a non-zero exit status, and that the
same command repeats only what failed. Tests named `without_...` remove a protection.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pipeline import faults
from pipeline.conftest import Checkout, kill_group

pytestmark = pytest.mark.pipeline
FP32, MIXED = "mixed_precision/fp32", "mixed_precision/mixed"


def checkout_of(base: Checkout, folder: Path, results: bool = True, **settings) -> Checkout:
    checkout = faults.copy_of(base, folder / "a path 計測" / "trainmark", results)
    checkout.edit("config/config.yaml", lambda c: c.update(settings))
    return checkout


def steps(checkout: Checkout, number: int) -> None:
    checkout.edit(
        "config/hardware/cpu.yaml",
        lambda h: h["workloads"]["bert-pretraining"].update(timed_steps=number),
    )


def assert_told(output: str, row: str, *words: str) -> None:
    """The verdict names the row, the cause and the log, in one line, without a traceback."""
    line = next(
        line for line in output.splitlines() if line.startswith(f"{row}: ") and "; log: " in line
    )
    for word in (*words, f"log: results/cpu/logs/{row.replace('/', '-')}.log"):
        assert word in line, output[-3000:]


def assert_marked(checkout: Checkout, row: str, ja: str, en: str) -> None:
    """Both pages are rendered, with this word in the row's cell."""
    table, name = row.split("/")
    for language, word in (("ja", ja), ("en", en)):
        page = checkout.page(language)
        cell = page.split(f'id="{table}-{name}"')[-1].split("</tr>")[0]
        assert word in cell, (language, cell)


# --- ranks ----------------------------------------------------------------------------------------


class Tormentor(threading.Thread):
    """Hurts the ranks of a row's first four runs, each in another way."""

    def __init__(self, checkout: Checkout) -> None:
        super().__init__(daemon=True)
        self.checkout, self.known, self.error = checkout, set(), None

    def run(self) -> None:
        try:
            faults.send(self.next()[3], signal.SIGKILL)  # throughput-1: at the start
            faults.send(self.stepping(2)[2], signal.SIGSEGV)
            group = self.stepping(3)  # rank 0 stops, so the others wait for it in a collective
            faults.send(group[0], signal.SIGSTOP)
            time.sleep(0.5)
            faults.send(group[1], signal.SIGKILL)
            faults.send(self.stepping(4)[2], signal.SIGSTOP)  # a rank that hangs
        except BaseException as error:
            self.error = error

    def next(self):
        return faults.new_ranks(self.checkout, FP32, self.known)

    def stepping(self, repeat: int):
        group = self.next()
        faults.wait_for_step(self.checkout, FP32, f"throughput-{repeat}")
        return group


def test_ranks_that_die_or_hang(base, tmp_path):
    checkout = checkout_of(base, tmp_path, results=False, repeats=5, retries=0)
    steps(checkout, 30)
    checkout.edit("config/hardware/cpu.yaml", lambda h: h.update(time_limit_seconds=12))
    tormentor = Tormentor(checkout)
    tormentor.start()
    result = checkout.snakemake("report")
    tormentor.join(1)
    assert tormentor.error is None
    assert result.returncode != 0
    faults.nothing_left(checkout)
    found = {r["repeat"]: r for r in faults.failed(checkout, FP32).values()}
    causes = {repeat: (r["outcome"], r["cause"]["message"]) for repeat, r in found.items()}
    assert causes[1] == ("error", "rank 3 was ended by SIGKILL")
    assert causes[2] == ("error", "rank 2 was ended by SIGSEGV")
    assert causes[3] == ("error", "rank 1 was ended by SIGKILL")
    assert causes[4][0] == "timeout" and "not finished within 12 s, after step" in causes[4][1]
    assert sorted(found) == [1, 2, 3, 4]
    assert found[1]["cause"]["type"] == "killed"  # without the kernel's evidence: not oom
    assert_told(result.stdout, FP32, "error", "was ended by SIG")
    assert_marked(checkout, FP32, "エラー", "error")
    assert faults.row_of(checkout, "mixed_precision", "mixed")["n"] == 5
    before = checkout.records()
    again = checkout.snakemake("report")
    assert again.returncode == 0, again.stdout[-3000:]
    assert faults.measured_between(before, checkout.records()) == {
        f"fp32/throughput-{repeat}.json" for repeat in (1, 2, 3, 4)
    }
    row = faults.row_of(checkout, "mixed_precision", "fp32")
    assert (row["outcome"], row["n"]) == ("ok", 5)
    assert sum(run["failed_attempts"] for run in row["runs"]) == 4  # every try stays recorded


# --- records --------------------------------------------------------------------------------------


def change(**fields):
    def edit(text: str) -> str:
        return json.dumps({**json.loads(text), **fields})

    return edit


def change_spec(text: str) -> str:
    record = json.loads(text)
    record["spec"]["micro_batch"] = 99
    return json.dumps(record)


def infinite(text: str) -> str:
    """JSON has no infinity, but Python reads this number as one."""
    record = json.loads(text)
    record["metrics"]["samples_per_second"] = 123.25
    return json.dumps(record).replace("123.25", "1e999")


FAULTY_RECORDS = {
    "fp32/throughput-1": (lambda text: text[:100], "not complete JSON"),
    "fp32/throughput-2": (lambda text: "", "not complete JSON"),
    "fp32/memory-1": (lambda text: text.replace('"wall_seconds":', '"x": NaN, "y":', 1), "NaN"),
    "fp32/parity-1": (change(row="mixed"), "is a record of mixed_precision/mixed"),
    "mixed/throughput-1": (change(schema_version=2), "has schema version 2, not 1"),
    "mixed/throughput-2": (infinite, "samples_per_second"),
    "mixed/memory-1": (change_spec, "was it edited by hand"),
    "mixed/parity-1": (lambda text: "[]", "holds list, not a record"),
    "mixed/parity_mixed-1": (change(metrics=None), "without finite losses"),
}  # fmt: skip


def spoil(checkout: Checkout) -> None:
    records = checkout.folder / "results/cpu/records/mixed_precision"
    for name, (fault, _) in FAULTY_RECORDS.items():
        row, file = name.split("/")
        path = next(records.glob(f"{row}/*/{file}.json"))
        path.write_text(fault(path.read_text(encoding="utf-8")), encoding="utf-8")


def test_records_that_are_none(base, tmp_path):
    checkout = checkout_of(base, tmp_path)
    before = checkout.records()
    spoil(checkout)
    draft = checkout.snakemake("report", measure="never", draft="true")
    assert "Traceback" not in draft.stdout, draft.stdout[-3000:]
    rows = checkout.table("mixed_precision")["rows"]
    for row in rows:
        assert (row["state"], row["n"], row["samples_per_second"]) == ("missing", 0, None)
        for name, (_, reason) in FAULTY_RECORDS.items():
            if name.split("/")[0] == row["id"]:
                assert any(reason in text for text in row["invalid"]), (name, row["invalid"])
    assert_marked(checkout, FP32, "未測定", "not yet measured")
    result = checkout.snakemake("report")
    assert result.returncode == 0, result.stdout[-3000:]
    new = faults.measured_between(before, checkout.records())
    assert new == {f"{name}.json" for name in FAULTY_RECORDS}
    for reason in ("schema version 2", "edited by hand", "not complete JSON"):
        assert reason in result.stdout  # what is measured again, and why
    kept = list(checkout.folder.glob("results/cpu/records/*/*/superseded/*/*/*.json"))
    assert len(kept) == len(FAULTY_RECORDS)  # nothing is lost
    faults.nothing_left(checkout)


def test_without_the_check_a_faulty_record_is_published(base, tmp_path):
    checkout = checkout_of(base, tmp_path)
    path = next(checkout.folder.glob("results/cpu/records/*/fp32/*/throughput-1.json"))
    path.write_text(change(schema_version=1, row="mixed")(path.read_text("utf-8")), "utf-8")
    checked = aggregate(checkout)
    faults.replace(
        checkout,
        "workflow/trainmark/records.py",
        'if table is not None and (record["table"], record["row"]) != (table, row):',
        "if False:",
    )
    assert (checked, aggregate(checkout)) == (1, 2)


def aggregate(checkout: Checkout) -> int:
    """n of the fp32 row when its table is made anew."""
    folders = ["--plans", "build/plans/cpu", "--records", "results/cpu/records"]
    subprocess.run(
        [sys.executable, "-m", "trainmark", "tables", *folders, "--out", "results/cpu/tables"],
        cwd=checkout.folder,
        env={**checkout.environment, "PYTHONPATH": "workflow"},
        check=True,
    )
    return int(faults.row_of(checkout, "mixed_precision", "fp32")["n"])


def test_a_record_that_cannot_be_written_leaves_no_half_file(tmp_path):
    from trainmark_worker import records

    with pytest.raises(ValueError):
        records.write(tmp_path / "key/throughput-1.json", {"loss": float("nan")})
    assert list(tmp_path.rglob("*.*")) == []


# --- data, environment, clock ---------------------------------------------------------------------


def corrupt(checkout: Checkout, purpose: str) -> None:
    """Flip one byte of the data of a row's missing run."""
    plan = json.loads((checkout.folder / "build/plans/cpu/mixed_precision/fp32.json").read_text())
    run = next(run for run in plan["runs"] if run["purpose"] == purpose)
    path = checkout.folder / run["data"] / "input_ids.npy"
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(content)


def remove(checkout: Checkout, pattern: str) -> None:
    next(checkout.folder.glob(f"results/cpu/records/mixed_precision/{pattern}")).unlink()


def test_data_that_changed_after_it_was_prepared(base, tmp_path):
    checkout = checkout_of(base, tmp_path, retries=1)
    remove(checkout, "fp32/*/throughput-2.json")
    corrupt(checkout, "throughput")
    plant_half_file(checkout)
    before = checkout.records()
    result = checkout.snakemake("report")
    assert result.returncode != 0
    assert_told(result.stdout, FP32, "input_ids.npy", "is missing or was changed")
    assert_marked(checkout, FP32, "エラー", "error")
    assert len(faults.failed(checkout, FP32)) == 1  # trying again would not help
    again = checkout.snakemake("report")
    assert again.returncode == 0, again.stdout[-3000:]
    assert faults.measured_between(before, checkout.records()) == {"fp32/throughput-2.json"}
    faults.nothing_left(checkout)


def test_without_checksums_and_cleaning_changed_data_is_trained_on_and_half_files_stay(
    base, tmp_path
):
    checkout = checkout_of(base, tmp_path)
    remove(checkout, "fp32/*/throughput-2.json")
    corrupt(checkout, "throughput")
    half = plant_half_file(checkout)
    launch = "workflow/trainmark/launch.py"
    faults.replace(checkout, launch, "changed = _changed_data(launch)", "changed = set()")
    faults.replace(checkout, launch, "    remove_half_files(launch.folder)\n", "")
    result = checkout.snakemake("mixed_precision_fp32")
    assert result.returncode == 0
    assert "fp32/throughput-2.json" in faults.measured_between({}, checkout.records())
    assert faults.half_files(checkout) == [half]


def plant_half_file(checkout: Checkout) -> Path:
    """What a writer leaves that was killed while it wrote a record."""
    row = next(checkout.folder.glob("results/cpu/records/mixed_precision/fp32/*/memory-1.json"))
    half = row.with_name(".throughput-2.json.4321.part")
    half.write_text('{"schema_version": 1, ')
    return half


def test_lock_changed_between_repeats(base, tmp_path):
    """A new repeat in another environment never stands beside old ones: all are measured again."""
    checkout = checkout_of(base, tmp_path, repeats=3)
    before = checkout.records()
    lock = checkout.folder / "envs/modern.txt"
    lock.write_text(lock.read_text("utf-8") + "another-package==1.0\n", "utf-8")
    own_environment(checkout)
    result = checkout.snakemake("mixed_precision_fp32")
    assert result.returncode == 0, result.stdout[-3000:]
    new = faults.measured_between(before, checkout.records())
    assert new >= {f"fp32/throughput-{repeat}.json" for repeat in (1, 2, 3)}
    assert aggregate(checkout) == 3
    row = faults.row_of(checkout, "mixed_precision", "fp32")
    assert len({run["environment"] for run in row["runs"]}) == 1
    old = {path: record for path, record in checkout.records().items() if path in before}
    assert old == before  # the old environment's records are kept


def own_environment(checkout: Checkout, python: str | None = None) -> None:
    """Give the checkout an environment of its own: of the present lock, with another `python`."""
    code = "import pathlib, trainmark.experiments as e; print(e.lock_hash(pathlib.Path()))"
    hash_ = subprocess.run(
        [sys.executable, "-c", code],
        cwd=checkout.folder,
        env={**checkout.environment, "PYTHONPATH": "workflow"},
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    envs = checkout.folder / "build/envs"
    ready = next(envs.glob("modern-*/environment.json"))
    environment = json.loads(ready.read_text(encoding="utf-8"))
    environment.update(hash=hash_, python=python or environment["python"])
    if envs.is_symlink():
        envs.unlink()
    stamp = envs / f"modern-{hash_}/environment.json"
    stamp.parent.mkdir(parents=True)
    stamp.write_text(json.dumps(environment), encoding="utf-8")


def test_clock_that_was_wrong(base, tmp_path):
    """Records, failures and files from the future hide nothing and are not measured again."""
    checkout = checkout_of(base, tmp_path)
    records = checkout.folder / "results/cpu/records/mixed_precision"
    for path in records.glob("*/*/*.json"):
        text = path.read_text(encoding="utf-8")
        path.write_text(change(started="2099-01-01T00:00:00.000Z")(text), encoding="utf-8")
    future = time.time() + 10**8
    for path in (checkout.folder / "results").rglob("*"):
        os.utime(path, (future, future))
    result = checkout.snakemake("report")
    assert result.returncode == 0, result.stdout[-3000:]
    assert "measuring " not in result.stdout
    path = next(records.glob("fp32/*/throughput-1.json"))
    record = json.loads(path.read_text(encoding="utf-8"))
    record["metrics"]["samples_per_second"] = 98765.0
    path.write_text(json.dumps(record), encoding="utf-8")
    old = checkout.page("en")
    for path in (checkout.folder / "results/cpu/rows").rglob("*.json"):
        os.utime(path, (future, future))
    line = "    interrupt.correct_future_times(ROOT, ROOT / RESULTS)\n"
    faults.replace(checkout, "rules/common.smk", line, "")
    without = checkout.snakemake("report")
    assert without.returncode != 0 and "clock skew" in without.stdout
    main = "if IN_MAIN_PROCESS:\n"
    faults.replace(checkout, "rules/common.smk", main, main + line)
    assert checkout.snakemake("report").returncode == 0
    assert checkout.page("en") != old


# --- disks ----------------------------------------------------------------------------------------


def fill(folder: Path) -> Path:
    """Write until the disk that holds this folder is full."""
    path = folder / "filler"
    with path.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 2**16)
            file.flush()
    with path.open("ab") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), b"\0")
    return path


def one_sentence(output: str, *words: str) -> None:
    starts = ("trainmark measure:", "trainmark data:")
    line = next(line for line in output.splitlines() if line.startswith(starts))
    assert all(word in line for word in words), output[-3000:]


def test_full_and_read_only_disks(base, tmp_path):
    checkout = checkout_of(base, tmp_path, results=False, repeats=2, retries=1)
    steps(checkout, 30)
    checkout.edit("config/hardware/cpu.yaml", lambda h: h["preflight"].update(disk_gib=0))
    targets = ("mixed_precision_fp32", "mixed_precision_mixed")
    folder = checkout.folder / "results/cpu/records/mixed_precision/fp32"
    with faults.mounted(folder, "-t", "tmpfs", "-o", "size=60m", "none"):
        process = checkout.start(*targets)
        try:
            faults.wait_for_step(checkout, FP32, "throughput-2", process)
            filler = fill(folder)
            assert process.wait(240) != 0
        finally:
            kill_group(process)
        output = (checkout.folder / "started.log").read_text(encoding="utf-8")
        one_sentence(output, "No space left on device", "run the same command again")
        faults.nothing_left(checkout)
        before = checkout.records()
        assert {name.split("/")[1] for name in before} == {"fp32", "mixed"}  # finished its runs
        assert [path for path in before if "fp32" in path and "throughput-1" in path]
        nearly_full = checkout.snakemake(*targets)
        one_sentence(nearly_full.stdout, "0 MiB are free", "run the same command again")
        filler.unlink()
        result = checkout.snakemake(*targets)
        assert result.returncode == 0, result.stdout[-3000:]
        new = faults.measured_between(before, checkout.records())
        assert new == {f"fp32/{name}-{n}.json" for name, n in
                       (("throughput", 2), ("memory", 1), ("parity", 1))}  # fmt: skip
    assert not (checkout.folder / "results/cpu/rows/mixed_precision/nothing").exists()
    read_only(checkout, targets)


def read_only(checkout: Checkout, targets: tuple[str, ...]) -> None:
    """The records of fp32 lay on the disk that is gone now: they are to be measured again."""
    records = checkout.folder / "results/cpu/records"
    with faults.mounted(records, "--bind", str(records)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(records)], check=True)
        result = checkout.snakemake(*targets)
        assert result.returncode != 0
        one_sentence(result.stdout, "results/cpu/records", "Read-only file system")
        assert "Traceback" not in result.stdout
        faults.nothing_left(checkout)


def test_full_disk_under_the_logs(base, tmp_path):
    checkout = checkout_of(base, tmp_path)
    checkout.edit("config/hardware/cpu.yaml", lambda h: h["preflight"].update(disk_gib=0))
    remove(checkout, "fp32/*/throughput-2.json")
    before = checkout.records()
    logs = checkout.folder / "results/cpu/logs"
    with faults.mounted(logs, "-t", "tmpfs", "-o", "size=64k", "none"):
        fill(logs)
        result = checkout.snakemake("mixed_precision_fp32")
        assert result.returncode != 0
        assert "No space left on device" in result.stdout
        assert "Traceback" not in result.stdout, result.stdout[-3000:]
        faults.nothing_left(checkout)
    again = checkout.snakemake("report")
    assert again.returncode == 0, again.stdout[-3000:]
    assert faults.measured_between(before, checkout.records()) == {"fp32/throughput-2.json"}


def test_full_disk_while_data_is_prepared(base, tmp_path):
    checkout = checkout_of(base, tmp_path, results=False)
    manifests = [
        str(path.relative_to(checkout.folder))
        for path in checkout.folder.glob("build/data/*/manifest.json")
    ]
    data = checkout.folder / "build/data"
    with faults.mounted(data, "-t", "tmpfs", "-o", "size=64k", "none"):
        result = checkout.snakemake(*manifests)
        assert result.returncode != 0
        one_sentence(result.stdout)
        assert "No space left on device" in result.stdout or "is the disk full?" in result.stdout
        assert "Traceback" not in result.stdout
        assert not [path for path in data.rglob("*") if path.is_file()]


# --- ports, shared memory, compile locks; retries -------------------------------------------------

BAD_PORTS = """

_calls = Path(__file__).with_name("calls")
_holder = socket.socket()
_free = free_port


def free_port() -> int:
    with open(_calls, "a") as file:
        file.write(".")
    if os.path.getsize(_calls) not in (1, 5):
        return _free()
    _holder.close()
    globals()["_holder"] = taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    return taken.getsockname()[1]
"""


def tiny_zero1(base: Checkout, folder: Path) -> Checkout:
    from pipeline.conftest import TINY, make_checkout

    checkout = make_checkout(folder / "trainmark", ["sharding"])
    checkout.edit("config/config.yaml", lambda c: c.update(repeats=1, retries=1))
    checkout.edit(
        "config/hardware/cpu.yaml",
        lambda h: h["workloads"]["gpt-pretraining"].update(TINY, memory_limit_mib=None),
    )
    return checkout


def test_taken_port_no_shared_memory_and_stale_compile_lock(base, tmp_path):
    """All at once; the port is taken for the first and for the fifth process group."""
    checkout = tiny_zero1(base, tmp_path)
    launch = checkout.folder / "workflow/trainmark_worker/launch.py"
    text = launch.read_text(encoding="utf-8")
    after = "\n\ndef private_environment"
    launch.write_text(text.replace(after, BAD_PORTS + after))
    hide = "mount -t tmpfs -o ro,size=4k none /dev/shm"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("unshare --mount needs root with CAP_SYS_ADMIN")
    stale_locks(checkout, tmp_path, f'unshare --mount sh -c \'{hide} && exec "$0" "$@"\'')
    row = "sharding/zero1"
    first = checkout.snakemake("sharding_zero1")
    assert first.returncode != 0 and "sharding/zero1: throughput-1 error; log: " in first.stdout
    tries = list(faults.failed(checkout, row).values())
    assert [r["purpose"] for r in tries] == ["throughput", "throughput"]  # tried twice, both kept
    for record in tries:
        assert "EADDRINUSE" in record["cause"]["message"], record["cause"]
    assert "trying again (1 of 1)" in first.stdout
    before = checkout.records()
    assert len(before) == 3
    again = checkout.snakemake("sharding_zero1")
    assert again.returncode == 0, again.stdout[-3000:]
    assert faults.measured_between(before, checkout.records()) == {"zero1/throughput-1.json"}
    assert {r["outcome"] for r in checkout.records().values()} == {"ok"}
    faults.nothing_left(checkout)


def stale_locks(checkout: Checkout, folder: Path, wrapped: str = "") -> None:
    """Give the checkout a `python` whose folder of compiled extensions is locked by a dead one."""
    stamp = next(checkout.folder.glob("build/envs/*/environment.json"))
    python = json.loads(stamp.read_text())["python"]
    extensions = folder / "extensions"
    for name in ("deepspeed_shm_comm", "fused_adam", "cpu_adam", "utils"):
        (extensions / name).mkdir(parents=True)
        (extensions / name / "lock").touch()  # a killed compilation leaves it; later ones wait
    script = folder / "python"
    script.write_text(
        f'#!/bin/sh\nexport TORCH_EXTENSIONS_DIR={extensions}\nexec {wrapped} {shlex.quote(python)} "$@"\n'
    )
    script.chmod(0o755)
    own_environment(checkout, str(script))


def test_without_both_protections_a_run_waits_for_a_stale_compile_lock(base, tmp_path):
    """DeepSpeed is kept from compiling, and what still compiles does so in a folder of the run."""
    checkout = tiny_zero1(base, tmp_path)
    checkout.edit("config/config.yaml", lambda c: c.update(retries=0))
    checkout.edit("config/hardware/cpu.yaml", lambda h: h.update(time_limit_seconds=15))
    stale_locks(checkout, tmp_path)
    private = ', "TORCH_EXTENSIONS_DIR": folder / "extensions"}'
    faults.replace(checkout, "workflow/trainmark_worker/launch.py", private, "}")
    shim = "workflow/trainmark_worker/compat/deepspeed_no_shm.py"
    faults.replace(checkout, shim, '__["deepspeed_shm_comm"] = False', "__")
    assert checkout.snakemake("sharding_zero1").returncode != 0
    failed = faults.failed(checkout, "sharding/zero1").values()
    assert {record["outcome"] for record in failed} == {"timeout"}


def test_out_of_memory_is_not_tried_again(base, tmp_path):
    checkout = checkout_of(base, tmp_path, results=False, repeats=1, retries=3)
    checkout.edit(
        "config/hardware/cpu.yaml",
        # large tensors, so that it is torch's allocator that meets the limit, nothing smaller
        lambda h: h["workloads"]["bert-pretraining"].update(memory_limit_mib=12, hidden=512),
    )
    result = checkout.snakemake("mixed_precision_fp32")
    assert result.returncode == 0, result.stdout[-3000:]
    outcomes = {path.split("/")[-1]: r["outcome"] for path, r in checkout.records().items()}
    assert outcomes == {"throughput-1.json": "oom", "memory-1.json": "oom", "parity-1.json": "ok"}
    log = faults.log_of(checkout, FP32).read_text(encoding="utf-8")
    assert log.count("frameworks imported") == 1
    assert "trying again" not in result.stdout
    assert faults.failed(checkout, FP32) == {}
    assert "measuring " not in checkout.snakemake("-n", "mixed_precision_fp32").stdout


# --- repeats: auto, and load ----------------------------------------------------------------------


def test_adaptive_repeats_on_a_machine_that_others_use(base, tmp_path):
    checkout = checkout_of(
        base, tmp_path, results=False, repeats="auto", max_repeats=5, interval_limit=1e-9,
        foreign_load_limit=5,
    )  # fmt: skip
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        first = checkout.snakemake("report")
    finally:
        for other in others:
            other.kill()
    assert first.returncode == 0, first.stdout[-3000:]
    assert "of the CPU; waiting up to 0 s for a quiet machine" in first.stdout
    row = faults.row_of(checkout, "mixed_precision", "fp32")
    assert (row["n"], row["adaptive"]) == (5, True)
    log = faults.log_of(checkout, FP32).read_text(encoding="utf-8")
    assert log.count("frameworks imported") == 1  # added inside the row's launch
    records = checkout.records("mixed_precision/fp32/*/throughput-*.json").values()
    assert all(r["foreign_cpu_percent_before"] > 5 for r in records)
    assert all(r["load"]["foreign_cpu_percent"] > 5 for r in records)
    for language, word in (("ja", "ほかのプロセス"), ("en", "Other processes used")):
        assert word in checkout.page(language)
    wide = checkout.snakemake("mixed_precision_fp32", measure="again", interval_limit=100)
    assert wide.returncode == 0, wide.stdout[-3000:]
    assert len(checkout.records("mixed_precision/fp32/*/throughput-*.json")) == 3
    faults.nothing_left(checkout)
