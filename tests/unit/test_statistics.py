"""Statistics against scipy.stats and pandas."""

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from trainmark import statistics

few = settings(max_examples=40, deadline=None)
rates = st.lists(st.integers(2_000, 20_000).map(lambda n: n / 1000), min_size=2, max_size=6)


@few
@given(rates)
def test_summary_agrees_with_pandas_and_scipy(values):
    summary = statistics.summarise(values)
    series = pd.Series(values)
    assert summary.n == len(values)
    assert summary.mean == pytest.approx(series.mean())
    assert summary.stddev == pytest.approx(series.std(ddof=1), abs=1e-9)
    assert summary.median == pytest.approx(series.median())
    if summary.stddev > 1e-6 * summary.mean:
        expected = stats.t.interval(
            0.95, len(values) - 1, loc=series.mean(), scale=stats.sem(values)
        )
        assert summary.interval == pytest.approx(expected)


def test_one_value_has_no_spread_and_no_interval():
    summary = statistics.summarise([5.0])
    assert (summary.mean, summary.stddev, summary.interval) == (5.0, None, None)
    assert statistics.summarise([]) is None


@pytest.mark.filterwarnings("ignore:Precision loss")
@few
@given(rates, rates)
def test_ratio_interval_is_welch_on_logarithms(first, second):
    found = statistics.ratio(first, second)
    assert found.change == pytest.approx(
        pd.Series(first).mean() / pd.Series(second).mean() - 1, rel=1e-9, abs=1e-12
    )
    if found.low is None:
        assert len(set(first)) == len(set(second)) == 1
        return
    logs = [math.log(x) for x in first], [math.log(x) for x in second]
    expected = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    if expected.low > -12:  # beyond that the lower bound is -100 % to all digits
        assert math.log1p(found.low) == pytest.approx(expected.low, rel=1e-6, abs=1e-9)
        assert math.log1p(found.high) == pytest.approx(expected.high, rel=1e-6, abs=1e-9)


def test_ratio_without_repeats_or_without_variance_has_no_interval():
    assert statistics.ratio([6.0], [5.0, 5.1]).low is None
    assert statistics.ratio([6.0, 6.0], [5.0, 5.0]).low is None
    assert statistics.ratio([], [5.0]) is None


def test_ratio_is_clear_only_when_the_interval_excludes_zero():
    assert statistics.ratio([6.0, 6.1, 6.2], [5.0, 5.1, 5.2]).is_clear is True
    assert statistics.ratio([5.0, 5.3, 5.1], [5.05, 5.2, 5.1]).is_clear is False
    assert statistics.ratio([5.0], [6.0]).is_clear is None


def test_outliers_are_found_and_constant_values_have_none():
    assert statistics.outliers([1.0, 1.01, 0.99, 1.02, 1.0, 5.0]) == [5]
    assert statistics.outliers([1.0] * 6) == []
    assert statistics.outliers([1.0, 9.0]) == []


def test_drift_is_positive_when_steps_get_slower():
    assert statistics.drift([1.0, 1.0, 1.2, 1.2]) == pytest.approx(0.2)
    assert statistics.drift([1.0, 1.1]) is None


points = st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=1, max_size=12)


@few
@given(points)
def test_the_frontier_holds_exactly_what_nothing_beats(found):
    frontier = set(statistics.pareto_frontier(found))
    for index, (rate, memory) in enumerate(found):
        beaten = any(r >= rate and m <= memory and (r, m) != (rate, memory) for r, m in found)
        twin_kept = any(found[i] == (rate, memory) for i in frontier)
        assert (index in frontier or twin_kept) == (not beaten)
