"""Synthetic plans and records: what the worker would have written, without training anything.

`Results(folder)` makes the trees that commands read: `plans/<table>/<row>.json` and
`records/<table>/<row>/<key>/<purpose>-<n>.json`. Everything is deterministic.

    results = Results(tmp_path)
    results.declare_all()                      # the 21 published rows and fsdp2
    results.measure_all()                      # plausible records for each of them
    results.measure("sharding", "oss", throughput=[6.0, 6.1, 6.2], peak_mib=140.0)
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Json = dict[str, Any]

START = datetime(2026, 11, 1, 9, 0, 0, tzinfo=UTC)

MODELS: dict[str, Json] = {
    "bert-pretraining": {
        "layers": 4,
        "hidden": 192,
        "heads": 4,
        "vocabulary": 1024,
        "sequence_length": 128,
        "dropout": 0.1,
    },
    "gpt-pretraining": {
        "layers": 4,
        "hidden": 192,
        "heads": 8,
        "vocabulary": 1024,
        "sequence_length": 384,
        "dropout": 0.1,
    },
    "bert-finetuning": {
        "layers": 4,
        "hidden": 192,
        "heads": 4,
        "vocabulary": 1024,
        "sequence_length": 128,
        "dropout": 0.1,
    },
}
PARAMETERS = {
    "bert-pretraining": 2_122_562,
    "gpt-pretraining": 2_050_944,
    "bert-finetuning": 2_046_914,
}
UNIGRAM = {"bert-pretraining": 6.31, "gpt-pretraining": 6.28, "bert-finetuning": 0.6931}

# table -> workload, rows: id -> (strategy, precision, tensor parallel, pipeline parallel)
TABLES: dict[str, tuple[str, dict[str, tuple[str, str, int, int]]]] = {
    "mixed_precision": (
        "bert-pretraining",
        {"fp32": ("ddp", "fp32", 1, 1), "mixed": ("ddp", "mixed", 1, 1)},
    ),
    "sharding": (
        "gpt-pretraining",
        {
            "baseline": ("megatron", "fp32", 1, 1),
            "mixed": ("megatron", "mixed", 1, 1),
            **{
                name: (name, "mixed", 1, 1)
                for name in ("oss", "sdp", "fsdp", "zero1", "zero2", "zero3", "fsdp2")
            },
        },
    ),
    "parallelism": (
        "gpt-pretraining",
        {
            f"tp{tp}_pp{pp}": ("megatron", "mixed", tp, pp)
            for tp, pp in ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (4, 4))
        },
    ),
    "onnxruntime": (
        "bert-finetuning",
        {
            "fp32": ("ddp", "fp32", 1, 1),
            "mixed": ("ddp", "mixed", 1, 1),
            "ort": ("ort", "fp32", 1, 1),
            "ort_mixed": ("ort", "mixed", 1, 1),
        },
    ),
}
BASELINES = {
    "mixed_precision": "fp32",
    "sharding": "mixed",
    "parallelism": "tp1_pp1",
    "onnxruntime": "fp32",
}
REFERENCES = {
    "bert-pretraining": ("bert-pretraining", 4),
    "gpt-pretraining": ("gpt-pretraining", 4),
    "gpt-pretraining-single": ("gpt-pretraining", 1),
    "bert-finetuning": ("bert-finetuning", 4),
}
# plausible (samples/s, peak MiB) of every row
NUMBERS: dict[tuple[str, str], tuple[float, float]] = {
    ("mixed_precision", "fp32"): (21.4, 118.2),
    ("mixed_precision", "mixed"): (27.9, 92.6),
    ("sharding", "mixed"): (5.21, 154.0),
    ("sharding", "oss"): (4.62, 143.1),
    ("sharding", "sdp"): (4.71, 135.3),
    ("sharding", "fsdp"): (4.02, 125.0),
    ("sharding", "zero1"): (5.02, 149.8),
    ("sharding", "zero2"): (4.98, 141.0),
    ("sharding", "zero3"): (3.17, 131.7),
    ("sharding", "fsdp2"): (4.33, 119.4),
    ("parallelism", "tp1_pp1"): (5.24, 154.0),
    ("parallelism", "tp2_pp1"): (3.91, 98.4),
    ("parallelism", "tp4_pp1"): (2.77, 66.0),
    ("parallelism", "tp1_pp2"): (4.88, 91.2),
    ("parallelism", "tp1_pp4"): (4.31, 60.3),
    ("parallelism", "tp2_pp2"): (3.55, 58.8),
    ("parallelism", "tp4_pp4"): (1.94, 41.7),
    ("onnxruntime", "fp32"): (61.2, 44.9),
    ("onnxruntime", "mixed"): (70.5, 40.1),
    ("onnxruntime", "ort"): (63.0, 47.2),
    ("onnxruntime", "ort_mixed"): (55.8, 52.3),
}

OOM_TRACEBACK = """Traceback (most recent call last):
  File "trainmark_worker/train.py", line 88, in step
    loss = workload.loss(model(batch))
  File "torch/nn/modules/module.py", line 1779, in _call_impl
    return forward_call(*args, **kwargs)
  File "megatron/core/transformer/dot_product_attention.py", line 186, in forward
    attention_scores = torch.baddbmm(
RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate \
memory: you tried to allocate 9437184 bytes. Error code 12 (Cannot allocate memory)
"""


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def make_spec(
    workload: str,
    strategy: str,
    precision: str,
    tp: int = 1,
    pp: int = 1,
    *,
    purpose: str = "throughput",
    ranks: int | None = None,
    device: str = "cpu",
    **changes: Any,
) -> Json:
    """The flat specification of one run (see the contract of the worker)."""
    parity = purpose.startswith("parity")
    spec: Json = {
        "schema_version": 1,
        "purpose": purpose,
        "workload": workload,
        "strategy": strategy,
        "precision": precision,
        "mixed_dtype": "bfloat16" if device == "cpu" else "float16",
        "tensor_parallel": tp,
        "pipeline_parallel": pp,
        "ranks": ranks or max(4, tp * pp),
        "device": device,
        "threads_per_rank": 1,
        "model": dict(MODELS[workload]),
        "options": {"activation_checkpointing": False, "attention": "eager"},
        "micro_batch": 2,
        "global_batch": 16,
        "optimizer": {
            "name": "adamw",
            "learning_rate": 1e-3,
            "beta1": 0.9,
            "beta2": 0.95,
            "epsilon": 1e-8,
            "weight_decay": 0.01,
            "momentum": 0.9,
        },
        "gradient_clipping": 1.0,
        "warmup_steps": 2 if purpose == "throughput" else 0,
        "timed_steps": 10 if parity else 8 if purpose == "throughput" else 3,
        "memory_limit_mib": 185 if workload == "gpt-pretraining" and not parity else None,
        "seed": 1234,
        "declared_parameters": PARAMETERS[workload],
    }
    if parity:
        spec["model"] = {**spec["model"], "layers": 2, "hidden": 64, "dropout": 0.0}
        spec["declared_parameters"] = None
    spec.update(changes)
    return spec


def key_parts(spec: Json, code: str = "c0de", environment: str = "e0", data: str = "d0") -> Json:
    return {
        "spec": digest(spec),
        "code": digest(code),
        "environment": digest(environment),
        "data": digest(data),
    }


def make_run(spec: Json, repeat: int = 1, **parts: str) -> Json:
    found = key_parts(spec, **parts)
    return {
        "purpose": spec["purpose"],
        "repeat": repeat,
        "key": digest(found),
        "key_parts": found,
        "data": "build/data/x",
        "spec": spec,
    }


def make_plan(
    table: str,
    row: str,
    specs: list[Json],
    *,
    order: int,
    repeats: int = 3,
    hardware: str = "cpu",
    reference: str | None = None,
    parts: Json | None = None,
    **more: Any,
) -> Json:
    """A row's plan: `repeats` throughput runs and one of each other purpose in `specs`."""
    runs = []
    for spec in specs:
        count = repeats if spec["purpose"] == "throughput" else 1
        runs += [make_run(spec, n, **(parts or {})) for n in range(1, count + 1)]
    plan: Json = {
        "schema_version": 1,
        "table": table,
        "row": row,
        "hardware": hardware,
        "order": order,
        "workload": specs[0]["workload"],
        "baseline": None,
        "published": True,
        "parity_reference": {"table": "reference", "row": reference} if reference else None,
        "hardware_title": {"cpu": "CPU ranks"}.get(hardware, hardware),
        "tried": True,
        "stand_in": None,
        "peak_tflops": {},
        "unsupported": None,
        "auto_repeats": None,
        "spread_limit": 0.1,
        "environment": {"name": "modern", "hash": digest("modern")},
        "launcher": "fork",
        "time_limit_seconds": 600,
        "runs": runs,
    }
    plan.update(more)
    return plan


def reference_losses(workload: str, steps: int = 10) -> list[float]:
    top = UNIGRAM[workload] + 0.6
    return [round(top * 0.97**step, 7) for step in range(steps)]


def make_record(
    plan: Json,
    run: Json,
    *,
    outcome: str = "ok",
    samples_per_second: float = 5.0,
    peak_mib: float = 100.0,
    losses: list[float] | None = None,
    cause: Json | None = None,
    minute: float = 0.0,
    **changes: Any,
) -> Json:
    """The record of one run; `changes` replace whole top-level fields."""
    spec = run["spec"]
    steps, workload = spec["timed_steps"], spec["workload"]
    started = START + timedelta(minutes=minute)
    wall = spec["global_batch"] * steps / samples_per_second
    if losses is None:
        parity = spec["purpose"].startswith("parity")
        total = steps + spec["warmup_steps"]
        losses = (
            reference_losses(workload, steps)
            if parity
            else [(UNIGRAM[workload] + 0.6) * 0.94**step for step in range(total)]
        )
    ranks, ok = spec["ranks"], outcome == "ok"
    memory = {
        "method": "torch.profiler",
        "peak_reserved_bytes": None,
        "peak_allocated_bytes": [int(peak_mib * 2**20) - 4096 * rank for rank in range(ranks)],
        "steady_bytes": [int(peak_mib * 2**19)] * ranks,
    }
    model = PARAMETERS[workload] if not spec["purpose"].startswith("parity") else 150_000
    record: Json = {
        "schema_version": 1,
        "table": plan["table"],
        "row": plan["row"],
        "hardware": plan["hardware"],
        "purpose": run["purpose"],
        "repeat": run["repeat"],
        "key": run["key"],
        "key_parts": run["key_parts"],
        "spec": spec,
        "outcome": outcome,
        "cause": cause,
        "metrics": {
            "step_seconds": [wall / steps * (1 + 0.01 * ((3 * k) % 5 - 2)) for k in range(steps)],
            "wall_seconds": wall,
            "samples_per_second": samples_per_second,
            "losses": losses,
            "flops_per_second": samples_per_second * 6e9,
        }
        if ok
        else None,
        "parameters": {
            "model": model,
            "per_rank": [model // (spec["tensor_parallel"] * spec["pipeline_parallel"])] * ranks,
        }
        if ok
        else None,
        "dtypes": {
            "compute": "bfloat16" if spec["precision"] == "mixed" else "float32",
            "products": None,
            "weights": "float32",
            "optimizer": "float32",
            "gradient_reduction": "float32",
            "note": None,
        }
        if ok
        else None,
        "memory": memory if ok and run["purpose"] == "memory" else None,
        "data": {"key": "d" * 16, "unigram_loss": UNIGRAM[workload], "manifest_sha256": "0" * 64},
        "environment": {
            **plan["environment"],
            "image_digest": None,
            "python": "3.11.7",
            "packages": {
                "torch": "2.13.0+cpu",
                "transformers": "5.24.0",
                "deepspeed": "0.19.8",
                "fairscale": "0.4.13",
                "megatron-core": "0.16.1",
                "numpy": "2.4.6",
            },
        },
        "machine": {
            "cpu_model": "Example CPU @ 2.50GHz",
            "cores": 2,
            "memory_bytes": 24 * 2**30,
            "kernel": "6.1.0",
            "devices": [],
            "driver": None,
            "cuda": None,
            "nccl": None,
            "nvidia_smi": None,
            "topology": None,
            "clocks": None,
        },
        "load": {"before": [0.2, 0.3, 0.3], "after": [3.9, 1.8, 0.8], "foreign_cpu_percent": 1.5},
        "started": _iso(started),
        "finished": _iso(started + timedelta(seconds=wall + 4)),
        "duration_seconds": wall + 4,
        "git_commit": "0123456789abcdef0123456789abcdef01234567",
        "command": f"python -m trainmark measure --table {plan['table']} --row {plan['row']}",
    }
    record.update(changes)
    return record


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def make_cause(kind: str = "RuntimeError", message: str = "it broke", **more: Any) -> Json:
    return {
        "type": kind,
        "message": message,
        "traceback": OOM_TRACEBACK,
        "rank": 1,
        "phase": "forward",
        "step": 0,
        "micro_batch_index": 0,
        "exit_code": 1,
        "signal": None,
        **more,
    }


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


class Results:
    """A `plans/` and a `records/` tree below one folder."""

    def __init__(self, folder: Path, hardware: str = "cpu", repeats: int = 3) -> None:
        self.folder, self.hardware, self.repeats = folder, hardware, repeats
        self.plans, self.records = folder / "plans", folder / "records"
        self.tables, self.page = folder / "tables", folder / "page"
        self.minute = 0.0
        self.plans.mkdir(parents=True, exist_ok=True)
        self.records.mkdir(parents=True, exist_ok=True)

    @property
    def device(self) -> str:
        return "cpu" if self.hardware == "cpu" else "cuda"

    def declare(
        self,
        table: str,
        row: str,
        workload: str,
        strategy: str,
        precision: str,
        tp: int = 1,
        pp: int = 1,
        *,
        order: int = 0,
        parts: Json | None = None,
        more: Json | None = None,
        **changes: Any,
    ) -> Json:
        """Write the plan of a row that wants throughput, memory and parity runs."""
        wanted = ["throughput", "memory", "parity"] + ["parity_mixed"] * (precision == "mixed")
        specs = [
            make_spec(
                workload,
                strategy,
                "fp32" if purpose == "parity" else precision,
                tp,
                pp,
                purpose=purpose,
                device=self.device,
                **changes,
            )
            for purpose in wanted
        ]
        plan = make_plan(
            table,
            row,
            specs,
            order=order,
            repeats=self.repeats,
            hardware=self.hardware,
            reference=workload,
            parts=parts,
            **{"baseline": BASELINES.get(table, row), **(more or {})},
        )
        write_json(self.plans / table / f"{row}.json", plan)
        return plan

    def declare_references(self) -> None:
        for index, (row, (workload, ranks)) in enumerate(REFERENCES.items()):
            spec = make_spec(
                workload, "ddp", "fp32", purpose="parity", ranks=ranks, device=self.device
            )
            plan = make_plan("reference", row, [spec], order=index, hardware=self.hardware)
            write_json(self.plans / "reference" / f"{row}.json", plan)

    def declare_all(self) -> None:
        self.declare_references()
        for i, (table, (workload, rows)) in enumerate(TABLES.items()):
            for j, (row, options) in enumerate(rows.items()):
                self.declare(
                    table,
                    row,
                    workload,
                    *options,
                    order=100 * (i + 1) + j,
                    more={"published": row != "fsdp2"},
                )

    def plan(self, table: str, row: str) -> Json:
        return json.loads((self.plans / table / f"{row}.json").read_text(encoding="utf-8"))

    def path(self, record: Json) -> Path:
        folder = self.records / record["table"] / record["row"] / record["key"]
        name = f"{record['purpose']}-{record['repeat']}"
        if record["outcome"] in ("error", "timeout"):
            stamp = record["started"].replace("-", "").replace(":", "").replace("Z", "000Z")
            return folder / "failed" / f"{name}.{stamp}.json"
        return folder / f"{name}.json"

    def write(self, record: Json) -> Path:
        path = self.path(record)
        write_json(path, record)
        return path

    def measure(
        self,
        table: str,
        row: str,
        *,
        throughput: list[float] | None = None,
        peak_mib: float = 100.0,
        parity_shift: float = 0.0,
        outcome: str = "ok",
        cause: Json | None = None,
        only: tuple[str, ...] = (),
        **changes: Any,
    ) -> list[Path]:
        """Write a record for every run of the plan; not-ok outcomes spare the parity runs."""
        plan, written = self.plan(table, row), []
        for run in plan["runs"]:
            if only and run["purpose"] not in only:
                continue
            self.minute += 1
            parity = run["purpose"].startswith("parity")
            values = throughput or [5.0 + 0.01 * n for n in range(self.repeats)]
            options: Json = dict(changes)
            if parity:
                workload = run["spec"]["workload"]
                shift = parity_shift + (4e-4 if run["purpose"] == "parity_mixed" else 0)
                options["losses"] = [x + shift for x in reference_losses(workload)]
            bad = outcome != "ok" and not parity
            written.append(
                self.write(
                    make_record(
                        plan,
                        run,
                        outcome=outcome if bad else "ok",
                        cause=cause if bad else None,
                        samples_per_second=values[(run["repeat"] - 1) % len(values)],
                        peak_mib=peak_mib,
                        minute=self.minute,
                        **options,
                    )
                )
            )
        return written

    def measure_all(self) -> None:
        for row in REFERENCES:
            self.measure("reference", row)
        for index, ((table, row), (rate, peak)) in enumerate(NUMBERS.items()):
            noise = 0.004 + 0.001 * (index % 4)
            values = [rate * (1 + noise * d) for d in (-0.9, 0.2, 0.8)]
            self.measure(table, row, throughput=values, peak_mib=peak)
        self.measure(
            "sharding",
            "baseline",
            outcome="oom",
            cause=make_cause(message="DefaultCPUAllocator: can't allocate memory"),
        )
