"""Sentences computed from numbers, in both languages."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainmark import catalogues, findings, statistics
from trainmark import formatting as fmt
from trainmark import page_model as model
from trainmark.sentences import Narrator

LOCALES = Path(__file__).parents[2] / "report" / "locales"
TITLES = {"t": {"a": "OSS", "b": "DDP"}, "u": {"b": "Megatron"}, "": {"t": "T", "u": "U"}}
LANGUAGES = ("en", "ja")
NARRATORS = {
    language: Narrator(catalogues.load(LOCALES, language), "t", TITLES) for language in LANGUAGES
}
few = settings(max_examples=60, deadline=None)
rates = st.lists(st.floats(1, 100), min_size=1, max_size=5)


def change_of(first, second):
    ratio = statistics.ratio(first, second)
    found = model.Change(row="a", over="b", change=ratio.change, n=ratio.n)
    if ratio.low is None:
        found.why_no_interval = "single" if min(ratio.n) < 2 else "constant"
    else:
        found.low, found.high = ratio.low, ratio.high
    return found


UNCLEAR = {"en": "No clear difference", "ja": "明確な差はありません"}
SINGLE = {"en": "with a single run", "ja": "1 回だけ"}
CONSTANT = {"en": "do not vary at all", "ja": "変動していない"}


@few
@given(rates, rates)
def test_a_comparison_says_what_its_interval_says(first, second):
    found = change_of(first, second)
    for language, narrator in NARRATORS.items():
        text = narrator.change(found)
        clear = findings.is_clear(found)
        assert (UNCLEAR[language] in text) == (clear is False)
        assert (SINGLE[language] in text) == (min(found.n) < 2)
        assert (CONSTANT[language] in text) == (found.why_no_interval == "constant")
        assert ("Welch" in text) == (clear is not None)
        assert "OSS" in text and "DDP" in text
        assert "%(" not in text and "None" not in text and "nan" not in text


@few
@given(st.floats(-0.95, 20).filter(lambda x: abs(x) > 1e-5), st.floats(1e-6, 0.5))
def test_the_sign_is_told_in_both_languages(change, width):
    found = model.Change(
        row="a", over="b", change=change, low=change - width, high=change + width, n=(3, 3)
    )
    for narrator in NARRATORS.values():
        sign = "+" if change > 0 else "−"
        decimals = fmt.percent_decimals([found.change, found.low, found.high])
        assert f"{sign}{fmt.percent(abs(change), decimals, signed=False)}" in narrator.change(found)


@few
@given(st.floats(-0.9, 5), st.floats(-0.9, 5), st.floats(-0.9, 5))
def test_numbers_are_the_same_in_both_languages(change, low, high):
    found = model.Change(
        row="a", over="b", change=change, low=min(low, high), high=max(low, high), n=(3, 4)
    )
    numbers = [
        sorted(re.findall(r"[+−±]?[\d,]+\.\d+%", n.change(found))) for n in NARRATORS.values()
    ]
    assert numbers[0] == numbers[1]


@few
@given(st.floats(-0.9, 5))
def test_memory_that_does_not_change_is_called_the_same(change):
    same = {"en": "is the same", "ja": "同じです"}
    for language, narrator in NARRATORS.items():
        assert (same[language] in narrator.memory("a", "b", change)) == (abs(change) < 5e-5)


FINDINGS = [
    model.Throughput(change=change_of([6.0, 6.1], [5.0, 5.1]), memory_change=-0.2),
    model.Unmeasured(row="a", over="b", lacking=["a", "b"]),
    model.Fastest(
        row="a", samples_per_second=6.0, memory_change=None,
        against_baseline=change_of([6.0, 6.1], [5.0, 5.1]),
        runner_up=change_of([6.0, 6.3], [6.1, 6.2]),
    ),
    model.Smallest(row="a", peak_memory_mib=9.5, baseline="b", memory_change=-0.5,
                   against_baseline=change_of([4.0], [5.0])),
    model.Smallest(row="a", peak_memory_mib=9.5, baseline=None, memory_change=None,
                   against_baseline=None),
    model.Frontier(rows=["a"], of=3),
    model.Frontier(rows=["a", "b"], of=3),
    model.OutOfMemory(rows=["a"], limit_mib=185),
    model.OutOfMemory(rows=["a", "b"], limit_mib=None),
    model.Failed(rows=["a"]),
    model.NotMeasured(rows=["a"], of=2),
    model.NotMeasured(rows=["a", "b"], of=2),
    model.SameSpec(other_table="u", other_row="b", change=change_of([6.0, 6.1], [5.0, 5.1])),
    model.SameSpec(other_table="u", other_row="b", change=change_of([6.0, 6.3], [6.1, 6.2])),
    model.SameSpec(other_table="u", other_row="b", change=change_of([6.0], [6.1])),
]  # fmt: skip


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda f: f.kind)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_finding_can_be_told(finding, language):
    sentences = NARRATORS[language].tell([finding])
    if not isinstance(finding, (model.Fastest, model.Smallest)):
        assert sentences
    for sentence in sentences:
        assert "%(" not in sentence and "None" not in sentence
        assert sentence.endswith("." if language == "en" else "。")
        if language == "ja":
            assert not list(catalogues.japanese_faults(sentence)), sentence


def test_japanese_and_english_differ():
    for finding in FINDINGS:
        told = [NARRATORS[language].tell([finding]) for language in LANGUAGES]
        assert not told[0] or told[0] != told[1]
