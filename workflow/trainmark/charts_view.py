"""The charts of a table in one language."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainmark import formatting as fmt
from trainmark import plots, row_view, titles
from trainmark.catalogues import Messages, join_sentences
from trainmark.findings import frontier_rows
from trainmark.sentences import OUTCOMES
from trainmark.table_context import TableContext
from trainmark.table_model import Row

View = dict[str, Any]


def charts(context: TableContext) -> list[View]:
    text = context.text
    rate_axis, memory_axis = (
        text.gettext("Throughput (samples/s)"),
        text.gettext("Peak memory (MiB)"),
    )
    base = text.gettext("Muted colour: the baseline of the ratios.")
    candidates = [
        (
            "throughput",
            text.gettext("Throughput"),
            _rate_chart(context, rate_axis),
            join_sentences([base, text.gettext("Line: ± standard deviation.")], text),
        ),
        ("memory", text.gettext("Peak memory"), _memory_chart(context, memory_axis), base),
        (
            "frontier",
            text.gettext("Memory against throughput"),
            _frontier_chart(context, memory_axis, rate_axis),
            text.gettext("Up and to the left is better. Dashed: the frontier."),
        ),
    ]
    return [
        {"id": name, "title": title, "svg": svg, "key": key}
        for name, title, svg, key in candidates
        if svg
    ]


def _chart_name(context: TableContext, kind: str) -> str:
    return f"c-{context.anchor}-{kind}"


def _word(row: Row, text: Messages) -> str:
    return text.gettext(OUTCOMES[row_view.state_of(row)])


def _wordy(row: Row, label: str, name: str, text: Messages) -> plots.Mark:
    """A row without a number: the word for why."""
    word = _word(row, text)
    tip = text.gettext("%(row)s: %(word)s") % {"row": name, "word": word}
    return plots.Mark(label, tip, word=word)


def _rate_chart(context: TableContext, axis: str) -> str:
    text, table = context.text, context.data.table
    decimals = row_view.rate_decimals(table)
    marks = []
    for row in table.rows:
        rate, name = row.samples_per_second, context.title(row)
        label = context.chart_titles[row.id]
        if rate is None:
            marks.append(_wordy(row, label, name, text))
            continue
        error = fmt.deviation(rate.stddev, decimals)
        shown = fmt.rate(rate.mean, decimals)
        tip = text.gettext("%(row)s: %(rate)s ± %(error)s samples/s, n = %(n)s") % {
            "row": name, "rate": shown, "error": error, "n": row.n,
        }  # fmt: skip
        emphasis = "base" if row.id == context.data.baseline else "bar"
        marks.append(plots.Mark(label, tip, rate.mean, rate.stddev, shown, emphasis=emphasis))
    words = plots.Words(
        text.gettext("Throughput of each row, as bars with the standard deviation"),
        _description([mark.tip for mark in marks]),
        axis,
    )
    return plots.bars(marks, words, _chart_name(context, "throughput"))


def _memory_chart(context: TableContext, axis: str) -> str:
    text, table = context.text, context.data.table
    marks = []
    for row in table.rows:
        name, peak = context.title(row), row.peak_memory_mib
        label = context.chart_titles[row.id]
        if peak is None:
            marks.append(_wordy(row, label, name, text))
            continue
        shown = fmt.mebibytes(peak)
        emphasis = "base" if row.id == context.data.baseline else "bar"
        tip = text.gettext("%(row)s: %(memory)s MiB") % {"row": name, "memory": shown}
        marks.append(plots.Mark(label, tip, peak, None, shown, emphasis=emphasis))
    words = plots.Words(
        text.gettext("Peak memory of each row, as bars"),
        _description([mark.tip for mark in marks]),
        axis,
    )
    return plots.bars(marks, words, _chart_name(context, "memory"))


def _frontier_chart(context: TableContext, memory_axis: str, rate_axis: str) -> str:
    text, table = context.text, context.data.table
    rows = [row for row in table.rows if row.samples_per_second and row.peak_memory_mib]
    on_frontier = {row.id for row in frontier_rows(table)}
    short = titles.row_titles(table.model_copy(update={"rows": rows}), text, short=True)
    decimals = row_view.rate_decimals(table)
    points = []
    for row in rows:
        rate, peak = row.samples_per_second, row.peak_memory_mib
        if rate is None or peak is None:
            continue
        tip = text.gettext("%(row)s: %(rate)s samples/s at %(memory)s MiB") % {
            "row": context.title(row),
            "rate": fmt.rate(rate.mean, decimals),
            "memory": fmt.mebibytes(peak),
        }
        points.append(
            plots.Point(short[row.id], tip, peak, rate.mean, rate.stddev, row.id in on_frontier)
        )
    words = plots.Words(
        text.gettext("Peak memory and throughput of each row; the dashed line joins the best ones"),
        _description([point.tip for point in points]),
        memory_axis,
        rate_axis,
    )
    # Beside the two bar charts, and as high as both of them together.
    height = 2 * plots.bars_height(len(table.rows)) + 50
    return plots.scatter(points, words, _chart_name(context, "frontier"), height)


def _description(tips: Iterable[str]) -> str:
    return " / ".join(tips)
