"""Counts what callers hold at the moment, each up to a bound."""

from collections.abc import Sequence

from libs.common.errors import TooManyRequests
from libs.common.limits.tenants import count_limited

Claim = tuple[str, int, str]
"""Who holds one, how many of it at most, and the name of that limit."""


class Counts:
    """How many each holder has of one thing. Who has none takes no room here."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def of(self, holder: str) -> int:
        """How many a holder has."""
        return self._held.get(holder, 0)

    def take(self, claims: Sequence[Claim], number: int = 1) -> Claim | None:
        """Take `number` for each claim, or none: then return the claim that is beyond its bound."""
        held = self._held
        for claim in claims:
            if held.get(claim[0], 0) + number > claim[1]:
                return claim
        for holder, _, _ in claims:
            held[holder] = held.get(holder, 0) + number
        return None

    def give(self, claims: Sequence[Claim], number: int = 1) -> None:
        """Give back what was taken."""
        held = self._held
        for holder, _, _ in claims:
            left = held.pop(holder, 0) - number
            if left > 0:
                held[holder] = left


class Held:
    """What was taken; it is given back once."""

    __slots__ = ("_claims", "_counts")

    def __init__(self, counts: Counts, claims: Sequence[Claim]) -> None:
        self._counts = counts
        self._claims = claims

    def give(self) -> None:
        """Give it back."""
        self._counts.give(self._claims)


def taken(
    counts: Counts, claims: Sequence[Claim], tenant: str, again: float, number: int = 1
) -> Held:
    """Take `number` for each claim; raise `TooManyRequests`, to try again after `again` seconds.

    `tenant` is whose refusal the metrics count; empty for callers without a login.
    """
    beyond = counts.take(claims, number)
    if beyond is None:
        return Held(counts, claims)
    _, most, limit = beyond
    if tenant:
        count_limited(limit, tenant)
    raise TooManyRequests(f"more than {most} {limit} at once", retry_after=again)
