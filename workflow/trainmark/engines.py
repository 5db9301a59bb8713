"""Container engines: which ones work here, and the exact command lines that each one needs.

Standard library only, so that Snakemake can use it while it parses. `which` and `probe` can be
replaced, so that machines unlike this one are tested too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmark.errors import UserError

NAMES = ("docker", "podman", "buildah", "apptainer")
INSTALL = {
    "docker": "install Docker Engine (Debian: apt-get install docker.io) and start its daemon",
    "podman": "install podman (Debian: apt-get install podman runc)",
    "buildah": "install buildah and podman (Debian: apt-get install buildah podman runc)",
    "apptainer": "install apptainer and, to build the image, podman or buildah",
}
PROBES = {
    "docker": ["info", "--format", "{{.ServerVersion}} {{.SecurityOptions}}"],
    "podman": ["version", "--format", "{{.Client.Version}}"],
    "buildah": ["--version"],
    "apptainer": ["--version"],
}
PROBE_SECONDS = 20


@dataclass(frozen=True)
class Found:
    """One engine on this machine: `fault` is None when it works."""

    name: str
    program: str | None
    version: str
    fault: str | None
    rootless: bool = False


@dataclass(frozen=True)
class Engine:
    """What to use: `runner` runs images, `builder` builds and stores them ("" where missing)."""

    name: str
    runner: str
    builder: str
    version: str = ""
    rootless: bool = False

    @property
    def kind(self) -> str:
        """The command-line family of the runner."""
        return "podman" if self.name == "buildah" else self.name

    @property
    def builder_kind(self) -> str:
        name = Path(self.builder).name
        return "docker" if name.startswith("docker") else "podman"


@dataclass(frozen=True)
class Mount:
    """A host folder inside the container, at the same path unless `target` says otherwise."""

    source: str
    target: str = ""
    read_only: bool = True


Probe = Callable[[Sequence[str]], "tuple[int, str]"]


def run_probe(command: Sequence[str]) -> tuple[int, str]:
    """Exit status and combined output; a hanging daemon counts as not answering."""
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {PROBE_SECONDS} s"
    except OSError as error:
        return 127, str(error)
    return done.returncode, (done.stdout + done.stderr).strip()


def look_at(
    name: str, which: Callable[[str], str | None] = shutil.which, probe: Probe = run_probe
) -> Found:
    """Is this engine installed, and does it answer?"""
    program = which(name) or (which("singularity") if name == "apptainer" else None)
    if program is None:
        return Found(name, None, "", "is not installed")
    status, output = probe([program, *PROBES[name]])
    first = output.splitlines()[0] if output else ""
    if status:
        last = output.splitlines()[-1] if output else f"exit status {status}"
        what = (
            "is installed, but its daemon does not answer" if name == "docker" else "does not work"
        )
        return Found(name, program, "", f"{what} ({last.rstrip('.')})")
    rootless = "rootless" in output if name == "docker" else os.geteuid() != 0
    version = first.split()[0] if name in ("docker", "podman") else _version_word(first)
    return Found(name, program, version, None, rootless)


def _version_word(line: str) -> str:
    return next((word for word in line.split() if word[:1].isdigit()), line)


def survey(
    which: Callable[[str], str | None] = shutil.which, probe: Probe = run_probe
) -> dict[str, Found]:
    return {name: look_at(name, which, probe) for name in NAMES}


def abilities(found: Mapping[str, Found]) -> list[str]:
    """One line per engine: what it is and what it can be used for."""
    builder = next((n for n in ("podman", "buildah", "docker") if found[n].fault is None), None)
    lines = []
    for name in NAMES:
        engine = found[name]
        if engine.fault:
            lines.append(f"{name}: {engine.fault}")
            continue
        uses = "builds and runs the image"
        if name == "buildah" and found["podman"].fault:
            uses = "builds the image, but needs podman to run it"
        if name == "apptainer":
            uses = f"runs the image, {f'built by {builder}' if builder else 'if given an archive'}"
        mode = ", rootless" if engine.rootless else ""
        lines.append(f"{name}: {engine.version}{mode}; {uses}")
    return lines


def choose(configured: str, found: Mapping[str, Found]) -> Engine:
    """The engine to use. Raises UserError with what to install; never falls back to another one."""
    if configured == "auto":
        for name in NAMES:
            if (engine := _engine(name, found)) and engine.runner:
                return engine
        faults = "; ".join(f"{name} {found[name].fault}" for name in NAMES if found[name].fault)
        raise UserError(
            f"container.engine: no container engine works on this machine ({faults}); "
            f"{INSTALL['podman']}"
        )
    if configured not in NAMES:
        raise UserError(
            f"container.engine: there is no engine {configured!r}; "
            f"allowed are auto, {', '.join(NAMES)}"
        )
    engine = _engine(configured, found)
    if engine is None:
        others = [name for name in NAMES if found[name].fault is None and name != configured]
        instead = f", or set container.engine to {' or '.join(others)}" if others else ""
        raise UserError(
            f"container.engine: {configured} {found[configured].fault}; "
            f"{INSTALL[configured]}{instead}"
        )
    if not engine.runner:
        raise UserError(
            f"container.engine: {configured} can build the image, but nothing here runs it; "
            f"{INSTALL['podman']}"
        )
    return engine


def _engine(name: str, found: Mapping[str, Found]) -> Engine | None:
    engine = found[name]
    if engine.fault or engine.program is None:
        return None
    runner = builder = engine.program
    if name == "buildah":
        runner = found["podman"].program or "" if found["podman"].fault is None else ""
    if name == "apptainer":
        builders = (found[n] for n in ("podman", "buildah", "docker"))
        builder = next((b.program or "" for b in builders if b.fault is None), "")
    return Engine(name, runner, builder, engine.version, engine.rootless)


def detect(
    configured: str = "auto",
    which: Callable[[str], str | None] = shutil.which,
    probe: Probe = run_probe,
) -> Engine:
    """Look at this machine and choose; asks only the engines that matter."""
    if configured in NAMES:
        needed = {configured, *(("podman",) if configured == "buildah" else ())}
        if configured == "apptainer":
            needed = set(NAMES)
        found = {
            name: look_at(name, which, probe)
            if name in needed or which(name)
            else Found(name, None, "", "is not installed")
            for name in NAMES
        }
        return choose(configured, found)
    return choose(configured, survey(which, probe))
