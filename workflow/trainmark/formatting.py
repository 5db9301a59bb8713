"""Numbers as text, once for all languages: half-width digits, thousands separators."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime

MINUS, TIMES, DASH, PLUS_MINUS = "\u2212", "\u00d7", "\u2014", "\u00b1"
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def number(value: float | None, decimals: int = 0) -> str:
    """`12,698` or `−0.25`; a dash for None."""
    if value is None:
        return DASH
    text = f"{value:,.{decimals}f}"
    if text.startswith("-"):
        text = text[1:] if float(text.replace(",", "")) == 0 else MINUS + text[1:]
    return text


def scientific(value: float | None) -> str:
    """Two significant digits: `4.0 × 10⁻⁴`; `0` for zero."""
    if value is None:
        return DASH
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.replace('-', MINUS)} {TIMES} 10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def rate_decimals(means: Iterable[float], deviations: Iterable[float | None] = ()) -> int:
    """Decimals for a column of throughputs: two, or up to four where two would hide a digit."""
    smallest = min((abs(mean) for mean in means if mean), default=1.0)
    for_means = 1 - math.floor(math.log10(smallest))
    spread = min((deviation for deviation in deviations if deviation), default=1.0)
    for_deviations = math.ceil(-math.log10(2 * spread))  # so that none reads as zero
    return min(4, max(2, for_means, for_deviations))


def rate(value: float | None, decimals: int = 2) -> str:
    """Samples per second."""
    if value is None:
        return DASH
    if value and not 10**-decimals <= abs(value) < 1e7:
        return scientific(value)
    return number(value, decimals)


def deviation(value: float | None, decimals: int = 2) -> str:
    """A standard deviation in the same column."""
    if value is None or abs(value) >= 1e7:
        return scientific(value)
    return number(value, decimals)


def mebibytes(value: float | None) -> str:
    if value is None:
        return DASH
    if abs(value) >= 1e9:
        return scientific(value)
    return number(value, 0 if abs(value) >= 1000 else 1)


def times(value: float | None) -> str:
    """A ratio to a baseline: `1.73×`."""
    if value is None:
        return DASH
    if value and not 0.005 <= value < 1e5:
        return f"{scientific(value)}{TIMES}"
    return number(value, 2) + TIMES


def percent_decimals(values: Iterable[float | None]) -> int:
    """The fewest decimals (1 to 4) at which no value that is not zero reads as zero."""
    known = [abs(100 * value) for value in values if value]
    smallest = min(known, default=1.0)
    return next((d for d in (1, 2, 3) if smallest >= 0.5 * 10**-d), 4)


def percent(value: float | None, decimals: int = 1, signed: bool = True) -> str:
    """`+15.7%` of the fraction 0.157."""
    if value is None:
        return DASH
    if abs(value) >= 1e4:
        text = scientific(abs(100 * value))
    else:
        text = number(abs(100 * value), decimals)
    sign = MINUS if value < 0 else "+" if signed and value > 0 else ""
    if not any(digit in text for digit in "123456789"):
        sign = "±" if signed else ""
    return f"{sign}{text}%"


def gibibytes(value: float | None) -> str:
    return DASH if value is None else number(value / 2**30, 1)


def moment(iso: str | None) -> str:
    """`2026-11-01 09:00 UTC`; the text itself where it is no ISO time."""
    if iso is None:
        return DASH
    try:
        return datetime.fromisoformat(iso.replace("Z", "+00:00")).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return iso[:40]


def seconds_between(start: str | None, end: str | None) -> float | None:
    try:
        first = datetime.fromisoformat((start or "").replace("Z", "+00:00"))
        last = datetime.fromisoformat((end or "").replace("Z", "+00:00"))
        return (last - first).total_seconds()
    except (ValueError, TypeError):
        return None


_HIDDEN = {
    *range(0x00, 0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0),
    0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF, 0xFFFE, 0xFFFF,
    *range(0xD800, 0xE000), *range(0xFDD0, 0xFDF0),
}  # fmt: skip


def visible(text: str, limit: int = 6000, keep: str = "end") -> str:
    """Captured text made safe to show: no control or direction characters.

    What is too long is cut: of a traceback the `end` is kept, of a message the `start`.
    """
    import re

    text = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", text.replace("\r\n", "\n"))
    if len(text) > limit:
        cut = f"[… {len(text) - limit:,}]"
        text = f"{cut}\n{text[-limit:]}" if keep == "end" else f"{text[:limit]} {cut}"
    return "".join(
        f"<U+{ord(char):04X}>" if ord(char) in _HIDDEN or ord(char) & 0xFFFE == 0xFFFE else char
        for char in text.replace("\r", "\n")
    )
