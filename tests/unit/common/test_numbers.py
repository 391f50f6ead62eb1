"""Numbers that are written as text."""

import pytest

from libs.common.decoding import parse_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("25.8", 25.8),
        ("-7", -7),
        ("+7", 7),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("9007199254740993", 9007199254740993),
        ("1e400", float("inf")),
    ],
)
def test_a_decimal_number_is_parsed(text: str, number: float) -> None:
    """Digits alone are an integer, whatever their size."""
    assert parse_number(text) == number
    assert type(parse_number(text)) is type(number)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        " 5",
        "5 ",
        "8 °C",
        "1,5",
        "0x1F",
        "1_0",
        "NaN",
        "Infinity",
        ".",
        "e5",
        "٣",
        "9" * 5000,
    ],
)
def test_all_other_text_is_no_number(text: str) -> None:
    """Blanks, units, and what only Python reads as one."""
    assert parse_number(text) is None
