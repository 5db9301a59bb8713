"""Settings of the runs and facts about the machine, computed from specs and records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainmark import formatting as fmt
from trainmark.catalogues import N_, Messages
from trainmark.page_model import MachinePage
from trainmark.table_model import Row, Table

Facts = list[tuple[str, str]]
Reader = Callable[[Row, dict[str, Any]], Any]


def _model(name: str) -> Reader:
    return lambda row, spec: spec["model"].get(name)


def _field(name: str) -> Reader:
    return lambda row, spec: spec.get(name)


def _optimizer(row: Row, spec: dict[str, Any]) -> str:
    found = spec["optimizer"]
    if found["name"] == "sgd":
        return f"sgd, lr={found['learning_rate']:g}, momentum={found['momentum']:g}"
    return (
        f"{found['name']}, lr={found['learning_rate']:g}, betas=({found['beta1']:g}, "
        f"{found['beta2']:g}), eps={found['epsilon']:g}, weight_decay={found['weight_decay']:g}"
    )


def _steps(row: Row, spec: dict[str, Any]) -> str:
    return f"{spec['warmup_steps']} + {spec['timed_steps']}"


# Settings in the order in which they are shown; values are configuration and are not localised.
SETTINGS: tuple[tuple[str, Reader], ...] = (
    (N_("Layers"), _model("layers")),
    (N_("Hidden size"), _model("hidden")),
    (N_("Attention heads"), _model("heads")),
    (N_("Vocabulary"), _model("vocabulary")),
    (N_("Parameters (counted)"), lambda row, spec: row.parameters),
    (N_("Parameters (declared)"), _field("declared_parameters")),
    (N_("Sequence length"), _model("sequence_length")),
    (N_("Ranks"), _field("ranks")),
    (N_("Micro batch"), _field("micro_batch")),
    (N_("Global batch"), _field("global_batch")),
    (N_("16-bit data type"), _field("mixed_dtype")),
    (N_("Optimizer"), _optimizer),
    (N_("Gradient clipping"), _field("gradient_clipping")),
    (N_("Dropout"), _model("dropout")),
    (
        N_("Activation checkpointing"),
        lambda row, spec: spec["options"].get("activation_checkpointing"),
    ),
    (N_("Attention implementation"), lambda row, spec: spec["options"].get("attention")),
    (N_("Steps: warm-up + timed"), _steps),
    (N_("Memory limit per rank (MiB)"), _field("memory_limit_mib")),
    (N_("Threads per rank"), _field("threads_per_rank")),
    (N_("Runs for throughput"), lambda row, spec: row.wanted_repeats),
    (N_("Seed"), _field("seed")),
)


def settings(table: Table, titles: dict[str, str], text: Messages) -> Facts:
    """Each setting once; rows with another value than most are named behind it."""
    facts: Facts = []
    for label, reader in SETTINGS:
        values: dict[str, list[str]] = {}
        for row in table.rows:
            value = reader(row, row.spec) if row.spec else None
            if value is not None:
                values.setdefault(_shown(value), []).append(titles[row.id])
        if values:
            facts.append((text.gettext(label), _grouped(values)))
    return facts


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value >= 10_000:
        return fmt.number(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _grouped(values: dict[str, list[str]]) -> str:
    common = max(values, key=lambda value: len(values[value]))
    others = [f"{value} ({', '.join(rows)})" for value, rows in values.items() if value != common]
    return "; ".join([common, *others])


# --- the machine ----------------------------------------------------------------------------------


def machine_name(machine: MachinePage, text: Messages) -> str:
    """`4 × Tesla V100-SXM2`, or the CPU and its cores."""
    found = machine.environments[0].machine
    if machine.device != "cpu" and found.devices:
        return f"{len(found.devices)} × {fmt.visible(found.devices[0], 80)}"
    name = fmt.visible(found.cpu_model or "CPU", 80)
    if not found.cores:
        return name
    return text.gettext("%(cpu)s (%(n)s cores)") % {"cpu": name, "n": found.cores}


def machine_facts(machine: MachinePage, text: Messages) -> Facts:
    """What every record says of its machine and software; differences are shown by themselves."""
    if not machine.environments:
        return []
    say = text.gettext
    first = machine.environments[0]
    found, software = first.machine, first.environment
    memory = f"{fmt.gibibytes(found.memory_bytes)} GiB" if found.memory_bytes else None
    line = f"{software.name} ({software.hash})"
    facts: list[tuple[str, str | None]] = [
        (say("Hardware profile"), f"{machine.hardware}: {machine.title}"),
        (say("Devices"), machine_name(machine, text)),
        (say("CPU"), found.cpu_model),
        (say("Cores"), str(found.cores) if found.cores else None),
        (say("Memory"), memory),
        (say("Kernel"), found.kernel),
        (say("Driver"), found.driver),
        ("CUDA", found.cuda),
        ("NCCL", found.nccl),
        (say("Ranks"), " / ".join(map(str, machine.ranks))),
        (say("Software line"), line),
        (say("Image"), software.image_digest),
        ("Python", software.python),
        *((name, version) for name, version in sorted(software.packages.items())),
        (say("Runs"), fmt.number(machine.runs)),
        (say("First start"), fmt.moment(machine.started)),
        (say("Last end"), fmt.moment(machine.finished)),
        (say("Time spent measuring"), duration(machine.busy_seconds, text)),
        (say("Load before a run (1 min)"), _span(machine.load_before, 2)),
        (say("CPU used by others (%)"), _span(machine.foreign_cpu_percent, 1)),
        (say("Fixed work on every core, between runs (ms)"), _milliseconds(machine)),
        (say("Git commit"), ", ".join(commit[:12] for commit in machine.commits[:4])),
    ]
    return [(label, fmt.visible(value, 200)) for label, value in facts if value]


def _milliseconds(machine: MachinePage) -> str | None:
    """The spread of the machine's own speed."""
    found = machine.calibration_seconds
    return _span((1000 * found[0], 1000 * found[1]), 0) if found else None


def _span(values: tuple[float, float] | None, decimals: int) -> str | None:
    if values is None:
        return None
    return f"{fmt.number(values[0], decimals)} – {fmt.number(values[1], decimals)}"


def duration(seconds: float, text: Messages) -> str:
    minutes = round(seconds / 60)
    if seconds < 120:
        return text.gettext("%(n)s s") % {"n": fmt.number(seconds)}
    if minutes < 120:
        return text.gettext("%(n)s min") % {"n": minutes}
    return text.gettext("%(hours)s h %(minutes)s min") % {
        "hours": fmt.number(minutes // 60),
        "minutes": minutes % 60,
    }
