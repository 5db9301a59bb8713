"""Findings and notes put into words. Every number comes from the finding."""

from __future__ import annotations

from collections.abc import Iterator

from babel.lists import format_list

from trainmark import formatting as fmt
from trainmark import page_model as model
from trainmark.catalogues import N_, Messages
from trainmark.findings import is_clear
from trainmark.notes import Note
from trainmark.titles import workload_title

Titles = dict[str, dict[str, str]]  # table -> row -> title; "" -> table titles by table


class Narrator:
    """Tells the findings of one table in one language."""

    def __init__(self, text: Messages, table: str, titles: Titles) -> None:
        self.text, self.table, self.titles = text, table, titles

    def say(self, message: str, **values: object) -> str:
        return self.text.gettext(message) % values if values else self.text.gettext(message)

    def title(self, row: str) -> str:
        return self.titles.get(self.table, {}).get(row, row)

    def names(self, rows: list[str]) -> str:
        # Translators: one name in a list of rows, quoted where the language needs it
        pattern = self.text.pgettext("name in a list", "%(name)s")
        names = [pattern % {"name": self.title(row)} for row in rows]
        return format_list(names, locale=self.text.language.replace("-", "_"))

    def table_title(self, table: str) -> str:
        return self.titles.get("", {}).get(table, table)

    # --- findings -----------------------------------------------------------------------------

    def tell(self, findings: list[model.Finding]) -> list[str]:
        """Sentences of a table. Where each row is told of by itself, the summary is left out."""
        each = any(isinstance(f, (model.Throughput, model.Unmeasured)) for f in findings)
        return [
            sentence
            for finding in findings
            if not (each and isinstance(finding, (model.Fastest, model.Smallest)))
            for sentence in self._tell(finding)
        ]

    def _tell(self, finding: model.Finding) -> Iterator[str]:
        if isinstance(finding, model.Throughput):
            yield self.change(finding.change)
            if finding.memory_change is not None:
                yield self.memory(finding.change.row, finding.change.over, finding.memory_change)
        elif isinstance(finding, model.Unmeasured):
            yield self.say(
                "%(row)s cannot be compared with %(over)s: there is no throughput of %(lacking)s.",
                row=self.title(finding.row),
                over=self.title(finding.over),
                lacking=self.names(finding.lacking),
            )
        elif isinstance(finding, model.Fastest):
            yield from self._fastest(finding)
        elif isinstance(finding, model.Smallest):
            yield from self._smallest(finding)
        elif isinstance(finding, model.SameSpec):
            yield self._same_spec(finding)
        else:
            yield from self._lists(finding)

    def change(self, found: model.Change) -> str:
        """Throughput of one row against another: clear, not clear, or without an interval."""
        decimals = fmt.percent_decimals([found.change, found.low, found.high])
        names = {"row": self.title(found.row), "over": self.title(found.over)}
        change = fmt.percent(found.change, decimals)
        clear = is_clear(found)
        if clear is None:
            return self._without_interval(found, {**names, "change": change})
        values = {**names, "change": change, "interval": self.interval(found, decimals)}
        if not clear:
            return self.say(
                "No clear difference in throughput between %(row)s and %(over)s: %(change)s "
                "(%(interval)s).",
                **values,
            )
        return self.say(
            "%(row)s changes throughput by %(change)s against %(over)s (%(interval)s).", **values
        )

    def interval(self, found: model.Change, decimals: int) -> str:
        values = {
            "low": fmt.percent(found.low, decimals),
            "high": fmt.percent(found.high, decimals),
            "n1": found.n[0],
            "n2": found.n[1],
        }
        if found.machine_change is None:
            return self.say(
                "95%% interval %(low)s to %(high)s, Welch, n = %(n1)s and %(n2)s", **values
            )
        return self.say(
            "95%% interval %(low)s to %(high)s, Welch, n = %(n1)s and %(n2)s, widened by the change "
            "of the machine's own speed meanwhile: %(machine)s",
            **values,
            machine=fmt.percent(found.machine_change, 1),
        )

    def _without_interval(self, found: model.Change, values: dict[str, str]) -> str:
        if found.why_no_interval == "constant":
            return self.say(
                "%(row)s measured %(change)s against %(over)s in throughput; the repeats do not "
                "vary at all, so no interval can be given.",
                **values,
            )
        return self.say(
            "%(row)s measured %(change)s against %(over)s in throughput; with a single run of one "
            "of them no interval can be given, so the difference is not certain.",
            **values,
        )

    def memory(self, row: str, over: str, change: float) -> str:
        decimals = fmt.percent_decimals([change])
        values = {"row": self.title(row), "over": self.title(over)}
        if abs(change) < 5e-5:
            return self.say("Peak memory is the same for %(row)s and %(over)s.", **values)
        return self.say(
            "%(row)s changes peak memory by %(change)s against %(over)s.",
            **values,
            change=fmt.percent(change, decimals),
        )

    def _fastest(self, finding: model.Fastest) -> Iterator[str]:
        rate = fmt.rate(finding.samples_per_second, fmt.rate_decimals([finding.samples_per_second]))
        yield self.say(
            "%(row)s is the fastest row with %(rate)s samples/s.",
            row=self.title(finding.row),
            rate=rate,
        )
        if finding.against_baseline:
            yield self.change(finding.against_baseline)
        runner = finding.runner_up
        if runner and is_clear(runner) is False:
            yield self.say("It is not clearly faster than %(over)s.", over=self.title(runner.over))

    def _smallest(self, finding: model.Smallest) -> Iterator[str]:
        values = {
            "row": self.title(finding.row),
            "memory": fmt.mebibytes(finding.peak_memory_mib),
        }
        if finding.baseline is None or finding.memory_change is None:
            yield self.say(
                "%(row)s needs the least memory: a peak of %(memory)s MiB per rank.", **values
            )
            return
        yield self.say(
            "%(row)s needs the least memory: a peak of %(memory)s MiB per rank, %(change)s against "
            "%(over)s.",
            **values,
            change=fmt.percent(
                finding.memory_change, fmt.percent_decimals([finding.memory_change])
            ),
            over=self.title(finding.baseline),
        )
        if finding.against_baseline:
            yield self.change(finding.against_baseline)

    def _lists(self, finding: model.Finding) -> Iterator[str]:
        if isinstance(finding, model.Frontier):
            if len(finding.rows) == 1:
                yield self.say(
                    "%(row)s is both the fastest row and the smallest one.",
                    row=self.title(finding.rows[0]),
                )
            else:
                yield self.say(
                    "Nothing is both faster and smaller than any of these rows: %(rows)s.",
                    rows=self.names(finding.rows),
                )
        elif isinstance(finding, model.OutOfMemory):
            values = {"rows": self.names(finding.rows)}
            if finding.limit_mib is None:
                yield self.say("Out of memory: %(rows)s.", **values)
            else:
                yield self.say(
                    "Out of memory at a limit of %(limit)s MiB per rank: %(rows)s.",
                    **values,
                    limit=fmt.mebibytes(finding.limit_mib).removesuffix(".0"),
                )
        elif isinstance(finding, model.Failed):
            yield self.say("Failed: %(rows)s.", rows=self.names(finding.rows))
        elif isinstance(finding, model.NotMeasured):
            if len(finding.rows) == finding.of:
                yield self.say("No row of this table has been measured yet.")
            else:
                yield self.say("Not yet measured: %(rows)s.", rows=self.names(finding.rows))

    def _same_spec(self, finding: model.SameSpec) -> str:
        found = finding.change
        decimals = fmt.percent_decimals([found.change, found.low, found.high])
        values = {
            "row": self.title(found.row),
            "other": self.titles.get(finding.other_table, {}).get(
                finding.other_row, finding.other_row
            ),
            "table": self.table_title(finding.other_table),
            "change": fmt.percent(found.change, decimals),
        }
        clear = is_clear(found)
        if clear is None:
            return self.say(
                "A/A comparison: %(row)s and %(other)s (table: %(table)s) are the same "
                "configuration, measured separately. They differ by %(change)s.",
                **values,
            )
        values["interval"] = self.interval(found, decimals)
        if clear:
            return self.say(
                "A/A comparison: %(row)s and %(other)s (table: %(table)s) are the same "
                "configuration, measured separately. They differ by %(change)s (%(interval)s): "
                "more than the repeats within a row explain, so differences of this size between "
                "other rows mean little.",
                **values,
            )
        return self.say(
            "A/A comparison: %(row)s and %(other)s (table: %(table)s) are the same configuration, "
            "measured separately. They differ by %(change)s (%(interval)s), which the spread of "
            "the repeats explains.",
            **values,
        )

    # --- notes on the published figures -----------------------------------------------------------

    def note(self, note: Note) -> str:
        return str(getattr(self, f"_note_{note.kind}")(note))

    def _note_ranks(self, note: Note) -> str:
        values = {
            "row": self.title(note.rows[0]),
            "needed": note.values["needed"],
            "ranks": note.values["ranks"],
        }
        if note.values["twin"] is None:
            return self.say(
                "%(row)s needs %(needed)s ranks; the settings name %(ranks)s.", **values
            )
        return self.say(
            "%(row)s needs %(needed)s ranks; the settings name %(ranks)s. Its peak memory equals "
            "that of %(twin)s.",
            **values,
            twin=self.title(note.values["twin"]),
        )

    def _note_duplicate(self, note: Note) -> str:
        return self.say(
            "%(row)s is the configuration that the table “%(table)s” shows with %(there)s "
            "samples/s; here it has %(here)s.",
            row=self.title(note.rows[0]),
            table=self.table_title(note.values["other_table"]),
            there=fmt.rate(note.values["there"]),
            here=fmt.rate(note.values["here"]),
        )

    def _note_parameters(self, note: Note) -> str:
        values = {
            "printed": fmt.number(note.values["printed"]),
            "expected": fmt.number(note.values["expected"]),
        }
        owner = note.values["belongs_to"]
        if owner is None:
            return self.say(
                "The settings name %(printed)s parameters; the model described has %(expected)s.",
                **values,
            )
        return self.say(
            "The settings name %(printed)s parameters, the count of the model of another workload "
            "(%(owner)s); the model of this table has %(expected)s.",
            **values,
            owner=workload_title(owner, self.text),
        )

    def _note_utilisation(self, note: Note) -> str:
        values = note.values
        return self.say(
            "At sequence length %(length)s, %(rate)s samples/s (%(row)s) would be %(share)s of the "
            "peak of the GPUs (%(gpu)s, %(peak)s TFLOPS each). The sequences that were really "
            "processed must have been shorter than about %(longest)s tokens.",
            length=values["sequence_length"],
            rate=fmt.rate(values["samples_per_second"]),
            row=self.title(values["row"]),
            share=fmt.percent(values["share"], 0, signed=False),
            gpu=values["gpu"],
            peak=values["peak"],
            longest=fmt.number(values["longest"]),
        )

    def _note_speedup(self, note: Note) -> str:
        values = {
            "printed": fmt.percent(note.values["printed"] / 100, 1, signed=False),
            "computed": fmt.percent(note.values["computed"] / 100, 2, signed=False),
            "rate": fmt.rate(note.values["rate"]),
            "base": fmt.rate(note.values["base"]),
        }
        if note.values["cut"]:
            return self.say(
                "%(rate)s against %(base)s samples/s is a gain of %(computed)s; the text says "
                "%(printed)s, cut off rather than rounded.",
                **values,
            )
        return self.say(
            "%(rate)s against %(base)s samples/s is a gain of %(computed)s; the text says "
            "%(printed)s.",
            **values,
        )

    def _note_adam(self, note: Note) -> str:
        return self.say(
            "The text says that the states of Adam alone take %(printed)s GB. Two fp32 moments for "
            "%(parameters)s parameters take %(moments)s GB; together with an fp32 copy of the "
            "weights it is %(master)s GB.",
            printed=fmt.number(note.values["printed"]),
            parameters=fmt.number(note.values["parameters"]),
            moments=fmt.number(note.values["moments"], 1),
            master=fmt.number(note.values["with_master"], 1),
        )

    def _note_gradients(self, note: Note) -> str:
        return self.say(
            "%(second)s takes %(saved)s MiB less than %(first)s; dividing the fp16 gradients among "
            "%(ranks)s ranks alone would save about %(expected)s MiB.",
            first=self.title(note.rows[0]),
            second=self.title(note.rows[1]),
            saved=fmt.number(note.values["saved"]),
            expected=fmt.number(round(note.values["expected"], -1)),
            ranks=note.values["ranks"],
        )


OUTCOMES = {
    "ok": N_("ok"),
    "oom": N_("OOM"),
    "unsupported": N_("unsupported"),
    "error": N_("error"),
    "timeout": N_("timeout"),
    "missing": N_("not yet measured"),
    "stale": N_("out of date"),
    "incomplete": N_("incomplete"),
    "not_available": N_("NA"),
}
