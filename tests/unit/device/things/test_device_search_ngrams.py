"""Ngrams: a text that contains another one has all of its ngrams."""

from collections.abc import Callable

import pytest

from services.device.things.device_search import (
    MAX_NGRAMS,
    MIN_NGRAM_LENGTH,
    NGRAM_LENGTH,
    extract_ngrams,
    fold_case,
    select_ngrams,
)


def test_ngrams_have_four_characters_in_lower_case() -> None:
    """Name and SN together have each n-gram once; the last one has three characters."""
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
def test_the_ngrams_of_a_search(texts: list[str], expected: list[str]) -> None:
    """A short text has none. A text of three characters is the beginning of an n-gram."""
    assert select_ngrams(texts) == expected


@pytest.mark.parametrize(
    "name", ["Straße in Köln", "ΣΊΣΥΦΟΣ und σίσυφος", "\u0130stanbul \u0131s\u0131", "\ufb01ne 🚀"]
)
@pytest.mark.parametrize("change", [str.upper, str.lower, str.title, str.swapcase])
def test_a_matching_name_contains_the_ngrams_of_the_text(
    name: str, change: Callable[[str], str]
) -> None:
    """This holds for every part of the name, in any case."""
    spelt = "".join(_other(character, change) for character in name)
    ngrams = extract_ngrams(name)
    for first in range(len(name)):
        for last in range(first + MIN_NGRAM_LENGTH, len(name) + 1):
            for wanted in select_ngrams([spelt[first:last]]):
                assert any(gram.startswith(wanted) for gram in ngrams)
                assert len(wanted) == MIN_NGRAM_LENGTH or wanted in ngrams


def _other(character: str, change: Callable[[str], str]) -> str:
    other = change(character)
    return other if len(other) == 1 and fold_case(other) == fold_case(character) else character


def test_a_long_text_is_looked_for_by_grams_from_all_over_it() -> None:
    """At most so many, so that looking for the rarest stays cheap."""
    wanted = select_ngrams(["".join(map(chr, range(0x4E00, 0x4E00 + 100)))])
    assert len(wanted) == len(set(wanted)) == MAX_NGRAMS
    assert {len(gram) for gram in wanted} == {NGRAM_LENGTH}
