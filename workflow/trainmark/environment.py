"""Build a training environment (a venv) from its locked requirements, in steps that say what they do."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trainmark.canonical import write_json
from trainmark.errors import UserError

# DeepSpeed would compile all its operators at install time; none is needed.
BUILD_ENV = {"DS_BUILD_OPS": "0", "BUILD_CUDA_EXTENSIONS": "0", "MAX_JOBS": "2"}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Build the training environment of the modern software line. Its folder is "
        "named after the hash of the lock, so a changed lock makes a new environment.",
    )
    parser.add_argument("--locks", type=Path, required=True, help="the envs/ folder")
    parser.add_argument("--hash", required=True, help="the hash of the lock (recorded)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, required=True, help="environment.json to write")
    arguments = parser.parse_args(argv)
    build(arguments.locks.resolve(), arguments.hash, arguments.device, arguments.out)
    return 0


def build(locks: Path, hash_: str, device: str, stamp: Path) -> None:
    """Make the venv beside `stamp`, then write the stamp: half an environment has none."""
    started = time.monotonic()
    folder = stamp.parent.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    say(f"building the training environment {folder.name}")
    say("  about 250 MB to download with torch's CPU build, 3 GB with its CUDA build")
    run([sys.executable, "-m", "venv", str(folder)], "making the virtual environment")
    python = folder / "bin" / "python"
    install(python, locks / "modern-build.txt", "build tools")
    install_torch(python, locks, device)
    install(
        python,
        locks / "modern.txt",
        "transformers, DeepSpeed, fairscale, Megatron-core, ONNX Runtime",
    )
    build_ort_extension(python, locks.parent / "workflow")
    run([str(python), "-m", "pip", "check"], "checking that all requirements agree", pip=True)
    seconds = time.monotonic() - started
    write_json(stamp, describe(python, hash_, seconds))
    say(f"  done in {seconds:.0f} s")


def install(python: Path, lock: Path, what: str) -> None:
    """pip verifies every file's hash; --no-deps because the lock already names all of them."""
    command = [
        str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--no-deps", "--no-build-isolation", "--require-hashes", "-r", str(lock),
    ]  # fmt: skip
    run(command, f"installing {what}", pip=True)


def install_torch(python: Path, locks: Path, device: str) -> None:
    """For CPU ranks the small CPU build where an index has it, else the CUDA build."""
    if device == "cpu":
        try:
            install(python, locks / "modern-torch-cpu.txt", "torch (CPU build, 200 MB)")
            return
        except UserError as error:
            say(f"  no CPU build to be had: {str(error).splitlines()[-1]}")
            say("  taking the CUDA build instead (3 GB); README: how to get the CPU build")
    install(python, locks / "modern-torch-cuda.txt", "torch (CUDA build)")
    install(python, locks / "modern-cuda.txt", "CUDA libraries")


def build_ort_extension(python: Path, workflow: Path) -> None:
    """ORTModule needs a small C++ extension that its wheel does not contain."""
    environment = {"PYTHONPATH": str(workflow)}
    command = [str(python), "-m", "trainmark_worker.compat.build_ort_extension"]
    run(command, "compiling ONNX Runtime's torch extension", environment)


def run(
    command: list[str], what: str, environment: dict[str, str] | None = None, pip: bool = False
) -> None:
    say(f"  {what} ...")
    result = subprocess.run(
        command,
        env={**os.environ, **BUILD_ENV, "PYTHONPATH": "", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode:
        tail = "\n".join(result.stdout.strip().splitlines()[-15:])
        hint = " Is the package index reachable, and is there space on the disk?" if pip else ""
        raise UserError(f"{what} failed.{hint} The last lines were:\n{tail}")


def describe(python: Path, hash_: str, seconds: float) -> dict[str, Any]:
    version = subprocess.run(
        [str(python), "-c", "import platform; print(platform.python_version())"],
        capture_output=True,
        text=True,
        check=True,
    )
    freeze = subprocess.run(
        [str(python), "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        "schema_version": 1,
        "name": "modern",
        "hash": hash_,
        "python": str(python),
        "python_version": version.stdout.strip(),
        "packages": dict(line.split("==", 1) for line in freeze.stdout.split() if "==" in line),
        "build_seconds": round(seconds, 1),
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
