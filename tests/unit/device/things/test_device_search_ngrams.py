"""Ngrams: a text that contains another one has all of its ngrams."""

from collections.abc import Callable

import pytest

from services.device.things.device_search import (
    LENGTH,
    MAX_NGRAMS,
    MIN_LENGTH,
    extract_ngrams,
    fold_case,
    select_ngrams,
)


def test_grams_have_four_characters_without_regard_to_case() -> None:
    """Of a name and an SN together, each once; the last one of each has three."""
    assert extract_ngrams("Hall 1", "ALL-1") == [
        "all ",
        "all-",
        "hall",
        "l 1",
        "l-1",
        "ll 1",
        "ll-1",
    ]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], []),
        (["", "ab"], []),
        (["aBc"], ["abc"]),
        (["abc", "WXYZ"], ["wxyz"]),
        (["wxyz1", "b"], ["wxyz", "xyz1"]),
    ],
)
def test_what_is_looked_for(texts: list[str], expected: list[str]) -> None:
    """Nothing for a short text, the beginning of a gram for one of three characters."""
    assert select_ngrams(texts) == expected


@pytest.mark.parametrize(
    "name", ["Straße in Köln", "ΣΊΣΥΦΟΣ und σίσυφος", "\u0130stanbul \u0131s\u0131", "\ufb01ne 🚀"]
)
@pytest.mark.parametrize("change", [str.upper, str.lower, str.title, str.swapcase])
def test_what_contains_a_text_has_its_grams(name: str, change: Callable[[str], str]) -> None:
    """Where one character has another in the other case, for every part of it."""
    spelt = "".join(_other(character, change) for character in name)
    ngrams = extract_ngrams(name)
    for first in range(len(name)):
        for last in range(first + MIN_LENGTH, len(name) + 1):
            for wanted in select_ngrams([spelt[first:last]]):
                assert any(gram.startswith(wanted) for gram in ngrams)
                assert len(wanted) == MIN_LENGTH or wanted in ngrams


def _other(character: str, change: Callable[[str], str]) -> str:
    other = change(character)
    return other if len(other) == 1 and fold_case(other) == fold_case(character) else character


def test_a_long_text_is_looked_for_by_grams_from_all_over_it() -> None:
    """At most so many, so that looking for the rarest stays cheap."""
    wanted = select_ngrams(["".join(map(chr, range(0x4E00, 0x4E00 + 100)))])
    assert len(wanted) == len(set(wanted)) == MAX_NGRAMS
    assert {len(gram) for gram in wanted} == {LENGTH}
