"""One launch of the training worker per group of tests: imports cost more than tiny runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import worker

ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.training)


@pytest.fixture(scope="session")
def modern_python() -> str:
    """The interpreter of the modern line."""
    named = os.environ.get("TRAINMARK_MODERN_PYTHON")
    found = [Path(named)] if named else sorted((ROOT / "build/envs").glob("modern*/bin/python"))
    if not found or not found[0].exists():
        pytest.skip(
            "the training environment is not built: run `make test`, or set TRAINMARK_MODERN_PYTHON"
        )
    return str(found[0])


@pytest.fixture(scope="session")
def launch(modern_python, tmp_path_factory) -> worker.Worker:
    data = worker.write_data(tmp_path_factory.mktemp("data"))
    return worker.Worker(modern_python, data, tmp_path_factory.mktemp("worker"))


SHARDING = ("oss", "sdp", "fsdp", "fsdp2", "zero1", "zero2", "zero3")
LAYOUTS = ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (4, 4))


def _megatron(tp, pp, precision="fp32", **changes):
    ranks = max(4, tp * pp)
    return worker.spec(
        "megatron", precision, tensor_parallel=tp, pipeline_parallel=pp, ranks=ranks, **changes
    )


@pytest.fixture(scope="session")
def gpt(launch) -> dict[str, dict]:
    """GPT under every strategy, with faults, and what cannot run; one launch."""
    specs = {"ddp": worker.spec(), "single": worker.spec(ranks=1)}
    specs["ddp-mixed"] = worker.spec("ddp", "mixed")
    specs["adamw"] = worker.spec(name="adamw", learning_rate=1e-3)
    for strategy in SHARDING:
        specs[strategy] = worker.spec(strategy)
        specs[f"{strategy}-mixed"] = worker.spec(strategy, "mixed")
    for tp, pp in LAYOUTS:
        specs[f"tp{tp}-pp{pp}"] = _megatron(tp, pp)
    for tp, pp in ((1, 1), (2, 2)):
        specs[f"tp{tp}-pp{pp}-mixed"] = _megatron(tp, pp, "mixed")
        specs[f"tp{tp}-pp{pp}-checkpoint"] = _megatron(tp, pp, activation_checkpointing=True)
    specs["sdpa"] = worker.spec(attention="sdpa")
    specs["fault-sdp"] = worker.spec("faulty.sdp_optimizer_reset")
    specs["fault-sum"] = worker.spec("faulty.ddp_sum")
    specs["fault-data"] = worker.spec("faulty.ddp_other_data")
    specs["fault-clip"] = worker.spec("faulty.ddp_no_clip")
    specs["fault-seed"] = {**_megatron(1, 2), "strategy": "faulty.megatron_other_seed"}
    specs["unsupported-ranks"] = {**_megatron(4, 4), "ranks": 4}
    specs["unsupported-heads"] = _megatron(4, 1, heads=2)
    specs["unsupported-layers"] = _megatron(1, 4, layers=6)
    return launch.run(specs)


@pytest.fixture(scope="session")
def bert(launch) -> dict[str, dict]:
    """BERT pre-training under every strategy that takes it; one launch."""
    specs = {"single": worker.spec(ranks=1)}
    for strategy in ("ddp", *SHARDING):
        specs[strategy] = worker.spec(strategy)
    for strategy in ("ddp", "sdp", "fsdp", "fsdp2", "zero2"):
        specs[f"{strategy}-mixed"] = worker.spec(strategy, "mixed")
    specs["checkpoint"] = worker.spec(activation_checkpointing=True)
    for spec in specs.values():
        spec.update(workload="bert-pretraining", timed_steps=5)
        spec["model"]["layers"] = 2
    return launch.run(specs)
