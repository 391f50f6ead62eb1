"""Keeps logs within their bounds, in age and in number."""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from services.workflow.runs.store import RunStore

log = logging.getLogger(__name__)

PERIOD = 60.0
"""Seconds between two looks."""
FRESH = timedelta(minutes=10)
"""Runs that are younger stay: by them an event that comes again is known."""


class Retention:
    """Deletes what is too old or too much; each replica looks at the flows that it has run."""

    def __init__(
        self, store: RunStore, grown: Callable[[], Iterable[int]], days: int, most: int
    ) -> None:
        """`grown` gives the flows whose logs have grown since it was asked before."""
        self._store = store
        self._grown = grown
        self._age = timedelta(days=days)
        self._most = most
        self._looked_at: set[int] = set()

    async def clean(self, now: datetime | None = None) -> None:
        """Keep the bounds as of `now`."""
        now = now or datetime.now(UTC)
        await self._store.forget_all(now - self._age)
        self._looked_at |= set(self._grown())
        for flow_id in sorted(self._looked_at):
            run_id = await self._store.surplus(flow_id, self._most)
            if run_id is None:
                self._looked_at.discard(flow_id)
            else:
                await self._store.forget(flow_id, run_id, now - FRESH)
