"""Real Snakemake runs in copies of this checkout, with small workloads and the real frameworks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
COPIED = ("Snakefile", "config", "envs", "profiles", "report", "rules", "workflow", "docker")
# Steps of milliseconds; everything else as in config/hardware/cpu.yaml.
TINY = {
    "layers": 2, "hidden": 64, "heads": 4, "vocabulary": 512, "sequence_length": 64,
    "micro_batch": 2, "global_batch": 8, "warmup_steps": 1, "timed_steps": 3, "samples": 256,
}  # fmt: skip


def yaml_read(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


def yaml_write(path: Path, value: Any) -> None:
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(value, file)


@dataclass
class Checkout:
    """A copy of the repository that shares this checkout's built environment."""

    folder: Path
    lock: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "TRAINMARK_LOCK": str(self.lock), "PYTHONDONTWRITEBYTECODE": "1"}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", "--cores", "4", *arguments]

    def snakemake(
        self, *arguments: str, timeout: float = 600, **overrides: Any
    ) -> subprocess.CompletedProcess[str]:
        pairs = [f"{name}={value}" for name, value in overrides.items()]
        pairs.append("foreign_load_wait_seconds=0")
        command = self.command(*arguments, "--config", *pairs)
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = self.command(*arguments, "--config", "foreign_load_wait_seconds=0")
        log = (self.folder / "started.log").open("wb")
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def edit(self, name: str, change: Any) -> None:
        """Read a YAML file, let `change` alter it in place, write it back."""
        path = self.folder / name
        value = yaml_read(path)
        change(value)
        yaml_write(path, value)

    def records(self, pattern: str = "*/*/*/*.json") -> dict[str, dict[str, Any]]:
        """{path below results/cpu/records: record}, without failed and superseded ones."""
        base = self.folder / "results/cpu/records"
        return {
            str(path.relative_to(base)): json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(base.glob(pattern))
        }

    def table(self, name: str) -> dict[str, Any]:
        path = self.folder / f"results/cpu/tables/{name}.json"
        return json.loads(path.read_text(encoding="utf-8"))

    def page(self, language: str) -> str:
        path = self.folder / f"results/cpu/page/{language}/index.html"
        return path.read_text(encoding="utf-8")


def make_checkout(folder: Path, tables: list[str] | None = None) -> Checkout:
    folder.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    (folder / "build").mkdir()
    environments = ROOT / "build" / "envs"
    if not any(environments.glob("modern-*/environment.json")):
        reason = "the training environment is not built: run `make test`, or snakemake environment"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    (folder / "build" / "envs").symlink_to(environments)
    checkout = Checkout(folder, folder / "measure.lock")
    checkout.edit("config/config.yaml", lambda c: c.update(repeats=2))
    checkout.edit("config/hardware/cpu.yaml", shrink)
    if tables is not None:
        keep = lambda t: t["tables"].__setitem__(  # noqa: E731
            slice(None), [table for table in t["tables"] if table["id"] in tables]
        )
        checkout.edit("config/tables.yaml", keep)
    return checkout


def shrink(hardware: dict[str, Any]) -> None:
    for name, size in hardware["workloads"].items():
        if name != "gpt-pretraining":
            size.update(TINY)
        else:  # its size is what makes one row run out of memory; only the steps are fewer
            size.update(warmup_steps=1, timed_steps=2, samples=64)


def measured_once(folder: Path) -> Checkout:
    """One table with its page (n = 2), in a path that is not plain ASCII."""
    checkout = make_checkout(folder / "a path 計測" / "trainmark", ["mixed_precision"])
    result = checkout.snakemake("report")
    assert result.returncode == 0, result.stdout[-4000:]
    return checkout


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """For the tests that work on copies of it."""
    return measured_once(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def small_measured(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """For the tests that leave it able to be measured again."""
    return measured_once(tmp_path_factory.mktemp("measured"))


def kill_group(process: subprocess.Popen[bytes], number: int = signal.SIGKILL) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass
