"""The published figures beside ours, and where they come from, in one language."""

from __future__ import annotations

from typing import Any

from trainmark import formatting as fmt
from trainmark import row_view
from trainmark.catalogues import Messages, join_sentences
from trainmark.page_model import Comparison
from trainmark.published_model import Published, PublishedRow
from trainmark.sentences import OUTCOMES
from trainmark.table_context import TableContext
from trainmark.table_model import Row

View = dict[str, Any]


def comparison(context: TableContext) -> View | None:
    data, page, text = context.data, context.page, context.text
    if page.published is None or not data.comparisons:
        return None
    figures = page.published.tables[data.table.table].rows
    rows = {row.id: row for row in data.table.rows}
    sentences = [
        text.gettext("Published by %(publisher)s, last updated %(date)s.")
        % {"publisher": page.published.publisher, "date": page.published.last_updated}
    ]
    if data.same_hardware:
        sentences.append(
            text.gettext(
                "Hardware and sizes are the published ones, so the deviation is shown in percent "
                "and in published ± values (σ)."
            )
        )
    else:
        sentences.append(
            text.gettext(
                "The hardware is another one, so only the ratios compare, not the absolute figures."
            )
        )
    base = next((row for row in data.table.rows if row.id == data.comparison_baseline), None)
    return {
        "text": join_sentences(sentences, text),
        "caption": text.gettext("Ratios to %(row)s, with the published figures")
        % {"row": context.title(base) if base else fmt.DASH},
        "rows": [
            {
                "title": context.title(rows[found.row]),
                "cells": _comparison(found, figures[found.row], rows[found.row], text),
            }
            for found in data.comparisons
        ],
    }


def _comparison(
    found: Comparison, theirs: PublishedRow, ours: Row, text: Messages
) -> list[dict[str, str]]:
    word = {"oom": "OOM", "not_available": "NA"}.get(theirs.outcome, fmt.DASH)
    state = row_view.state_of(ours)
    our_word = "" if state == "ok" else text.gettext(OUTCOMES[state])
    deviation = ""
    if found.deviation is not None:
        deviation = fmt.percent(found.deviation)
        if found.deviations is not None:
            deviation += f", {fmt.percent(found.deviations / 100).rstrip('%')} σ"
    published_rate = ""
    if theirs.samples_per_second is not None:
        published_rate = fmt.rate(theirs.samples_per_second)
        if theirs.plus_minus is not None:
            published_rate += f" ± {fmt.deviation(theirs.plus_minus)}"
    memory = (
        "" if theirs.peak_memory_mib is None else f"{fmt.mebibytes(theirs.peak_memory_mib)} MiB"
    )

    def cell(ratio: float | None, missing: str, below: str) -> dict[str, str]:
        return {
            "ratio": fmt.times(ratio) if ratio is not None else missing or fmt.DASH,
            "sub": below,
        }

    return [
        cell(found.our_throughput, our_word if ours.samples_per_second is None else "", deviation),
        cell(found.published_throughput, word, published_rate),
        cell(
            found.our_memory,
            our_word if ours.peak_memory_mib is None else "",
            fmt.percent(found.memory_deviation) if found.memory_deviation is not None else "",
        ),
        cell(found.published_memory, word, memory),
    ]


def source(published: Published, text: Messages) -> View:
    language = text.language if text.language in published.url else next(iter(published.url))
    title_language = text.language if text.language in published.title else language
    environment = published.environment
    facts = [
        (text.gettext("Publisher"), published.publisher),
        (text.gettext("Last updated"), published.last_updated),
        ("GPU", f"{environment.gpus} × {environment.gpu}"),
        (text.gettext("Driver"), environment.driver),
        ("CUDA", environment.cuda),
        (text.gettext("Instance"), environment.instance),
        (text.gettext("Operating system"), environment.system),
    ]
    return {
        "text": text.gettext(
            "The published figures, their settings and their environment are quoted from this "
            "page; the words here are our own."
        ),
        "url": published.url[language],
        "url_language": language,
        "title": published.title[title_language],
        "facts": [(label, value) for label, value in facts if value],
    }
