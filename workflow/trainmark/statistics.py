"""The statistics of a row: every number on the page that is not a raw measurement is made here.

Student's t quantiles come from scipy.special (scipy.stats costs a second to import).
"""

from __future__ import annotations

import math
import statistics as std
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
OUTLIER_SCORE = 3.5  # modified z-score, Iglewicz and Hoaglin (1993)
MEAN_INTERVAL_METHOD = "Student t"
RATIO_METHOD = "Welch t on logarithms"


@dataclass(frozen=True)
class Summary:
    """Repeats of one number. `stddev` has ddof 1 and is None for a single value."""

    n: int
    mean: float
    stddev: float | None
    median: float
    relative_spread: float | None  # stddev / mean
    interval: tuple[float, float] | None  # of the mean, Student t


@dataclass(frozen=True)
class Ratio:
    """numerator / denominator - 1, with its interval where the repeats allow one."""

    change: float
    low: float | None
    high: float | None
    n: tuple[int, int]

    @property
    def is_clear(self) -> bool | None:
        """Does the interval exclude "no difference"? None where there is no interval."""
        if self.low is None or self.high is None:
            return None
        return self.low > 0 or self.high < 0


def t_quantile(probability: float, degrees: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def summarise(values: Sequence[float]) -> Summary | None:
    """Mean, sample standard deviation, median, spread and interval; None without values."""
    if not values:
        return None
    mean = std.fmean(values)
    stddev = std.stdev(values) if len(values) > 1 else None
    spread = stddev / mean if stddev is not None and mean else None
    return Summary(len(values), mean, stddev, std.median(values), spread, mean_interval(values))


def mean_interval(
    values: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Student's t interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = std.fmean(values)
    error = std.stdev(values) / math.sqrt(len(values))
    half = t_quantile((1 + confidence) / 2, len(values) - 1) * error
    return mean - half, mean + half


def relative_half_width(values: Sequence[float], confidence: float = CONFIDENCE) -> float | None:
    """Half the interval of the mean, relative to the mean: what `repeats: auto` looks at."""
    interval = mean_interval(values, confidence)
    if interval is None:
        return None
    return (interval[1] - interval[0]) / 2 / abs(std.fmean(values))


def ratio(
    numerator: Sequence[float],
    denominator: Sequence[float],
    confidence: float = CONFIDENCE,
    systematic: float = 0.0,
) -> Ratio | None:
    """Relative change between two rows of positive numbers; None where one of them has none.

    `change` is the ratio of the arithmetic means minus one. The interval is Welch's
    unequal-variance t interval of the difference of mean logarithms, taken back to a ratio;
    there is none where a row has one value or where neither row varies at all. `systematic` is a
    relative change that the repeats cannot show; it widens the interval on both sides.
    """
    if not numerator or not denominator:
        return None
    change = std.fmean(numerator) / std.fmean(denominator) - 1
    counts = len(numerator), len(denominator)
    bounds = _welch(
        [math.log(x) for x in numerator], [math.log(x) for x in denominator], confidence
    )
    if bounds is None:
        return Ratio(change, None, None, counts)
    extra = abs(math.log1p(systematic))
    return Ratio(change, math.expm1(bounds[0] - extra), math.expm1(bounds[1] + extra), counts)


def _welch(
    first: Sequence[float], second: Sequence[float], confidence: float
) -> tuple[float, float] | None:
    """Welch's interval of the difference of means (first - second)."""
    if min(len(first), len(second)) < 2:
        return None
    errors = [std.variance(values) / len(values) for values in (first, second)]
    total = sum(errors)
    if total < 1e-24:  # identical repeats: only rounding of the logarithms is left
        return None
    degrees = total**2 / sum(
        error**2 / (len(values) - 1) for error, values in zip(errors, (first, second), strict=True)
    )
    half = t_quantile((1 + confidence) / 2, degrees) * math.sqrt(total)
    difference = std.fmean(first) - std.fmean(second)
    return difference - half, difference + half


def outliers(values: Sequence[float], score: float = OUTLIER_SCORE) -> list[int]:
    """Indices whose modified z-score exceeds `score`. They are shown, never dropped."""
    if len(values) < 5:
        return []
    median = std.median(values)
    deviation = std.median(abs(value - median) for value in values)
    if deviation == 0:
        return []
    return [
        index
        for index, value in enumerate(values)
        if 0.6745 * abs(value - median) / deviation > score
    ]


def drift(values: Sequence[float]) -> float | None:
    """Median of the second half over the median of the first half, minus one.

    Positive step times drift: the run got slower. None for fewer than four values.
    """
    if len(values) < 4:
        return None
    half = len(values) // 2
    first = std.median(values[:half])
    return std.median(values[-half:]) / first - 1 if first else None


def pareto_frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of (throughput, memory) points that no other point beats in both, by memory."""
    order = sorted(range(len(points)), key=lambda i: (points[i][1], -points[i][0]))
    best, frontier = -math.inf, []
    for index in order:
        if points[index][0] > best:
            best = points[index][0]
            frontier.append(index)
    return frontier
