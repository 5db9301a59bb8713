"""Runs of the training worker for tests: tiny specs, data, one launch for many runs."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent

SPEC: dict[str, Any] = {
    "schema_version": 1,
    "purpose": "parity",
    "workload": "gpt-pretraining",
    "strategy": "ddp",
    "precision": "fp32",
    "mixed_dtype": "bfloat16",
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "ranks": 4,
    "device": "cpu",
    "threads_per_rank": 1,
    "model": {
        "layers": 4,
        "hidden": 32,
        "heads": 4,
        "vocabulary": 256,
        "sequence_length": 32,
        "dropout": 0.0,
    },
    "options": {"activation_checkpointing": False, "attention": "eager"},
    "micro_batch": 1,
    "global_batch": 8,
    # SGD, because Adam hides a gradient that is a constant multiple of the right one.
    "optimizer": {
        "name": "sgd",
        "learning_rate": 0.2,
        "beta1": 0.9,
        "beta2": 0.95,
        "epsilon": 1e-8,
        "weight_decay": 0.01,
        "momentum": 0.9,
    },
    "gradient_clipping": 1.0,
    "warmup_steps": 0,
    "timed_steps": 6,
    "memory_limit_mib": None,
    "seed": 1234,
    "declared_parameters": 60096,
}


def spec(strategy: str = "ddp", precision: str = "fp32", **changes: Any) -> dict[str, Any]:
    """SPEC with changes; a key of `model`, `options` or `optimizer` is found there."""
    changed = copy.deepcopy(SPEC)
    changed.update(strategy=strategy, precision=precision)
    for name, value in changes.items():
        places = (changed, changed["model"], changed["options"], changed["optimizer"])
        place = next((p for p in places if name in p), changed["options"])
        place[name] = value
    return changed


def write_data(root: Path, vocabulary: int = 256, length: int = 32, rows: int = 64) -> Path:
    """A folder per workload, with Zipf-distributed tokens, as the contract describes."""
    random = np.random.RandomState(3)
    odds = 1 / np.arange(1, vocabulary + 1)
    odds /= odds.sum()

    def draw(*shape: int) -> np.ndarray:
        return random.choice(vocabulary, size=shape, p=odds).astype(np.int32)

    def save(workload: str, **arrays: np.ndarray) -> None:
        folder = root / workload
        folder.mkdir(parents=True)
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        facts = {"workload": workload, "key": "test", "samples": rows, "unigram_loss": 4.8}
        (folder / "manifest.json").write_text(json.dumps(facts))

    save("gpt-pretraining", tokens=draw(rows, length + 1))
    ids = draw(rows, length)
    masked = round(0.15 * length)
    positions = np.stack([np.sort(random.permutation(length)[:masked]) for _ in range(rows)])
    labels = np.take_along_axis(ids, positions, 1)
    np.put_along_axis(ids, positions, 3, 1)
    following = random.randint(0, 2, rows)
    segments = np.zeros((rows, length), np.uint8)
    segments[:, length // 2 :] = 1
    save(
        "bert-pretraining",
        input_ids=ids,
        token_type_ids=segments,
        masked_positions=positions.astype(np.int32),
        masked_labels=labels,
        next_sentence_label=following.astype(np.uint8),
    )
    return root


class Worker:
    """Launches `python -m trainmark_worker` in the modern environment."""

    def __init__(self, python: str, data: Path, folder: Path):
        self.python, self.data, self.folder = python, data, folder
        self.launches = 0

    def todo(self, specs: dict[str, dict], launcher: str, limit: float, data: Path | None) -> dict:
        runs = [
            {
                "purpose": s["purpose"],
                "repeat": 1,
                "key": key,
                "key_parts": {},
                "data": str((data or self.data) / s["workload"]),
                "spec": s,
            }
            for key, s in specs.items()
        ]
        return {
            "schema_version": 1,
            "table": "test",
            "row": "test",
            "hardware": "test",
            "environment": {"name": "modern", "hash": "test", "image_digest": None},
            "launcher": launcher,
            "time_limit_seconds": limit,
            "context": {"git_commit": "test", "command": "test"},
            "runs": runs,
        }

    def start(
        self, specs, launcher="fork", limit=300.0, data=None
    ) -> tuple[subprocess.Popen, Path]:
        self.launches += 1
        out = self.folder / str(self.launches)
        out.mkdir()
        todo = out / "todo.json"
        todo.write_text(json.dumps(self.todo(specs, launcher, limit, data)))
        path = os.pathsep.join(map(str, (ROOT / "workflow", HERE)))
        process = subprocess.Popen(
            [self.python, "-m", "trainmark_worker", "--todo", todo, "--out", out / "records"],
            env={**os.environ, "PYTHONPATH": path},
            stdout=open(out / "events", "wb"),
            stderr=open(out / "log", "wb"),
        )
        return process, out

    def run(self, specs: dict[str, dict], **options: Any) -> dict[str, dict]:
        """Records by the given names."""
        process, out = self.start(specs, **options)
        status = process.wait()
        assert status == 0, (out / "log").read_text()[-3000:]
        return {key: record(out / "records" / key) for key in specs}

    def script(self, code: str, **environment: str) -> subprocess.CompletedProcess:
        """A small Python program in the environment."""
        path = os.pathsep.join(map(str, (ROOT / "workflow", HERE)))
        return subprocess.run(
            [self.python, "-c", code],
            env={**os.environ, "PYTHONPATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )


def record(folder: Path) -> dict[str, Any]:
    """The only record under a key, failed attempts included."""
    (path,) = folder.rglob("*.json")
    return json.loads(path.read_text())


def losses(record: dict[str, Any]) -> list[float]:
    assert record["outcome"] == "ok", record["cause"]
    return record["metrics"]["losses"]


def difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """max |difference of losses|, as trainmark's parity check computes it."""
    return max(abs(a - b) for a, b in zip(losses(one), losses(other), strict=True))
