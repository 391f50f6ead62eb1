"""Counts of what is held at the same time, each with a bound."""

from collections.abc import Sequence

Claim = tuple[str, int, str]
"""Who holds one, how many of it at most, and the name of that limit."""


class Counts:
    """How many each holder has of one thing. Who has none takes no room here."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def of(self, holder: str) -> int:
        """How many a holder has."""
        return self._held.get(holder, 0)

    def take(self, claims: Sequence[Claim]) -> Claim | None:
        """Take one for each claim, or none at all: then the claim that is beyond its bound."""
        held = self._held
        for claim in claims:
            if held.get(claim[0], 0) >= claim[1]:
                return claim
        for holder, _, _ in claims:
            held[holder] = held.get(holder, 0) + 1
        return None

    def give(self, claims: Sequence[Claim]) -> None:
        """Give back what was taken."""
        held = self._held
        for holder, _, _ in claims:
            left = held[holder] - 1
            if left:
                held[holder] = left
            else:
                del held[holder]
