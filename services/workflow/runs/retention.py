"""Keeps logs within their bounds, in age and in number."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from libs.common.store.mongo import StoreError

log = logging.getLogger(__name__)

PERIOD = 60.0
"""Seconds between two looks."""
FRESH = timedelta(minutes=10)
"""Runs that are younger stay: by them an event that comes again is known."""


class Store(Protocol):
    """Where runs are kept."""

    async def forget(self, flow_id: int, run_id: int, before: datetime) -> int:
        """Delete a flow's runs up to one, of before a time."""

    async def forget_all(self, before: datetime) -> int:
        """Delete all runs of before a time."""

    async def surplus(self, flow_id: int, most: int) -> int | None:
        """The newest of the runs that a flow has beyond `most`."""


class Retention:
    """Deletes what is too old or too much; each replica looks at the flows that it has run."""

    def __init__(
        self, store: Store, grown: Callable[[], Iterable[int]], days: int, most: int
    ) -> None:
        """`grown` gives the flows whose logs have grown since it was asked before."""
        self._store = store
        self._grown = grown
        self._age = timedelta(days=days)
        self._most = most
        self._looked_at: set[int] = set()

    async def run(self) -> None:
        """Keep the bounds for ever."""
        while True:
            try:
                await self.clean(datetime.now(UTC))
            except StoreError as error:
                log.warning("old runs could not be deleted: %s", error)
            await asyncio.sleep(PERIOD)

    async def clean(self, now: datetime) -> None:
        """Keep the bounds once."""
        await self._store.forget_all(now - self._age)
        self._looked_at |= set(self._grown())
        for flow_id in sorted(self._looked_at):
            run_id = await self._store.surplus(flow_id, self._most)
            if run_id is None:
                self._looked_at.discard(flow_id)
            else:
                await self._store.forget(flow_id, run_id, now - FRESH)
