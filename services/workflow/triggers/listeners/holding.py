"""Events that have to come again later, since runs of their tenant have no room now. No I/O.

The bus keeps them meanwhile. It does so for a consumer as a whole, so nobody may have more of them
held back than are left to the others.
"""

import heapq
from collections import Counter
from collections.abc import Callable

MOST = 50_000
"""Events held back by a process; the bus lets all replicas have 200,000 in hand."""
SHORTEST, LONGEST = 1.0, 5.0
"""Seconds between two attempts: as many as the event is old. Room for runs is soon used again."""
LATEST = 300.0
"""Seconds after which an event is given up. By its run, which stays for ten minutes at least
(`runs.retention`), an event is known that has made some of its runs and comes again for others."""


class HeldBack:
    """Counts the events that this process has held back and that have not come again."""

    def __init__(self, now: Callable[[], float], most: int = MOST) -> None:
        """`now` gives seconds."""
        self._now = now
        self._free = most
        self._held: Counter[str] = Counter()
        self._due: list[tuple[float, str]] = []

    def hold(self, tenant: str, age: float) -> float | None:
        """The seconds after which an event shall come again; None when it is to be given up.

        `age` is how many seconds ago it was published.
        """
        now = self._now()
        while self._due and self._due[0][0] <= now:
            self._count(heapq.heappop(self._due)[1], -1)
        if age >= LATEST or self._held[tenant] >= self._free:
            return None
        seconds = min(max(age, SHORTEST), LONGEST)
        self._count(tenant, 1)
        heapq.heappush(self._due, (now + seconds, tenant))
        return seconds

    def _count(self, tenant: str, more: int) -> None:
        self._free -= more
        self._held[tenant] += more
        if not self._held[tenant]:
            del self._held[tenant]
