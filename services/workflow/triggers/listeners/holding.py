"""Events that have to come again later, since runs of their tenant have no room now. No I/O.

The bus keeps them meanwhile. It does so for a consumer as a whole, so nobody may have more of them
held back than are left to the others.
"""

import heapq
from collections.abc import Callable

from services.workflow.fairness.shares import Shares

MOST = 50_000
"""Events held back by a process; the bus lets all replicas have 200,000 in hand."""
LONGEST = 60.0
"""Seconds between two attempts."""
MOST_ATTEMPTS = 10
"""After 1, 2, 4, … seconds: five minutes. By its run, which stays for ten minutes at least
(`runs.retention`), an event is known that has made some of its runs and comes again for others."""


class HeldBack:
    """Counts the events that this process has held back and that have not come again."""

    def __init__(self, now: Callable[[], float], most: int = MOST) -> None:
        """`now` gives seconds."""
        self._now = now
        self._shares = Shares(most)
        self._due: list[tuple[float, str]] = []

    def hold(self, tenant: str, attempts: int) -> float | None:
        """The seconds after which an event shall come again; None when it is to be given up.

        `attempts` is how many there were, with this one.
        """
        now = self._now()
        while self._due and self._due[0][0] <= now:
            self._shares.give_back(heapq.heappop(self._due)[1])
        if attempts >= MOST_ATTEMPTS or not self._shares.fits(tenant):
            return None
        seconds = min(2.0 ** (attempts - 1), LONGEST)
        self._shares.take(tenant)
        heapq.heappush(self._due, (now + seconds, tenant))
        return seconds
