"""Rows of a table in one language: their cells, remarks and details."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainmark import formatting as fmt
from trainmark.catalogues import N_, Messages, sentence_gap
from trainmark.findings import baseline
from trainmark.nvidia import IDLE_MEMORY_MIB
from trainmark.sentences import OUTCOMES
from trainmark.table_model import Row, RunEntry, Table

View = dict[str, Any]
DRIFT_LIMIT = 0.05  # relative change of step time within a run above which it is told


def state_of(row: Row) -> str:
    """The word for a row: its outcome, or why it has none. Keys of `sentences.OUTCOMES`."""
    if row.outcome and row.outcome != "ok":
        return row.outcome
    if row.state == "measured":
        return "ok"
    if row.state == "stale":
        return "stale"
    return "incomplete" if row.outcome else "missing"


def tone_of(row: Row) -> str:
    state = state_of(row)
    return "none" if state in ("missing", "stale", "incomplete", "unsupported") else "bad"


def rate_decimals(table: Table) -> int:
    rates = [row.samples_per_second for row in table.rows if row.samples_per_second]
    return fmt.rate_decimals((r.mean for r in rates), (r.stddev for r in rates))


def rows(table: Table, titles: dict[str, str], text: Messages) -> list[View]:
    base = baseline(table)
    decimals = rate_decimals(table)
    return [_row(row, titles[row.id], base, decimals, text) for row in table.rows]


def _row(row: Row, title: str, base: Row | None, decimals: int, text: Messages) -> View:
    rate, state = row.samples_per_second, state_of(row)
    ratio = memory_ratio = ""
    if base is not None and rate and base.samples_per_second:
        ratio = fmt.times(rate.mean / base.samples_per_second.mean)
    if base is not None and row.peak_memory_mib and base.peak_memory_mib:
        memory_ratio = fmt.times(row.peak_memory_mib / base.peak_memory_mib)
    word = "" if state == "ok" else text.gettext(OUTCOMES[state])
    parity, sub, tone = _parity(row, text)
    return {
        "id": row.id,
        "title": title,
        "is_baseline": row is base,
        "marks": list(_marks(row, text)),
        "speed": fmt.rate(rate.mean, decimals) if rate else "",
        "error": fmt.deviation(rate.stddev, decimals) if rate else "",
        "speed_sub": f"{ratio} · n = {row.n}" if rate else "",
        "n": str(row.n),
        "ratio": ratio or fmt.DASH,
        "memory": fmt.mebibytes(row.peak_memory_mib) if row.peak_memory_mib is not None else "",
        "memory_sub": memory_ratio,
        "memory_ratio": memory_ratio or fmt.DASH,
        "word": word,
        "memory_word": word or fmt.DASH,
        "tone": tone_of(row),
        "parity": parity,
        "parity_sub": sub,
        "parity_tone": tone,
    }


def _parity(row: Row, text: Messages) -> tuple[str, str, str]:
    """Word, detail and tone: the worse of the fp32 and the mixed parity run."""
    checks = [parity for parity in (row.parity, row.parity_mixed) if parity]
    failed = [parity for parity in checks if parity.passed is False]
    if failed:
        return text.gettext("failed"), fmt.scientific(failed[0].max_difference), "bad"
    if checks and all(parity.passed for parity in checks):
        return text.gettext("passed"), fmt.scientific(checks[0].max_difference), "good"
    return fmt.DASH, "", "none"


def _marks(row: Row, text: Messages) -> Iterator[str]:
    if row.stand_in:
        yield text.gettext("stand-in")
    if row.spread_exceeded:
        yield text.gettext("large spread")
    if not row.published:
        yield text.gettext("ours only")


# --- remarks --------------------------------------------------------------------------------------


def remarks(row: Row, title: str, text: Messages, spread_limit: float) -> View | None:
    """Everything about a row that a reader must know beside its numbers; None if nothing."""
    found = _remarks(row, text, spread_limit)
    parts = [{"text": told[:1].upper() + told[1:], "quote": quote} for told, quote in found]
    if not parts:
        return None
    view: View = {"title": title, "parts": parts, "gap": sentence_gap(text), "traceback": None}
    if row.cause and row.cause.traceback and row.outcome not in (None, "ok"):
        view["traceback"] = fmt.visible(row.cause.traceback)
        view["traceback_title"] = _where(row, text)
    return view


def _where(row: Row, text: Messages) -> str:
    cause = row.cause
    details = []
    if cause and cause.rank is not None:
        details.append(text.gettext("rank %(rank)s") % {"rank": cause.rank})
    if cause and cause.phase:
        details.append(fmt.visible(cause.phase, 40, "start"))
    if cause and cause.step is not None:
        details.append(text.gettext("step %(step)s") % {"step": cause.step})
    name = text.gettext("Captured traceback")
    if not details:
        return name
    return text.gettext("%(name)s (%(details)s)") % {
        "name": name,
        "details": text.pgettext("list", ", ").join(details),
    }


def _remarks(row: Row, text: Messages, limit: float) -> Iterator[tuple[str, str | None]]:
    say = text.gettext
    yield from _outcome(row, text)
    if row.state == "stale":
        yield (
            say("only older records exist; what has changed since: %(parts)s.")
            % {"parts": ", ".join(row.stale_because)},
            None,
        )
    if row.state == "missing" and row.outcome == "ok":
        yield say("not complete; missing: %(runs)s.") % {"runs": ", ".join(row.missing_runs)}, None
    yield from _parity_remarks(row, text)
    if row.stand_in:
        yield (
            say("trained in %(precision)s instead, because this machine cannot do otherwise:")
            % {"precision": ((row.spec or {}).get("precision") or "").upper()},
            say(row.stand_in) if row.stand_in in KNOWN_STAND_INS else row.stand_in,
        )
    spread = row.samples_per_second.relative_spread if row.samples_per_second else None
    if row.spread_exceeded and spread is not None:
        yield (
            say("the runs spread by %(spread)s, more than the limit of %(limit)s.")
            % {
                "spread": fmt.percent(spread, signed=False),
                "limit": fmt.percent(limit, 0, signed=False),
            },
            None,
        )
    yield from _quality(row, text)
    if row.dtypes and row.dtypes.note:
        known = DTYPE_NOTES.get(row.dtypes.note)
        yield (say(known), None) if known else (say("on data types:"), row.dtypes.note)
    if row.dtypes and row.dtypes.products:
        yield say(ROUNDED_PRODUCTS), None
    if row.memory_method in MEMORY_NOTES:
        yield say(MEMORY_NOTES[row.memory_method]), None
    for message in row.invalid[:5]:
        yield say("a file that does not count as a record:"), fmt.visible(message, 300, "start")


def _outcome(row: Row, text: Messages) -> Iterator[tuple[str, str | None]]:
    say = text.gettext
    if row.outcome not in ("oom", "unsupported", "error", "timeout"):
        return
    tensor = (row.spec or {}).get("tensor_parallel", 1)
    pipeline = (row.spec or {}).get("pipeline_parallel", 1)
    if row.outcome == "unsupported" and row.unsupported and tensor * pipeline > 1:
        yield (
            say("cannot run on this machine: the layout needs %(needed)s ranks.")
            % {"needed": tensor * pipeline},
            None,
        )
        return
    words = {
        "oom": say("ran out of memory."),
        "unsupported": say("cannot run here."),
        "error": say("failed with an error."),
        "timeout": say("did not end within the time limit."),
    }
    cause = row.cause
    parts = [cause.type, cause.message] if cause else []
    quote = ": ".join(part for part in parts if part) or row.unsupported or ""
    yield words[row.outcome], fmt.visible(" ".join(quote.split()), 400, "start")


def _parity_remarks(row: Row, text: Messages) -> Iterator[tuple[str, str | None]]:
    checks = [parity for parity in (row.parity, row.parity_mixed) if parity]
    if any(parity.passed is None for parity in checks):
        yield text.gettext("parity is not checked yet: the reference run is missing."), None
    for parity in checks:
        if parity.passed is not False:
            continue
        if parity.max_difference is None:
            yield (
                text.gettext(
                    "parity failed: the run has another number of steps than its reference."
                ),
                None,
            )
        else:
            yield (
                text.gettext(
                    "parity failed: the losses differ by up to %(difference)s, more than "
                    "%(tolerance)s. This row does not train the same model."
                )
                % {
                    "difference": fmt.scientific(parity.max_difference),
                    "tolerance": fmt.scientific(parity.tolerance),
                },
                None,
            )


def _quality(row: Row, text: Messages) -> Iterator[tuple[str, str | None]]:
    """Outliers, drift, failed attempts and other load: shown, never dropped."""
    runs = [run for run in row.runs if run.purpose == "throughput" and run.outcome == "ok"]
    outliers, steps = sum(len(run.outlier_steps) for run in runs), sum(r.timed_steps for r in runs)
    if outliers:
        yield (
            text.ngettext(
                "%(n)s of %(steps)s timed steps is an outlier; it is included.",
                "%(n)s of %(steps)s timed steps are outliers; they are included.",
                outliers,
            )
            % {"n": outliers, "steps": steps},
            None,
        )
    drifts = [run.drift for run in runs if run.drift is not None]
    if drifts and abs(drift := sum(drifts) / len(drifts)) > DRIFT_LIMIT:
        yield (
            text.gettext(
                "the time per step drifts within the runs: %(drift)s from the first half to the "
                "second."
            )
            % {"drift": fmt.percent(drift)},
            None,
        )
    failed = sum(run.failed_attempts for run in row.runs)
    if failed and row.outcome not in ("error", "timeout"):
        yield text.gettext("attempts that failed before: %(n)s.") % {"n": failed}, None
    limits = ((run, run.foreign_load_limit) for run in row.runs)
    disturbed = [
        use for run, limit in limits if limit is not None and (use := _foreign(run)) > limit
    ]
    if disturbed:
        yield (
            text.gettext("other processes used up to %(load)s of the machine around the runs.")
            % {"load": fmt.percent(max(disturbed) / 100, 0, signed=False)},
            None,
        )
    on_gpus = max((run.load.foreign_gpu_memory_mib or 0 for run in row.runs if run.load), default=0)
    if on_gpus > IDLE_MEMORY_MIB:
        yield (
            text.gettext("other processes held up to %(memory)s MiB on a GPU around the runs.")
            % {"memory": fmt.number(on_gpus)},
            None,
        )


def _foreign(run: RunEntry) -> float:
    """% of the CPU that others used before or during the run, the larger one."""
    during = (run.load.foreign_cpu_percent or 0.0) if run.load else 0.0
    return max(during, run.foreign_cpu_percent_before or 0.0)


DTYPE_NOTES = {
    "zero-half-weights": N_(
        "DeepSpeed keeps the weights themselves in 16 bits, with an fp32 copy in the optimizer; "
        "it does not use autocast."
    ),
    "fsdp-half-compute": N_(
        "the sharded weights are kept in fp32 and cast to 16 bits for each layer's computation; "
        "autocast is not used."
    ),
    "emulated_float16_on_cpu": N_(
        "the graph is cast to float16, but ONNX Runtime's CPU kernels multiply matrices in fp32: "
        "the arithmetic is emulated, and the time says nothing about 16-bit speed."
    ),
}
ROUNDED_PRODUCTS = N_(
    "torch multiplies bfloat16 matrices fast only where the CPU has AVX-512, which this one lacks: "
    "they were multiplied in fp32 and the products rounded, so the time says nothing about 16-bit "
    "speed."
)
# Reasons of the shipped hardware profiles, so that they have translations.
KNOWN_STAND_INS = (
    N_(
        "no half precision, because torch 1.12 autocasts a CPU to bfloat16 only and ONNX Runtime "
        "has no kernels for it"
    ),
)
MEMORY_NOTES = {
    "torch.profiler+resident": N_(
        "ONNX Runtime allocates outside torch, so the peak is what torch holds between steps plus "
        "the growth of resident memory within a step."
    ),
}


# --- details --------------------------------------------------------------------------------------

DETAIL_COLUMNS = (
    N_("Runs (samples/s)"),
    N_("95% interval of the mean"),
    N_("Parameters per rank"),
    N_("Data types: computation / weights / optimizer"),
    N_("Loss: first → last (unigram)"),
    "MFU",
    N_("Parity: FP32 / mixed"),
    N_("Key"),
)


def details(table: Table, titles: dict[str, str]) -> list[View]:
    decimals = rate_decimals(table)
    return [
        {"title": titles[row.id], "cells": _details(row, decimals)}
        for row in table.rows
        if row.outcome
    ]


def _details(row: Row, decimals: int) -> list[str]:
    rate, losses, dtypes = row.samples_per_second, row.losses, row.dtypes
    interval = rate.interval if rate else None
    per_rank = sorted(set(row.parameters_per_rank or []), reverse=True)
    key = next((run.key for run in row.runs if run.purpose == "throughput"), fmt.DASH)
    loss = fmt.DASH
    if losses:
        loss = f"{fmt.number(losses.first, 3)} → {fmt.number(losses.last, 3)}"
        if losses.unigram is not None:
            loss += f" ({fmt.number(losses.unigram, 3)})"
    return [
        ", ".join(fmt.rate(value, decimals) for value in rate.values[:20]) if rate else fmt.DASH,
        " – ".join(fmt.rate(bound, decimals) for bound in interval) if interval else fmt.DASH,
        " / ".join(fmt.number(count) for count in per_rank[:4]) or fmt.DASH,
        " / ".join(x or fmt.DASH for x in (dtypes.compute, dtypes.weights, dtypes.optimizer))
        if dtypes
        else fmt.DASH,
        loss,
        fmt.percent(row.mfu, signed=False) if row.mfu is not None else fmt.DASH,
        " / ".join(
            fmt.scientific(parity.max_difference) if parity else fmt.DASH
            for parity in (row.parity, row.parity_mixed)
        ),
        key,
    ]
