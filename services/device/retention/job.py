"""The job of one replica that ends what is old."""

import asyncio
import logging

from libs.common.clock import now_ms
from libs.common.store.mongo import StoreError
from services.device.history.partitions import DAY_MS, Partitions
from services.device.reports.ledger import Ledger
from services.device.retention.sweeps import Sweeps

log = logging.getLogger(__name__)

PERIOD = 3600.0
"""Seconds between two rounds."""


class RetentionJob:
    """Drops partitions of history whose time is over, and sweeps what is old or nobody's."""

    def __init__(self, partitions: Partitions, ledger: Ledger, sweeps: Sweeps, days: int) -> None:
        self._partitions = partitions
        self._ledger = ledger
        self._sweeps = sweeps
        self._days = days

    async def run(self) -> None:
        """Work once an hour, for ever; run by the lease holder."""
        while True:
            try:
                await self.once()
            except StoreError as error:
                log.warning("retention waits: %s", error)
            await asyncio.sleep(PERIOD)

    async def once(self) -> None:
        """One round, what is cheap first."""
        dropped = await self._partitions.drop_before(now_ms() - self._days * DAY_MS)
        if dropped:
            log.info("history is kept for %d days: dropped %s", self._days, ", ".join(dropped))
        await self._ledger.fold()
        await self._sweeps.removed()
        await self._sweeps.shorter()
        await self._sweeps.old_events()
