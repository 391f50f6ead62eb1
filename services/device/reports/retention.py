"""Retention: partitions of history whose time is over are dropped whole."""

import asyncio
import logging

from libs.common.clock import now_ms
from libs.common.store.mongo import StoreError
from services.device.history.partitions import DAY_MS, Partitions

log = logging.getLogger(__name__)

PERIOD = 3600.0


async def drop_old_history(partitions: Partitions, days: int) -> None:
    """Drop old partitions, once an hour, for ever; run by the lease holder."""
    while True:
        try:
            dropped = await partitions.drop_before(now_ms() - days * DAY_MS)
            if dropped:
                log.info("history is kept for %d days: dropped %s", days, ", ".join(dropped))
        except StoreError as error:
            log.warning("retention waits: %s", error)
        await asyncio.sleep(PERIOD)
