"""Finds, among many patterns with `*`, those that match a key. No I/O.

Patterns are kept by what stands before their first and behind their last `*`; a key is looked
up once for each pair of lengths that there is, so that thousands of patterns that differ in
their texts cost no more than one.
"""

from collections import Counter
from collections.abc import Iterator

Ends = tuple[str, str]


class Patterns:
    """A set of patterns; each may be added several times, by different holders."""

    def __init__(self) -> None:
        self._by_ends: dict[Ends, dict[str, tuple[str, ...]]] = {}
        self._lengths: Counter[tuple[int, int]] = Counter()

    def add(self, pattern: str) -> None:
        """Add a pattern; it has a `*`."""
        ends, middle = _parts(pattern)
        known = self._by_ends.setdefault(ends, {})
        if pattern not in known:
            known[pattern] = middle
            self._lengths[len(ends[0]), len(ends[1])] += 1

    def remove(self, pattern: str) -> None:
        """Remove a pattern that is there."""
        ends, _ = _parts(pattern)
        del self._by_ends[ends][pattern]
        if not self._by_ends[ends]:
            del self._by_ends[ends]
        lengths = len(ends[0]), len(ends[1])
        self._lengths[lengths] -= 1
        if not self._lengths[lengths]:
            del self._lengths[lengths]

    def matching(self, key: str) -> Iterator[str]:
        """The patterns that match a key."""
        size = len(key)
        for before, behind in self._lengths:
            if before + behind <= size:
                found = self._by_ends.get((key[:before], key[size - behind :]))
                if found:
                    inner = key[before : size - behind]
                    yield from (one for one, parts in found.items() if _in_order(inner, parts))


def _parts(pattern: str) -> tuple[Ends, tuple[str, ...]]:
    first, *middle, last = pattern.split("*")
    return (first, last), tuple(part for part in middle if part)


def _in_order(text: str, parts: tuple[str, ...]) -> bool:
    """Whether `text` has all parts one after the other."""
    begin = 0
    for part in parts:
        found = text.find(part, begin)
        if found < 0:
            return False
        begin = found + len(part)
    return True
