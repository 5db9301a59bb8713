"""`python -m trainmark preflight`: is this machine what the hardware profile declares?

Captures what the machine says, compares it, reports every mismatch together, and writes both to a
file that goes into the records and onto the page.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainmark import nvidia
from trainmark.canonical import write_json
from trainmark.config import Hardware, Requirements, read_yaml
from trainmark.errors import UserError
from trainmark.nvidia import Mismatch

SMI_SECONDS = 60  # a healthy driver answers in a few seconds, without persistence mode in ten
TRIES = 3
GIB = 2**30


@dataclass(frozen=True)
class Answer:
    """What a command said. status: None when it is not installed, 124 when it hung."""

    status: int | None
    text: str


Ask = Callable[[list[str]], Answer]


def ask(command: list[str]) -> Answer:
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, errors="replace",
            timeout=SMI_SECONDS, stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except FileNotFoundError:
        return Answer(None, "")
    except subprocess.TimeoutExpired:
        return Answer(124, "")
    except OSError as error:
        return Answer(126, str(error))
    return Answer(done.returncode, done.stdout or done.stderr)


@dataclass(frozen=True)
class Host:
    """Room on this machine, in bytes; no shared memory where the container engine provides it."""

    memory: int
    disk: int
    disk_path: str
    shared_memory: int | None


def measure_host(folder: Path, *, in_container: bool) -> Host:
    path = folder.resolve()
    while not path.exists():
        path = path.parent
    shm = Path("/dev/shm")
    shared = None if in_container else shutil.disk_usage(shm).free if shm.is_dir() else 0
    return Host(available_memory(), shutil.disk_usage(path).free, str(path), shared)


def available_memory(meminfo: str | None = None) -> int:
    """Bytes that programs could still use (MemAvailable)."""
    text = meminfo if meminfo is not None else Path("/proc/meminfo").read_text()
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def compare_host(host: Host, expected: Requirements) -> list[Mismatch]:
    """Too little memory, disk or shared memory."""
    faults = []
    if host.memory < expected.memory_gib * GIB:
        found = f"{host.memory / GIB:.1f} GiB available"
        faults.append(Mismatch("memory", found, f"at least {expected.memory_gib} GiB"))
    if host.disk < expected.disk_gib * GIB:
        found = f"{host.disk / GIB:.1f} GiB free in {host.disk_path}"
        faults.append(Mismatch("disk", found, f"at least {expected.disk_gib} GiB"))
    wanted = expected.shared_memory_mib
    if host.shared_memory is not None and host.shared_memory < wanted * 2**20:
        found = f"{host.shared_memory / 2**20:,.0f} MiB free in /dev/shm"
        advice = f"mount -o remount,size={wanted}m /dev/shm"
        faults.append(Mismatch("shared memory", found, f"at least {wanted:,} MiB", advice))
    if host.shared_memory is None and host.memory < wanted * 2**20:
        found = f"{host.memory / 2**20:,.0f} MiB of memory"
        faults.append(Mismatch("shared memory", found, f"at least {wanted:,} MiB"))
    return faults


@dataclass
class Found:
    """What the machine said: mismatches, notes, and facts with the captured text."""

    mismatches: list[Mismatch]
    notes: list[str]
    machine: dict[str, Any]


def look_at_gpus(expected: Requirements, asker: Ask = ask, pause: float = 1.0) -> Found:
    """Ask nvidia-smi; again when the only fault is utilisation, which asking itself can cause."""
    for attempt in range(TRIES):
        found = _look_once(expected, asker)
        if not nvidia.only_utilisation(found.mismatches):
            break
        if attempt < TRIES - 1:
            time.sleep(pause)
    return found


def _look_once(expected: Requirements, asker: Ask) -> Found:
    answer = asker(["nvidia-smi", "-q", "-x"])
    machine: dict[str, Any] = {"nvidia_smi": None, "topology": None}
    fault = _no_answer(answer)
    if fault is None:
        try:
            gpus = nvidia.parse(answer.text)
        except nvidia.Unreadable as error:
            fault = nvidia.explain(str(error))
    if fault is not None:
        machine["nvidia_smi"] = answer.text.strip() or None
        return Found([fault], [], machine)
    machine |= {
        **nvidia.facts(gpus),
        "nvidia_smi": _text_of(asker(["nvidia-smi"])),
        "topology": _text_of(asker(["nvidia-smi", "topo", "-m"])),
    }
    return Found(*nvidia.compare(gpus, expected), machine)


def _text_of(answer: Answer) -> str | None:
    return answer.text.rstrip() or None if answer.status == 0 else None


def _no_answer(answer: Answer) -> Mismatch | None:
    driver = "a working NVIDIA driver"
    if answer.status is None:
        return Mismatch("GPUs", "no nvidia-smi", driver, "install the driver")
    if answer.status == 124:
        found = f"nvidia-smi gave no answer within {SMI_SECONDS} s"
        return Mismatch("GPUs", found, driver, "a GPU may hang: look for Xid in dmesg, then reboot")
    return nvidia.explain(answer.text) if answer.status else None


def look_at_cpu(asker: Ask = ask) -> Found:
    return Found([], [], {"lscpu": _text_of(asker(["lscpu"]))})


def inspect(hardware: Hardware, folder: Path, asker: Ask = ask) -> Found:
    """Everything that the profile asks for, on this machine."""
    expected = hardware.preflight
    found = look_at_gpus(expected, asker) if hardware.device == "cuda" else look_at_cpu(asker)
    host = measure_host(folder, in_container=hardware.line == "cu102")
    found.mismatches += compare_host(host, expected)
    found.machine["host"] = asdict(host)
    return found


def report(name: str, found: Found, *, allowed: bool) -> dict[str, Any]:
    """The content of the preflight file."""
    return {
        "schema_version": 1,
        "hardware": name,
        "passed": not found.mismatches,
        "allow_mismatch": allowed,
        "mismatches": [{**asdict(m), "text": str(m)} for m in found.mismatches],
        "notes": found.notes,
        "machine": found.machine,
    }


def refusal(profile: str, found: Found) -> str:
    """What a user is told when the machine is another one than declared."""
    faults = "\n  ".join(str(mismatch) for mismatch in found.mismatches)
    return (
        f"this machine is not what {profile} declares:\n  {faults}\n"
        "correct it, or measure all the same with --config allow_mismatch=true "
        "(the page will say so)"
    )


def read_hardware(path: Path) -> Hardware:
    try:
        return Hardware.model_validate(read_yaml(path))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise UserError(f"{path}: {faults}") from None


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="trainmark preflight",
        description="Check that this machine is what a hardware profile declares: driver, GPUs "
        "and whether they are idle, memory, disk. All mismatches are reported together.",
    )
    parser.add_argument("--hardware", type=Path, required=True, help="config/hardware/NAME.yaml")
    parser.add_argument("--out", type=Path, help="where to write what was found (JSON)")
    parser.add_argument(
        "--allow-mismatch", action="store_true", help="go on; the page is stamped with it"
    )
    options = parser.parse_args(argv)
    hardware = read_hardware(options.hardware)
    folder = options.out.parent if options.out else Path.cwd()
    found = inspect(hardware, folder, ask)
    name = options.hardware.stem
    for note in found.notes:
        print(f"note: {note}")
    if found.mismatches and not options.allow_mismatch:
        raise UserError(refusal(str(options.hardware), found))
    for mismatch in found.mismatches:
        print(f"mismatch, allowed: {mismatch}")
    if options.out:
        write_json(options.out, report(name, found, allowed=options.allow_mismatch))
    print(f"preflight for {name}: {'passed' if not found.mismatches else 'goes on'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
