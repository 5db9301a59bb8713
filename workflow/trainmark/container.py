"""`python -m trainmark container`: build, inspect, keep and run the image of the CUDA 10.2 line."""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from trainmark import engines
from trainmark.canonical import write_json
from trainmark.engine_commands import host_environment, kill_command, run_command
from trainmark.engines import Engine, Mount, detect
from trainmark.image import (
    OUT,
    ROOT,
    Wanted,
    check_present,
    environment_hash,
    image_path,
    ready,
    run_reference,
    wanted,
)
from trainmark.image_build import Log, build, save
from trainmark.worker import WORKER_ENVIRONMENT, Worker

__all__ = [  # what the launcher and the rules use
    "Engine",
    "Mount",
    "detect",
    "environment_hash",
    "host_environment",
    "image_path",
    "kill_command",
    "ready",
    "run_command",
    "run_reference",
    "start_worker",
]


# --- one worker in the container ------------------------------------------------------------------


def start_worker(
    image: Mapping[str, Any], todo: Mapping[str, Any], out: Path, workflow: Path, log: IO[str]
) -> Worker:
    """Start `trainmark_worker` in the image for these runs; never on the host.

    image: image.json. The code and the data are mounted read-only, at the host's paths, so that
    records and tracebacks name files that exist; only `out` can be written.
    """
    engine = detect(image["engine"]["name"])
    check_present(engine, image)
    name = f"trainmark-{os.getpid()}-{secrets.token_hex(4)}"

    def command(folder: Path) -> list[str]:
        write_json(folder / "todo.json", todo)
        return worker_command(engine, image, todo, folder, out, workflow, name)

    return Worker(command, log, kill_command(engine, name) or None)


def worker_command(
    engine: Engine,
    image: Mapping[str, Any],
    todo: Mapping[str, Any],
    folder: Path,
    out: Path,
    workflow: Path,
    name: str,
) -> list[str]:
    """The engine's whole command line for a todo file that lies in `folder`."""
    specs = [run["spec"] for run in todo["runs"]]
    threads = str(specs[0]["threads_per_rank"])
    read = [str(workflow), *sorted({run["data"] for run in todo["runs"]})]
    mounts = [Mount(path) for path in read]
    mounts += [Mount(str(folder), "/todo"), Mount(str(out), read_only=False)]
    env = {
        **WORKER_ENVIRONMENT,
        **host_environment(),
        **{k: os.environ[k] for k in ("CUDA_VISIBLE_DEVICES", "NCCL_DEBUG") if k in os.environ},
        "PYTHONPATH": str(workflow),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
    }
    argv = ["python3", "-m", "trainmark_worker", "--todo", "/todo/todo.json", "--out", str(out)]
    return run_command(
        engine,
        run_reference(engine, image),
        argv,
        name=name,
        mounts=mounts,
        env=env,
        gpus=any(spec["device"] == "cuda" for spec in specs),
    )


# --- command line ---------------------------------------------------------------------------------


def summary(image: Mapping[str, Any]) -> str:
    """What a person wants to know of the image."""
    found = image["versions"] or {}
    size = image["size_bytes"]
    seconds = image["build_seconds"]
    lines = [
        f"image     {image['reference']}",
        f"digest    {image['digest']}",
        f"size      {size / 1e9:.2f} GB" if size else "size      unknown",
        f"built in  {seconds / 60:.1f} min" if seconds else "built     before (found in storage)",
        f"base      {image['base']}",
    ]
    if found:
        packages = ", ".join(f"{k} {v}" for k, v in sorted(found["packages"].items()))
        missing = [name for name, ok in found["cuda_libraries"].items() if not ok]
        lines += [
            f"python    {found['python']}; CUDA {found['cuda']}; NCCL {found['nccl']}",
            f"GPUs      {' '.join(found['architectures'])}",
            f"packages  {packages}",
        ]
        if missing:
            lines.append(
                f"note      the base has no {', '.join(missing)}: "
                "ONNX Runtime cannot use a GPU in this image"
            )
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainmark container", description="the image of the CUDA 10.2 software line"
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--engine", help="docker, podman, buildah, apptainer or auto")
        command.add_argument("--base", help="image by digest, 'packages' or auto")
        command.add_argument("--image", help="a ready image by digest, or an archive")
        command.add_argument("--out", type=Path, default=OUT, help="folder of image descriptions")
        return command

    add("build", "build the image, or say that it is there").add_argument(
        "--archive", action="store_true", help="also write an archive beside image.json"
    )
    add("engines", "which container engines work here, and for what")
    add("hash", "print the identity of the environment")
    add("show", "print what is known of the built image")
    add("save", "write the built image to an archive").add_argument("archive", type=Path)
    run = add("run", "run a command in the image, for a look around")
    run.add_argument("--gpus", action="store_true", help="give it the GPUs")
    run.add_argument("--mount", action="append", default=[], help="a host folder, read-only")
    run.add_argument("argv", nargs=argparse.REMAINDER, help="-- command and arguments")
    return parser


def _settings(options: argparse.Namespace) -> Wanted:
    """config/config.yaml, with what was given on the command line on top."""
    from trainmark.config import read_yaml

    known = wanted(read_yaml(ROOT / "config" / "config.yaml"))
    return Wanted(
        options.engine or known.engine, options.base or known.base, options.image or known.image
    )


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    if options.command == "engines":
        print("\n".join(engines.abilities(engines.survey())))
        return 0
    settings = _settings(options)
    if options.command == "hash":
        print(environment_hash(settings))
        return 0
    if options.command == "build":
        print(summary(build(settings, options.out, options.archive)))
        return 0
    engine, image = ready(settings, options.out)
    if options.command == "show":
        print(summary(image))
        return 0
    if options.command == "save":
        log = Log(options.out / image["hash"] / "save.log")
        print(save(engine, image, options.archive, log))
        return 0
    mounts = [Mount(str(Path(path).resolve())) for path in options.mount]
    words = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    command = run_command(
        engine,
        run_reference(engine, image),
        words or ["python3", "--version"],
        name=f"trainmark-{os.getpid()}",
        mounts=mounts,
        gpus=options.gpus,
        env=host_environment(),
    )
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
