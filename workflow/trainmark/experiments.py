"""From configuration to plans: which runs each row wants, with the spec and the key of every run.

Everything here runs whenever Snakemake reads the Snakefile, so it stays fast and imports no framework.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmark_worker.count import parameters

from trainmark import records
from trainmark.canonical import digest, write_if_changed, write_json
from trainmark.config import (
    Config,
    Row,
    Size,
    Table,
    Training,
    ranks_of,
    unsupported_reason,
)

SPEC_VERSION = 1
MEMORY_STEPS = 2  # the second step has gradients and optimizer states alive from its start
REFERENCE = "reference"  # the pseudo table of parity references


@dataclass(frozen=True)
class Environment:
    """A training environment: where it is described once it exists, and the hash of what it is."""

    name: str
    hash: str
    stamp: Path


@dataclass
class RowPlan:
    """A row, what it wants to run and where that lies."""

    table: str
    row: str
    plan: dict[str, Any]
    path: Path
    data_keys: list[str]
    missing: list[records.Run] = field(default_factory=list)


@dataclass
class Experiments:
    """All plans of one hardware profile, and the recipes of the data that they need."""

    hardware: str
    environment: Environment
    rows: list[RowPlan]
    recipes: dict[str, dict[str, Any]]

    def find(self, table: str, row: str) -> RowPlan:
        return next(plan for plan in self.rows if (plan.table, plan.row) == (table, row))

    def of_table(self, table: str) -> list[RowPlan]:
        return [plan for plan in self.rows if plan.table == table]


def build(config: Config, root: Path) -> Experiments:
    """Make every plan. Nothing is written."""
    environment = environment_of(config, root)
    recipes: dict[str, dict[str, Any]] = {}
    rows = [
        _row_plan(config, root, environment, table, training, order, recipes)
        for order, (table, training) in enumerate(_trainings(config))
    ]
    return Experiments(config.settings.hardware, environment, rows, recipes)


def write(experiments: Experiments, root: Path) -> None:
    """Write plans and recipes whose text changed, and remove plans of rows that no longer exist."""
    for key, recipe in experiments.recipes.items():
        write_if_changed(root / "build" / "recipes" / f"{key}.json", recipe)
    for row in experiments.rows:
        write_if_changed(root / row.path, row.plan)
    known = {root / row.path for row in experiments.rows}
    for path in (root / "build" / "plans" / experiments.hardware).glob("*/*.json"):
        if path not in known:
            path.unlink()


def take_all_for_missing(experiments: Experiments) -> None:
    """With measure: again, whatever the target needs is to be run, also where records exist."""
    for row in experiments.rows:
        row.missing = records.wanted_runs(row.plan)


def find_missing(experiments: Experiments, root: Path, results: Path) -> None:
    """Note the missing runs of every row, and drop row summaries that no longer tell the truth.

    A summary is derived from records; while it exists Snakemake takes the row for measured.
    """
    for row in experiments.rows:
        folder = root / results / "records" / row.table / row.row
        row.missing = records.missing_runs(row.plan, folder)
        summary = root / results / "rows" / row.table / f"{row.row}.json"
        if summary.is_file() and (row.missing or not _speaks_for(summary, row.plan)):
            summary.unlink()
        if not row.missing and not row.plan["auto_repeats"] and not summary.is_file():
            _restore(summary, row.plan, folder)


def _restore(summary: Path, plan: dict[str, Any], folder: Path) -> None:
    """Write the summary of a row whose records are all there: no job is needed for that.

    It is dated like its records, so that nothing made from it looks older.
    """
    write_json(summary, records.summary(plan, folder))
    newest = max(run.path(folder).stat().st_mtime for run in records.wanted_runs(plan, folder))
    os.utime(summary, (newest, newest))


def _speaks_for(summary: Path, plan: dict[str, Any]) -> bool:
    try:
        keys = json.loads(summary.read_text(encoding="utf-8"))["keys"]
    except (ValueError, KeyError, TypeError):
        return False
    return bool(keys == records.summary_keys(plan))


# --- rows and runs --------------------------------------------------------------------------------


def _trainings(config: Config) -> Iterator[tuple[Table | None, Training]]:
    used = {row.parity_reference or table.parity_reference for table, row in _rows(config)}
    for reference in config.tables.references:
        if reference.id in used:
            yield None, reference
    yield from _rows(config)


def _rows(config: Config) -> Iterator[tuple[Table, Row]]:
    for table in config.tables.tables:
        for row in table.rows:
            yield table, row


def _row_plan(
    config: Config,
    root: Path,
    environment: Environment,
    table: Table | None,
    training: Training,
    order: int,
    recipes: dict[str, dict[str, Any]],
) -> RowPlan:
    workload = table.workload if table else training.workload  # type: ignore[attr-defined]
    table_id = table.id if table else REFERENCE
    runs: list[dict[str, Any]] = []
    for purpose, repeat in _purposes(config, table, training):
        spec = make_spec(config, workload, training, purpose)
        recipe = _recipe(config, root, workload, _size(config, workload, purpose))
        data_key = digest(recipe)
        recipes[data_key] = recipe
        parts = {
            "spec": digest(spec),
            "code": code_hash(root, training.strategy, workload),
            "environment": environment.hash,
            "data": data_key,
        }
        runs.append(
            {
                "purpose": purpose,
                "repeat": repeat,
                "key": records.key_of(parts),
                "key_parts": parts,
                "data": f"build/data/{data_key}",
                "spec": spec,
            }
        )
    hardware = config.settings.hardware
    plan = {
        "schema_version": SPEC_VERSION,
        "order": order,
        "table": table_id,
        "row": training.id,
        "workload": workload,
        "baseline": table.baseline if table else None,
        "published": isinstance(training, Row) and training.published,
        "parity_reference": _parity_reference(table, training),
        "hardware": hardware,
        "hardware_title": config.hardware.title,
        "tried": config.hardware.tried,
        "stand_in": stand_in_reason(config, training),
        "peak_tflops": config.hardware.peak_tflops,
        "unsupported": unsupported_reason(training, config.hardware),
        "environment": {"name": environment.name, "hash": environment.hash},
        "launcher": config.hardware.launcher,
        "time_limit_seconds": config.hardware.time_limit_seconds,
        "auto_repeats": _auto_repeats(config, table),
        "spread_limit": config.settings.spread_limit,
        "runs": runs,
    }
    path = Path("build/plans") / hardware / table_id / f"{training.id}.json"
    data_keys = sorted({str(run["key_parts"]["data"]) for run in runs})
    return RowPlan(table_id, training.id, plan, path, data_keys)


def _purposes(config: Config, table: Table | None, training: Training) -> Iterator[tuple[str, int]]:
    if table is None:
        yield "parity", 1
        return
    repeats = config.settings.repeats
    for repeat in range(1, (3 if repeats == "auto" else repeats) + 1):
        yield "throughput", repeat
    yield "memory", 1
    yield "parity", 1
    if training.precision == "mixed":
        yield "parity_mixed", 1


def _auto_repeats(config: Config, table: Table | None) -> dict[str, Any] | None:
    if table is None or config.settings.repeats != "auto":
        return None
    return {
        "maximum": config.settings.max_repeats,
        "interval_limit": config.settings.interval_limit,
    }


def _parity_reference(table: Table | None, training: Training) -> dict[str, str] | None:
    if table is None:
        return None
    own = training.parity_reference if isinstance(training, Row) else None
    return {"table": REFERENCE, "row": own or table.parity_reference}


def _size(config: Config, workload: str, purpose: str) -> Size:
    sizes = config.tables.parity if is_parity(purpose) else config.hardware.workloads
    return next(size for name, size in sizes.items() if name == workload)


def is_parity(purpose: str) -> bool:
    return purpose.startswith("parity")


def stand_in_reason(config: Config, training: Training) -> str | None:
    """Why this machine trains the row in another precision than declared, or None."""
    for stand_in in config.hardware.stand_ins:
        if (
            stand_in.strategy == training.strategy
            and training.precision != stand_in.precision
            and training.tensor_parallel >= stand_in.minimum_tensor_parallel
        ):
            return stand_in.reason
    return None


def make_spec(config: Config, workload: str, training: Training, purpose: str) -> dict[str, Any]:
    """The flat spec of one run: everything about the training itself that determines its record."""
    size = _size(config, workload, purpose)
    hardware = config.hardware
    precision = training.precision
    if purpose == "parity" or stand_in_reason(config, training):
        precision = "fp32"
    checkpointing = training.activation_checkpointing
    if checkpointing is None or is_parity(purpose):
        checkpointing = size.activation_checkpointing
    model = {
        "layers": size.layers,
        "hidden": size.hidden,
        "heads": size.heads,
        "vocabulary": size.vocabulary,
        "sequence_length": size.sequence_length,
        "dropout": size.dropout,
    }
    return {
        "schema_version": SPEC_VERSION,
        "purpose": purpose,
        "workload": workload,
        "strategy": training.strategy,
        "precision": precision,
        "mixed_dtype": hardware.mixed_dtype,
        "tensor_parallel": training.tensor_parallel,
        "pipeline_parallel": training.pipeline_parallel,
        "ranks": ranks_of(training, hardware),
        "device": hardware.device,
        "threads_per_rank": hardware.threads_per_rank,
        "model": model,
        "options": {"activation_checkpointing": checkpointing, "attention": size.attention},
        "micro_batch": size.micro_batch,
        "global_batch": size.global_batch,
        "optimizer": {
            "name": size.optimizer,
            "learning_rate": size.learning_rate,
            "beta1": 0.9,
            "beta2": 0.95,
            "epsilon": 1e-8,
            "weight_decay": 0.01,
            "momentum": 0.9,
        },
        "gradient_clipping": size.gradient_clipping,
        "warmup_steps": size.warmup_steps if purpose == "throughput" else 0,
        "timed_steps": MEMORY_STEPS if purpose == "memory" else size.timed_steps,
        "memory_limit_mib": None if is_parity(purpose) else size.memory_limit_mib,
        "seed": config.tables.seed,
        "declared_parameters": parameters({"workload": workload, "model": model}),
    }


# --- what determines a record besides its spec ----------------------------------------------------


def environment_of(config: Config, root: Path) -> Environment:
    if config.hardware.line == "cu102":
        from trainmark import container

        hash_ = container.environment_hash(config)
        return Environment("cu102", hash_, Path(f"build/image/{hash_}/image.json"))
    hash_ = lock_hash(root)
    return Environment("modern", hash_, Path(f"build/envs/modern-{hash_}/environment.json"))


def lock_hash(root: Path) -> str:
    """The hash of the modern line: its locked requirements and the Python that will run them."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    locks = {path.name: _requirements(path) for path in sorted((root / "envs").glob("modern*.txt"))}
    return digest({"python": python, "locks": locks})


def _requirements(path: Path) -> list[str]:
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return sorted(line for line in lines if line and not line.startswith("#"))


@functools.cache
def code_hash(root: Path, strategy: str, workload: str) -> str:
    """The hash of the worker code that a run executes: not of other strategies, nor of comments."""
    worker = root / "workflow" / "trainmark_worker"
    own = {"strategies": strategy, "workloads": workload.replace("-", "_")}
    parts = {
        str(path.relative_to(worker)): _code_of(path)
        for path in sorted(worker.rglob("*.py"))
        if _is_executed(path, worker, own)
    }
    return digest(parts)


def _is_executed(path: Path, worker: Path, own: dict[str, str]) -> bool:
    mine = own.get(path.parent.name)
    if path.parent.parent != worker or mine is None:
        return True
    return path.stem in (mine, "base", "__init__") or path.stem.startswith("_")


@functools.cache
def _code_of(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _recipe(config: Config, root: Path, workload: str, size: Size) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "workload": workload,
        "vocabulary": size.vocabulary,
        "sequence_length": size.sequence_length,
        "samples": size.samples,
        "seed": config.tables.seed,
        "corpus": _corpus(config),
        "corpus_sha256": _corpus_digest(config.settings.data.corpus, config.settings.data.sha256),
        "code": _code_digest(root),
    }


def _corpus(config: Config) -> dict[str, str | None] | None:
    corpus = config.settings.data.corpus
    if corpus is None:
        return None
    if corpus.startswith(("http://", "https://")):
        return {"url": corpus, "sha256": config.settings.data.sha256}
    return {"path": corpus}


@functools.cache
def _corpus_digest(corpus: str | None, sha256: str | None) -> str:
    from trainmark.corpus import corpus_digest

    if corpus is None:
        return corpus_digest(None)
    if corpus.startswith(("http://", "https://")):
        return str(sha256)
    return corpus_digest({"path": corpus})


@functools.cache
def _code_digest(root: Path) -> str:
    names = ("data.py", "corpus.py", "samples.py", "tokens.py")
    files = (root / "workflow" / "trainmark" / name for name in names)
    return digest([_code_of(path) for path in files])


def git_commit(root: Path) -> str | None:
    """The commit of the checkout, with -dirty where tracked files differ; None outside git."""
    import subprocess

    try:
        return subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
