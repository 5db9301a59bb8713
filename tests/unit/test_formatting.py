import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainmark import formatting as fmt


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.157, "+15.7%"), (-0.088, "−8.8%"), (0.0, "±0.0%"), (12.5, "+1,250.0%")],
)
def test_percentages_carry_their_sign(value, text):
    assert fmt.percent(value) == text


def test_numbers_have_separators_and_a_real_minus():
    assert fmt.number(1313722368) == "1,313,722,368"
    assert fmt.number(-0.25, 2) == "−0.25"
    assert fmt.number(-0.001, 1) == "0.0"
    assert fmt.number(None) == "—"
    assert fmt.mebibytes(25061) == "25,061"
    assert fmt.mebibytes(154.04) == "154.0"
    assert fmt.scientific(4e-4) == "4.0 × 10⁻⁴"
    assert fmt.rate(1e30) == "1.0 × 10³⁰"
    assert fmt.times(1.7283) == "1.73×"


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 1e4), st.floats(1e-4, 10))
def test_no_deviation_reads_as_zero(mean, deviation):
    decimals = fmt.rate_decimals([mean], [deviation])
    assert 2 <= decimals <= 4
    assert float(fmt.deviation(deviation, decimals).replace(",", "")) > 0


@settings(max_examples=60, deadline=None)
@given(st.floats(-3, 3).filter(lambda x: abs(x) > 1e-6))
def test_no_change_reads_as_zero(change):
    text = fmt.percent(change, fmt.percent_decimals([change]))
    assert text[0] == ("+" if change > 0 else "−")
    assert any(digit in text for digit in "123456789")


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_visible_text_has_no_control_or_direction_characters(text):
    shown = fmt.visible(text)
    hidden = set("\u202e\u202d\u2066\u2067\u2068\u2069\u200e\u200f\u061c\x00\x1b\x7f")
    assert not hidden & set(shown)
    shown.encode("utf-8")  # no lone surrogates


def test_long_text_keeps_its_end():
    shown = fmt.visible("x" * 20_000 + "the end", limit=100)
    assert len(shown) < 200 and shown.endswith("the end") and shown.startswith("[… ")


def test_terminal_colours_are_removed():
    assert fmt.visible("\x1b[31mred\x1b[0m") == "red"
