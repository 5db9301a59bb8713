"""The page's data in one language: every string that the templates show, and none that they choose."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from trainmark import formatting as fmt
from trainmark import plots, row_view, settings_view, titles
from trainmark.catalogues import Messages, N_, join_sentences
from trainmark.findings import baseline, frontier_rows
from trainmark.page_model import Comparison, Fastest, MachinePage, Page, PageTable, Smallest
from trainmark.published_model import Published, PublishedRow
from trainmark.sentences import OUTCOMES, Narrator, Titles
from trainmark.table_model import Row

View = dict[str, Any]


@dataclass
class TableContext:
    """What the parts of a table's view share."""

    page: Page
    machine: MachinePage
    data: PageTable
    text: Messages
    titles: Titles
    spoken: Titles
    prefix: str
    narrator: Narrator = field(init=False)

    def __post_init__(self) -> None:
        self.narrator = Narrator(self.text, self.data.table.table, self.spoken)
        self.chart_titles = titles.row_titles(self.data.table, self.text, short=True)

    @property
    def anchor(self) -> str:
        return self.prefix + self.data.table.table

    def title(self, row: Row) -> str:
        return self.titles[self.data.table.table][row.id]


def build(page: Page, text: Messages) -> View:
    """Everything that the templates of one language need."""
    return {
        "draft": page.draft,
        "draft_reasons": _incomplete(page, text),
        "page_title": f"{text.gettext('Training benchmarks for Transformer models')} | trainmark",
        "description": text.gettext(
            "Throughput and peak memory of mixed precision, sharding, parallelism and graph "
            "optimisation in Transformer training, measured and reproducible."
        ),
        "machines": [
            _machine(page, machine, text, "" if index == 0 else f"{machine.id}-")
            for index, machine in enumerate(page.machines)
        ],
        "reading": [(text.gettext(term), text.gettext(meaning)) for term, meaning in READING],
        "source": _source(page.published, text) if page.published else None,
    }


def _incomplete(page: Page, text: Messages) -> list[str]:
    """Why the page is not complete: rows not measured, rows failed, and what was told beside."""
    reasons = []
    for machine in page.machines:
        total = sum(len(table.table.rows) for table in machine.tables)
        if machine.missing:
            reasons.append(
                text.gettext("not measured, or not completely: %(n)s of %(total)s rows")
                % {"n": len(machine.missing), "total": total}
            )
        if machine.failed:
            reasons.append(
                text.gettext("failed: %(n)s of %(total)s rows")
                % {"n": len(machine.failed), "total": total}
            )
    for reason in page.draft_reasons[:40]:
        pattern = text.gettext(CHANGED[reason.kind])
        reasons.append(pattern % {"set": reason.set, "file": reason.file})
    return reasons


CHANGED = {
    "missing": N_("missing in the record set %(set)s: %(file)s"),
    "tampered": N_("changed since the record set %(set)s was archived: %(file)s"),
    "foreign": N_("not part of the record set %(set)s: %(file)s"),
}


# --- one machine ----------------------------------------------------------------------------------


def _machine(page: Page, machine: MachinePage, text: Messages, prefix: str) -> View:
    names: Titles = {t.table.table: titles.row_titles(t.table, text) for t in machine.tables}
    names[""] = {t.table.table: titles.table_title(t.table.table, text) for t in machine.tables}
    spoken = {t.table.table: titles.spoken_titles(t.table, text) for t in machine.tables}
    spoken[""] = names[""]
    contexts = [
        TableContext(page, machine, data, text, names, spoken, prefix) for data in machine.tables
    ]
    return {
        "anchor": f"{prefix}machine",
        "prefix": prefix,
        "name": f"{machine.title} ({machine.id})" if machine.id != machine.hardware else machine.title,
        "banner": _banner(machine, text),
        "untried": None
        if machine.tried
        else text.gettext(
            "This hardware profile is declared, but nobody has run it on the hardware yet."
        ),
        "what": _what(machine, text),
        "cards": [_card(context) for context in contexts],
        "tables": [_table(context) for context in contexts],
        "facts": settings_view.machine_facts(machine, text),
        "differences": [
            {
                "name": difference.name,
                "entries": [
                    (value, _some(rows, text)) for value, rows in difference.values.items()
                ],
            }
            for difference in machine.differences
        ],
        "captures": list(_captures(machine, text)),
    }


def _some(rows: list[str], text: Messages, most: int = 6) -> str:
    if len(rows) <= most:
        return ", ".join(rows)
    return text.gettext("%(names)s and %(n)s more") % {
        "names": ", ".join(rows[:most]),
        "n": len(rows) - most,
    }


def _banner(machine: MachinePage, text: Messages) -> str | None:
    if not machine.scaled_down:
        return None
    return text.gettext(
        "Scaled down: these numbers come from small models on CPU ranks. They are not comparable "
        "with numbers from V100 GPUs; only the ratios between rows are."
    )


def _what(machine: MachinePage, text: Messages) -> str:
    if not machine.runs or not machine.environments:
        return text.gettext("Nothing has been measured yet. All declared rows are listed below.")
    values = {
        "machine": settings_view.machine_name(machine, text),
        "ranks": " / ".join(map(str, machine.ranks)),
        "runs": fmt.number(machine.runs),
        "started": fmt.moment(machine.started),
        "finished": fmt.moment(machine.finished),
    }
    return (
        text.gettext(
            "Measured on %(machine)s with %(ranks)s ranks: %(runs)s runs between %(started)s and "
            "%(finished)s, each in a fresh process group."
        )
        % values
    )


def _captures(machine: MachinePage, text: Messages) -> Iterator[View]:
    seen: set[str] = set()
    for entry in machine.environments:
        found = entry.machine
        captured = {"nvidia-smi": found.nvidia_smi, "nvidia-smi topo -m": found.topology}
        if found.nvidia_smi is None:
            described = found.model_dump(exclude_none=True, exclude={"devices"})
            captured = {"machine": json.dumps(described, indent=1, ensure_ascii=False)}
        for name, content in captured.items():
            if content and content not in seen and len(seen) < 8:
                seen.add(content)
                yield {
                    "title": text.gettext("As captured: %(name)s") % {"name": name},
                    "text": fmt.visible(content),
                }


def _card(context: TableContext) -> View:
    text = context.text
    entries = []
    for finding in context.data.findings:
        if isinstance(finding, Fastest):
            rate = fmt.rate(
                finding.samples_per_second, fmt.rate_decimals([finding.samples_per_second])
            )
            entries.append(
                {
                    "label": text.gettext("Fastest"),
                    "row": context.narrator.title(finding.row),
                    "value": text.gettext("%(rate)s samples/s") % {"rate": rate},
                    "cost": _cost(context, "memory", finding.memory_change),
                }
            )
        elif isinstance(finding, Smallest):
            change = finding.against_baseline
            entries.append(
                {
                    "label": text.gettext("Smallest"),
                    "row": context.narrator.title(finding.row),
                    "value": f"{fmt.mebibytes(finding.peak_memory_mib)} MiB",
                    "cost": _cost(context, "throughput", change.change if change else None),
                }
            )
    return {
        "anchor": context.anchor,
        "title": context.titles[""][context.data.table.table],
        "entries": entries,
        "empty": text.gettext("Not yet enough measured rows to compare."),
    }


def _cost(context: TableContext, what: str, change: float | None) -> str:
    text = context.text
    base = context.data.baseline
    if change is None or base is None:
        return text.gettext("the baseline of the table")
    values = {
        "change": fmt.percent(change, fmt.percent_decimals([change])),
        "over": context.narrator.title(base),
    }
    if what == "memory":
        return text.gettext("peak memory %(change)s against %(over)s") % values
    return text.gettext("throughput %(change)s against %(over)s") % values


# --- one table ------------------------------------------------------------------------------------


def _table(context: TableContext) -> View:
    table, text = context.data.table, context.text
    return {
        "id": table.table,
        "anchor": context.anchor,
        "title": context.titles[""][table.table],
        "intro": titles.introduction(table.table, text),
        "caption": _caption(context),
        "rows": row_view.rows(table, context.titles[table.table], text),
        "sentences": context.narrator.tell(context.data.findings),
        "remarks": [
            remark
            for row in table.rows
            for remark in row_view.remarks(row, context.title(row), text, table.spread_limit)
        ],
        "charts": _charts(context),
        "published": _published(context),
        "notes": [
            Narrator(text, table.table, context.titles).note(note) for note in context.data.notes
        ],
        "settings": settings_view.settings(table, context.titles[table.table], text),
        "details": row_view.details(table, context.titles[table.table]),
        "detail_columns": [text.gettext(name) for name in row_view.DETAIL_COLUMNS],
        "command": _command(context),
        "downloads": [
            (name, f"../data/{context.prefix}{table.table}.{name.lower()}")
            for name in ("CSV", "JSON")
        ],
    }


def _caption(context: TableContext) -> str:
    text, table = context.text, context.data.table
    base = baseline(table)
    sentences = [
        text.gettext("%(workload)s. Mean ± sample standard deviation over n runs.")
        % {"workload": titles.workload_title(table.workload, text)}
    ]
    if base is not None:
        sentences.append(
            text.gettext("Ratios refer to %(row)s.") % {"row": context.title(base)}
        )
    if any(row.adaptive for row in table.rows):
        sentences.append(text.gettext("The number of runs was chosen adaptively."))
    return join_sentences(sentences, text)


def _command(context: TableContext) -> str:
    command = f"snakemake --cores 4 table_{context.data.table.table}"
    hardware = context.machine.hardware
    return command if hardware == "cpu" else f"{command} --config hardware={hardware}"


def _charts(context: TableContext) -> list[View]:
    text = context.text
    rate_axis, memory_axis = text.gettext("Throughput (samples/s)"), text.gettext("Peak memory (MiB)")
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


def _rate_chart(context: TableContext, axis: str) -> str:
    text, table = context.text, context.data.table
    decimals = row_view.rate_decimals(table)
    marks = []
    for row in table.rows:
        rate, name = row.samples_per_second, context.title(row)
        label = context.chart_titles[row.id]
        if rate is None:
            marks.append(plots.Mark(label, f"{name}: {_word(row, text)}", word=_word(row, text)))
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
            marks.append(plots.Mark(label, f"{name}: {_word(row, text)}", word=_word(row, text)))
            continue
        shown = fmt.mebibytes(peak)
        emphasis = "base" if row.id == context.data.baseline else "bar"
        marks.append(plots.Mark(label, f"{name}: {shown} MiB", peak, None, shown, emphasis=emphasis))
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
    return "; ".join(tips)


# --- beside the published figures -----------------------------------------------------------------


def _published(context: TableContext) -> View | None:
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
    memory = "" if theirs.peak_memory_mib is None else f"{fmt.mebibytes(theirs.peak_memory_mib)} MiB"

    def cell(ratio: float | None, missing: str, below: str) -> dict[str, str]:
        return {"ratio": fmt.times(ratio) if ratio is not None else missing or fmt.DASH, "sub": below}

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


def _source(published: Published, text: Messages) -> View:
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
            "The published figures, their settings and their environment are quoted from this page; "
            "the words here are our own."
        ),
        "url": published.url[language],
        "url_language": language,
        "title": published.title[title_language],
        "facts": [(label, value) for label, value in facts if value],
    }


READING = (
    (
        N_("Throughput"),
        N_(
            "Samples per second: global batch × timed steps ÷ wall time, measured between barriers "
            "on the slowest rank. Warm-up steps do not count."
        ),
    ),
    (
        N_("± and n"),
        N_(
            "Sample standard deviation (n − 1 in the denominator) over n runs, each in a fresh "
            "process group. With one run there is none, shown as —."
        ),
    ),
    (
        N_("Interval"),
        N_(
            "95% confidence interval of the ratio of two rows: Welch's t interval on the logarithms "
            "of their throughputs. If it contains 0%, the difference is not clear."
        ),
    ),
    (
        N_("Peak memory"),
        N_(
            "The largest amount of tensor memory allocated on any rank, in MiB, measured in a run of "
            "its own. Memory that an allocator only reserves does not count."
        ),
    ),
    (
        N_("Parity"),
        N_(
            "A short run with the same initial weights and the same data must have the losses of a "
            "plain reference run. A row that fails trains something else, and its throughput means "
            "nothing."
        ),
    ),
    (
        N_("OOM"),
        N_("The allocator refused memory. The captured traceback is kept with the row."),
    ),
    (
        N_("Frontier"),
        N_(
            "The rows that no other row beats in both throughput and memory. Choose among these, by "
            "the memory that you have."
        ),
    ),
)
