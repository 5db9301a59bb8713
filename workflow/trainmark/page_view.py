"""The page's data in one language: every string that the templates show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from trainmark import formatting as fmt
from trainmark import row_view, settings_view, titles
from trainmark.catalogues import N_, Messages, join_sentences
from trainmark.charts_view import charts
from trainmark.findings import baseline
from trainmark.page_model import Fastest, MachinePage, Page, Smallest
from trainmark.published_view import comparison, source
from trainmark.reading import READING
from trainmark.sentences import Narrator, Titles
from trainmark.table_context import TableContext

View = dict[str, Any]


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
        "source": source(page.published, text) if page.published else None,
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
        "name": f"{machine.title} ({machine.id})"
        if machine.id != machine.hardware
        else machine.title,
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
                    (fmt.visible(value, 120), _some(rows, text))
                    for value, rows in difference.values.items()
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
    remarks = [
        row_view.remarks(row, context.title(row), text, table.spread_limit) for row in table.rows
    ]
    return {
        "id": table.table,
        "anchor": context.anchor,
        "title": context.titles[""][table.table],
        "intro": titles.introduction(table.table, text),
        "caption": _caption(context),
        "rows": row_view.rows(table, context.titles[table.table], text),
        "sentences": context.narrator.tell(context.data.findings),
        "remarks": list(filter(None, remarks)),
        "charts": charts(context),
        "published": comparison(context),
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
        sentences.append(text.gettext("Ratios refer to %(row)s.") % {"row": context.title(base)})
    if any(row.adaptive for row in table.rows):
        sentences.append(text.gettext("The number of runs was chosen adaptively."))
    return join_sentences(sentences, text)


def _command(context: TableContext) -> str:
    command = f"snakemake --cores 4 table_{context.data.table.table}"
    hardware = context.machine.hardware
    return command if hardware == "cpu" else f"{command} --config hardware={hardware}"
