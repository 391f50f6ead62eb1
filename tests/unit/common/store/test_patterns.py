"""Texts that become regular expressions."""

import re
from pathlib import Path

import pytest

from libs.common.errors import InvalidInput
from libs.common.store.mongo import MAX_SEARCH_LENGTH, build_text_condition, literal_pattern

ROOT = Path(__file__).parents[4]
LONGEST_PATTERN = 32_764
"""Bytes of the longest pattern that MongoDB takes."""


@pytest.mark.parametrize("character", ["a", ".", "\0", "\U0001f600"])
def test_the_longest_text_is_a_pattern_that_mongodb_takes(character: str) -> None:
    """Whatever becomes of its characters."""
    pattern = literal_pattern(character * MAX_SEARCH_LENGTH)
    assert len(pattern.encode()) < LONGEST_PATTERN
    assert re.fullmatch(pattern, character * MAX_SEARCH_LENGTH)


def test_a_longer_text_is_refused_with_its_field() -> None:
    """It is a mistake of the client, not an error of the database."""
    with pytest.raises(InvalidInput) as refused:
        build_text_condition("a" * (MAX_SEARCH_LENGTH + 1), "name")
    assert refused.value.field == "name"


def test_only_the_store_escapes_texts() -> None:
    """A text of a client becomes a pattern in one place, which bounds it."""
    files = [*ROOT.glob("services/**/*.py"), *ROOT.glob("libs/**/*.py")]
    escaping = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in files
        for line in path.read_text().splitlines()
        if re.search(r"re\.escape\((?!\w*PREFIX\))", line)
    }
    assert escaping == {
        'libs/common/store/mongo.py: return re.escape(text).replace("\\0", r"\\x00")'
    }
