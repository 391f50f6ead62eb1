"""Keeps logs within their bounds, in age and in number."""

import asyncio
import logging
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

    async def crowded(self, most: int) -> list[tuple[int, int]]:
        """Flows with more than `most` runs, each with the newest of those that are too many."""


class Retention:
    """Deletes what is too old or too much."""

    def __init__(self, store: Store, days: int, most: int) -> None:
        self._store = store
        self._age = timedelta(days=days)
        self._most = most

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
        for flow_id, run_id in await self._store.crowded(self._most):
            await self._store.forget(flow_id, run_id, now - FRESH)
