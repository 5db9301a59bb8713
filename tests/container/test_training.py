"""Every framework trains in the image, on CPU ranks, and computes what the modern line computes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainmark import container

ROOT = Path(__file__).parents[2]
SAMPLES, LENGTH, VOCABULARY = 64, 64, 512
TOLERANCE = {"parity": 1e-4, "parity_mixed": 5e-3}
# fp32 losses of `ddp` in the modern line (torch 2.13.0), same data, seed and size.
MODERN = {
    "gpt-pretraining": [
        6.247326, 6.178855, 6.142857, 6.058296, 6.068564,
        6.030271, 5.953413, 5.92054, 5.874224, 5.824912,
    ],
    "bert-pretraining": [
        6.991532, 6.939572, 6.925087, 6.818018, 6.8042,
        6.80929, 6.82716, 6.775573, 6.460296, 6.485633,
    ],
    "bert-finetuning": [
        0.683192, 0.745294, 0.682236, 0.674423, 0.661436,
        0.710653, 0.703876, 0.733646, 0.653165, 0.714892,
    ],
}  # fmt: skip


def arrays(workload: str) -> dict[str, np.ndarray]:
    """Tokens with a skewed distribution, so that the loss falls."""
    random = np.random.RandomState(0)
    weights = 1 / (np.arange(VOCABULARY) + 3.0)
    weights /= weights.sum()

    def tokens(*shape: int) -> np.ndarray:
        return random.choice(VOCABULARY, size=shape, p=weights).astype(np.int32)

    if workload == "gpt-pretraining":
        return {"tokens": tokens(SAMPLES, LENGTH + 1)}
    common = {
        "input_ids": tokens(SAMPLES, LENGTH),
        "token_type_ids": np.zeros((SAMPLES, LENGTH), np.uint8),
    }
    if workload == "bert-finetuning":
        mask = np.ones((SAMPLES, LENGTH), np.uint8)
        labels = random.randint(0, 2, SAMPLES).astype(np.int32)
        return {**common, "attention_mask": mask, "labels": labels}
    positions = [np.sort(random.permutation(LENGTH)[:10]) for _ in range(SAMPLES)]
    return {
        **common,
        "masked_positions": np.stack(positions).astype(np.int32),
        "masked_labels": tokens(SAMPLES, 10),
        "next_sentence_label": random.randint(0, 2, SAMPLES).astype(np.int32),
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder per workload, as `python -m trainmark data` writes them."""
    root = tmp_path_factory.mktemp("data")
    for workload in ("gpt-pretraining", "bert-pretraining", "bert-finetuning"):
        folder = root / workload
        folder.mkdir()
        files = {}
        for name, array in arrays(workload).items():
            np.save(folder / f"{name}.npy", array)
            content = (folder / f"{name}.npy").read_bytes()
            files[f"{name}.npy"] = {
                "sha256": hashlib.sha256(content).hexdigest(),
                "bytes": len(content),
            }
        manifest = {
            "schema_version": 1, "workload": workload, "key": "test", "vocabulary": VOCABULARY,
            "sequence_length": LENGTH, "samples": SAMPLES, "files": files, "unigram_loss": 5.0,
        }  # fmt: skip
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return root


def spec(workload: str, purpose: str, strategy: str, **more: Any) -> dict[str, Any]:
    return {
        "schema_version": 1, "purpose": purpose, "workload": workload, "strategy": strategy,
        "precision": "fp32" if purpose == "parity" else "mixed", "mixed_dtype": "bfloat16",
        "tensor_parallel": 1, "pipeline_parallel": 1, "ranks": 4, "device": "cpu",
        "threads_per_rank": 1,
        "model": {"layers": 4 if workload == "gpt-pretraining" else 2, "hidden": 64, "heads": 4,
                  "vocabulary": VOCABULARY, "sequence_length": LENGTH, "dropout": 0.0},
        "options": {"activation_checkpointing": False, "attention": "eager"},
        "micro_batch": 1, "global_batch": 8,
        "optimizer": {"name": "adamw", "learning_rate": 1e-3, "beta1": 0.9,
                      "beta2": 0.95 if workload == "gpt-pretraining" else 0.999, "epsilon": 1e-8,
                      "weight_decay": 0.01, "momentum": 0.9},
        "gradient_clipping": 1.0, "warmup_steps": 0, "timed_steps": 10,
        "memory_limit_mib": None, "seed": 1234, "declared_parameters": None, **more,
    }  # fmt: skip


def train(
    built: dict[str, Any], data: Path, out: Path, specs: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Run the specs in one container; yields their records."""
    out.mkdir()
    runs = [
        {
            "purpose": one["purpose"], "repeat": 1, "key": f"{index:016x}",
            "key_parts": {"spec": "s", "code": "c", "environment": "e", "data": "d"},
            "data": str(data / one["workload"]), "spec": one,
        }
        for index, one in enumerate(specs)
    ]  # fmt: skip
    todo = {
        "schema_version": 1, "table": "test", "row": "test", "hardware": "cpu-cu102",
        "environment": {"name": "cu102", "hash": built["hash"], "image_digest": built["digest"]},
        "launcher": "fork", "time_limit_seconds": 300, "context": {"git_commit": None},
        "commands": {f"{one['purpose']}-1": "pytest" for one in specs}, "runs": runs,
    }  # fmt: skip
    log_path = out / "log.txt"
    with log_path.open("w") as log:
        worker = container.start_worker(built, todo, out, ROOT / "workflow", log)
        try:
            status = worker.events(400, lambda event: None)
        finally:
            worker.close()
    assert status == 0, log_path.read_text()[-3000:]
    for index, one in enumerate(specs):
        files = sorted((out / f"{index:016x}").rglob("*.json"))
        assert files, f"no record of {one['purpose']}: {log_path.read_text()[-3000:]}"
        yield json.loads(files[0].read_text())


def difference(record: dict[str, Any], expected: list[float]) -> float:
    assert record["outcome"] == "ok", record["cause"]
    losses = record["metrics"]["losses"]
    return max(abs(a - b) for a, b in zip(losses, expected, strict=True))


@pytest.mark.parametrize(
    ("strategy", "workload", "layout"),
    [
        ("ddp", "bert-pretraining", {}),
        ("ort", "bert-finetuning", {}),
        ("sdp", "gpt-pretraining", {}),
        ("fsdp", "gpt-pretraining", {}),
        ("zero3", "gpt-pretraining", {}),
        ("megatron", "gpt-pretraining", {"tensor_parallel": 2, "pipeline_parallel": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_frameworks_train_as_the_modern_line_does(
    built: dict[str, Any],
    data: Path,
    tmp_path: Path,
    strategy: str,
    workload: str,
    layout: dict[str, int],
) -> None:
    # torch 1.12 autocasts a CPU to bfloat16 only, and ONNX Runtime's CPU provider has none
    purposes = ["parity"] if strategy == "ort" else ["parity", "parity_mixed"]
    specs = [spec(workload, purpose, strategy, **layout) for purpose in purposes]
    for record in train(built, data, tmp_path / "out", specs):
        assert difference(record, MODERN[workload]) < TOLERANCE[record["purpose"]]
        assert record["environment"]["packages"]["torch"].startswith("1.12.1")
        assert record["environment"]["image_digest"] == built["digest"]


def test_what_this_torch_lacks_is_unsupported_with_its_own_error(
    built: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    (record,) = train(built, data, tmp_path / "out", [spec("gpt-pretraining", "parity", "fsdp2")])
    assert record["outcome"] == "unsupported"
    assert "cannot import name 'fully_shard'" in record["cause"]["message"]


def test_a_fault_inside_the_container_is_recorded(
    built: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    wrong = spec("gpt-pretraining", "parity", "ddp")
    wrong["model"]["vocabulary"] = VOCABULARY // 2  # the data has larger ids
    (record,) = train(built, data, tmp_path / "out", [wrong])
    assert record["outcome"] == "error"
    assert "index out of range" in record["cause"]["traceback"]
