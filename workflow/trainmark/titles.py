"""Names of rows, tables and workloads. Row titles are composed: a new row needs no words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainmark.catalogues import N_, Messages
from trainmark.table_model import Row, Table

# Proper names; they are not translated. A plan's `strategy_title` comes first.
STRATEGIES = {
    "ddp": "DDP",
    "oss": "OSS",
    "sdp": "OSS + SDP",
    "fsdp": "fairscale FSDP",
    "fsdp2": "PyTorch FSDP2",
    "zero1": "ZeRO Stage\u00a01",
    "zero2": "ZeRO Stage\u00a02",
    "zero3": "ZeRO Stage\u00a03",
    "megatron": "Megatron",
    "ort": "ONNX Runtime",
}
PRECISIONS = {"fp32": N_("FP32"), "mixed": N_("mixed precision")}
SHORT_PRECISIONS = {"fp32": N_("FP32"), "mixed": N_("mixed")}
TABLES = {
    "mixed_precision": N_("Mixed-precision training"),
    "sharding": N_("Sharding of model states"),
    "parallelism": N_("Tensor and pipeline parallelism"),
    "onnxruntime": N_("Graph optimisation with ONNX Runtime"),
}
INTRODUCTIONS = {
    "mixed_precision": N_(
        "Mixed precision computes in 16 bits what 32 bits are not needed for. The table shows what "
        "that changes in speed and in peak memory for the same model."
    ),
    "sharding": N_(
        "Data-parallel ranks all hold the same parameters, gradients and optimizer states. "
        "Sharding divides these model states among the ranks: memory falls, communication rises."
    ),
    "parallelism": N_(
        "Tensor parallelism (TP) divides each layer among ranks, pipeline parallelism (PP) divides "
        "the stack of layers. What is left over is data parallelism."
    ),
    "onnxruntime": N_(
        "ONNX Runtime exports the model once as a graph, optimises the graph and runs forward and "
        "backward passes from it."
    ),
}
WORKLOADS = {
    "bert-pretraining": N_("BERT pre-training (masked language model and next sentence)"),
    "gpt-pretraining": N_("GPT pre-training (next token)"),
    "bert-finetuning": N_("BERT fine-tuning (classification of sentence pairs)"),
}

Part = Callable[[Row, Messages], str]


def strategy_name(row: Row) -> str:
    return row.strategy_title or STRATEGIES.get(row.strategy, row.strategy)


def _precision(row: Row, text: Messages) -> str:
    return text.gettext(PRECISIONS[row.precision])


def _short_precision(row: Row, text: Messages) -> str:
    return text.gettext(SHORT_PRECISIONS[row.precision])


def layout_of(row: Row) -> tuple[int, int]:
    spec = row.spec or {}
    return spec.get("tensor_parallel", 1), spec.get("pipeline_parallel", 1)


def _layout(row: Row, text: Messages) -> str:
    tensor, pipeline = layout_of(row)
    return f"TP\u00a0{tensor} × PP\u00a0{pipeline}"


def _checkpointing(row: Row, text: Messages) -> str:
    if ((row.spec or {}).get("options") or {}).get("activation_checkpointing"):
        return text.gettext("activation checkpointing")
    return text.gettext("no activation checkpointing")


def table_title(table: str, text: Messages) -> str:
    known = TABLES.get(table)
    return text.gettext(known) if known else table.replace("_", " ").replace("-", " ").capitalize()


def introduction(table: str, text: Messages) -> str | None:
    known = INTRODUCTIONS.get(table)
    return text.gettext(known) if known else None


def workload_title(workload: str, text: Messages) -> str:
    known = WORKLOADS.get(workload)
    return text.gettext(known) if known else workload


def full_title(row: Row, text: Messages) -> str:
    """A title that is clear without the table around it."""
    details: list[Part] = [_precision]
    if layout_of(row) != (1, 1):
        details.insert(0, _layout)
    return _compose(row, strategy_name(row), details, text)


def _compose(row: Row, name: str | None, details: Sequence[Part], text: Messages) -> str:
    words = text.pgettext("list", ", ").join(part(row, text) for part in details)
    if name is None:
        return words[:1].upper() + words[1:]
    if not words:
        return name
    # Translators: a row's title, such as "ZeRO Stage 1 (mixed precision)"
    return text.gettext("%(name)s (%(details)s)") % {"name": name, "details": words}


def row_titles(table: Table, text: Messages, short: bool = False) -> dict[str, str]:
    """Titles within a table: only what differs between its rows is said; `short` is for charts."""
    rows = table.rows
    details: list[Part] = []
    if len({layout_of(row) for row in rows}) > 1:
        details.append(_layout)
    if len({row.precision for row in rows}) > 1:
        details.append(_short_precision if short else _precision)
    named = len({row.strategy for row in rows}) > 1 or not details
    titles = {
        row.id: _compose(row, strategy_name(row) if named else None, details, text) for row in rows
    }
    return _told_apart(table, titles, named, details, text)


def spoken_titles(table: Table, text: Messages) -> dict[str, str]:
    """Titles within sentences: among the measured rows, what they have in common is left out."""
    titles = row_titles(table, text)
    measured = [row for row in table.rows if row.samples_per_second]
    if len(measured) > 2:
        titles |= row_titles(table.model_copy(update={"rows": measured}), text)
    return titles


def _told_apart(
    table: Table, titles: dict[str, str], named: bool, details: list[Part], text: Messages
) -> dict[str, str]:
    """Rows with the same title say whether they checkpoint activations, or else their id."""
    same = [row for row in table.rows if list(titles.values()).count(titles[row.id]) > 1]
    for row in same:
        name = strategy_name(row) if named else None
        titles[row.id] = _compose(row, name, [*details, _checkpointing], text)
    for row in same:
        if list(titles.values()).count(titles[row.id]) > 1:
            titles[row.id] = f"{titles[row.id]} [{row.id}]"
    return titles
