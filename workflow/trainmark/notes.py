"""Checks on the published figures. Each finds facts; `sentences.py` puts them into words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict

from trainmark import formulas
from trainmark.published_model import Published, PublishedTable

ADAM_BYTES, MASTER_BYTES = 8, 4  # two fp32 moments; one fp32 copy of each weight
HALF_BYTES = 2
MIB = 2**20


class Note(BaseModel):
    """Something in the published figures that does not fit together, with the numbers behind it."""

    model_config = ConfigDict(extra="forbid")
    kind: str
    table: str
    rows: list[str]
    values: dict[str, Any]


Check = Callable[[Published, str, PublishedTable], Iterator[Note]]


def check(published: Published) -> list[Note]:
    """All notes, in the order of the tables."""
    return [
        note
        for name, table in published.tables.items()
        for look in CHECKS
        for note in look(published, name, table)
    ]


def layouts(_: Published, name: str, table: PublishedTable) -> Iterator[Note]:
    """Tensor x pipeline parallelism must not need more ranks than there were."""
    for row, found in table.rows.items():
        needed = found.tensor_parallel * found.pipeline_parallel
        if needed <= table.settings.ranks:
            continue
        twin = next(
            (
                other
                for other, figures in table.rows.items()
                if other != row
                and figures.peak_memory_mib is not None
                and figures.peak_memory_mib == found.peak_memory_mib
            ),
            None,
        )
        yield Note(
            kind="ranks",
            table=name,
            rows=[row, *([twin] if twin else [])],
            values={"needed": needed, "ranks": table.settings.ranks, "twin": twin},
        )


def duplicates(published: Published, name: str, table: PublishedTable) -> Iterator[Note]:
    """The same configuration should not have two throughputs."""
    earlier = list(published.tables)[: list(published.tables).index(name)]
    for row, found in table.rows.items():
        for other_name in earlier:
            other = published.tables[other_name]
            for other_row, figures in other.rows.items():
                if _configuration(table, found) != _configuration(other, figures):
                    continue
                if None in (found.samples_per_second, figures.samples_per_second):
                    continue
                if found.samples_per_second == figures.samples_per_second:
                    continue
                yield Note(
                    kind="duplicate",
                    table=name,
                    rows=[row],
                    values={
                        "here": found.samples_per_second,
                        "there": figures.samples_per_second,
                        "other_table": other_name,
                        "other_row": other_row,
                    },
                )


def _configuration(table: PublishedTable, row: Any) -> tuple[Any, ...]:
    return (
        table.workload,
        table.settings,
        row.strategy,
        row.precision,
        row.tensor_parallel,
        row.pipeline_parallel,
    )


def parameter_counts(_: Published, name: str, table: PublishedTable) -> Iterator[Note]:
    """The printed number of parameters must be that of the model that is named."""
    size = table.settings
    shape = size.layers, size.hidden, size.vocabulary, size.sequence_length
    expected = formulas.parameters(table.workload, *shape)
    if expected == size.parameters:
        return
    others = [w for w in WORKLOADS if formulas.parameters(w, *shape) == size.parameters]
    yield Note(
        kind="parameters",
        table=name,
        rows=[],
        values={
            "printed": size.parameters,
            "expected": expected,
            "belongs_to": others[0] if others else None,
        },
    )


def utilisation(published: Published, name: str, table: PublishedTable) -> Iterator[Note]:
    """No machine computes faster than its peak."""
    size = table.settings
    shape = size.layers, size.hidden, size.vocabulary
    cost = formulas.flops_per_sample(table.workload, *shape, size.sequence_length)
    over: dict[str, tuple[float, float]] = {}
    for row, found in table.rows.items():
        if found.samples_per_second is None:
            continue
        peak = published.peak_tflops[found.precision] * 1e12 * size.ranks
        share = cost * found.samples_per_second / peak
        if share > 1:
            tokens = formulas.longest_sequence(
                table.workload, *shape, peak / found.samples_per_second
            )
            over[row] = share, tokens
    if over:
        first = next(iter(over))
        yield Note(
            kind="utilisation",
            table=name,
            rows=list(over),
            values={
                "row": first,
                "samples_per_second": table.rows[first].samples_per_second,
                "share": over[first][0],
                "longest": over[first][1],
                "sequence_length": size.sequence_length,
                "gpu": published.environment.gpu,
                "peak": published.peak_tflops[table.rows[first].precision],
            },
        )


def speedups(_: Published, name: str, table: PublishedTable) -> Iterator[Note]:
    """A printed percentage must be the rounded ratio of the printed figures."""
    claim = table.claims.speedup
    if claim is None:
        return
    rate, base = (
        Decimal(str(table.rows[row].samples_per_second)) for row in (claim.row, claim.over)
    )
    percent = (rate / base - 1) * 100
    printed = Decimal(str(claim.percent))
    if percent.quantize(printed, ROUND_HALF_UP) == printed:
        return
    yield Note(
        kind="speedup",
        table=name,
        rows=[claim.row, claim.over],
        values={
            "printed": claim.percent,
            "computed": float(percent),
            "cut": percent.quantize(printed, ROUND_DOWN) == printed,
            "rate": float(rate),
            "base": float(base),
        },
    )


def optimizer_state(_: Published, name: str, table: PublishedTable) -> Iterator[Note]:
    """Adam keeps two fp32 moments per parameter."""
    claim = table.claims.adam_state_gb
    if claim is None:
        return
    moments = table.settings.parameters * ADAM_BYTES / 1e9
    if abs(moments - claim) < 0.5:
        return
    yield Note(
        kind="adam",
        table=name,
        rows=[],
        values={
            "printed": claim,
            "moments": moments,
            "with_master": table.settings.parameters * (ADAM_BYTES + MASTER_BYTES) / 1e9,
            "parameters": table.settings.parameters,
        },
    )


def gradient_sharding(_: Published, name: str, table: PublishedTable) -> Iterator[Note]:
    """ZeRO stage 2 shards the gradients on top of stage 1, which must save their memory."""
    peaks = [table.rows[r].peak_memory_mib for r in ("zero1", "zero2") if r in table.rows]
    if len(peaks) < 2 or None in peaks:
        return
    saved = float(peaks[0] or 0) - float(peaks[1] or 0)
    size = table.settings
    expected = size.parameters * HALF_BYTES * (1 - 1 / size.ranks) / MIB
    if saved >= expected / 2:
        return
    yield Note(
        kind="gradients",
        table=name,
        rows=["zero1", "zero2"],
        values={"saved": saved, "expected": expected, "ranks": size.ranks},
    )


WORKLOADS = ("bert-pretraining", "gpt-pretraining", "bert-finetuning")
CHECKS: tuple[Check, ...] = (
    optimizer_state,
    gradient_sharding,
    layouts,
    duplicates,
    parameter_counts,
    utilisation,
    speedups,
)
