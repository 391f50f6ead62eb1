"""Numbers that are written as text."""

import re

_NUMBER = re.compile(
    r"[+-]?(?:([0-9]+)|(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?)"
)
_LONGEST = 400
"""Characters; Python reads 4,300 digits at most, and no `toFixed` gives as many as these."""


def parse_number(text: str) -> int | float | None:
    """Return the decimal number that `text` is, without blanks or a unit, or None.

    Digits alone are an integer of any size, all else a float, which is infinite beyond 1e308.
    """
    found = _NUMBER.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    return int(text) if found[1] else float(text)
