"""Ends what is old, and removes what things have left: ranges of the history key, by thing.

A sweep rests nine times as long as it works, and holds some hundred ids at a time.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pymongo import DeleteMany

from libs.common.clock import now_ms
from libs.common.jobs import together
from libs.common.scheduling.turns import Steps, repeat, take_turns
from libs.common.store.mongo import Collection
from services.device.reports.history.partitions import (
    DAY_MS,
    KEY,
    LAST,
    Partitions,
    collection_name,
    history_key,
    partition_of,
)
from services.device.reports.ledger import Ledger
from services.device.reports.retention.days import Retention
from services.device.reports.retention.rows import HistoryRows
from services.device.things.deleted_things import RemovedThings, ThingDataStore
from services.device.things.device_queries import DeviceLists
from services.device.things.product_store import ProductStore
from services.device.things.thing_store import OwnThings

log = logging.getLogger(__name__)

WORKERS = 2
"""Tenants whose history is shortened at a time."""
PERIOD = 3600.0
"""Seconds between two rounds."""
CHUNK = 200
"""Things that are dealt with together."""
REST = 9
"""Times as long as it works that a sweep rests."""
LONGEST_REST = 10.0
"""Seconds."""


class Sweeps:
    """Removes what is older than it may be, and what belongs to nobody any more."""

    def __init__(
        self,
        *,
        devices: DeviceLists,
        own: OwnThings,
        removed: RemovedThings,
        partitions: Partitions,
        events: Collection,
        ledger: Ledger,
        products: ProductStore,
        retention: Retention,
        rows: HistoryRows,
        stores: Sequence[ThingDataStore],
        days: int,
    ) -> None:
        self._devices = devices
        self._own = own
        self._removed = removed
        self._partitions = partitions
        self._events = events
        self._ledger = ledger
        self._products = products
        self._retention = retention
        self._rows = rows
        self._stores = stores
        self._days = days
        self._fitting: dict[str, float] = {}

    async def run(self) -> None:
        """Work once an hour, for ever; run by the lease holder."""
        shorter = take_turns("retention", WORKERS, self.tenants, self.shorter, PERIOD)
        await together(shorter, repeat(self.once, PERIOD, "retention waits"))

    async def once(self) -> None:
        """Do what is for all tenants alike, or for none any more; what is cheap first."""
        dropped = await self._partitions.drop_before(now_ms() - self._days * DAY_MS)
        if dropped:
            log.info("history is kept for %d days: dropped %s", self._days, ", ".join(dropped))
        await self._ledger.fold()
        await self.removed()
        await self.old_events()

    async def old_events(self) -> None:
        """Events of devices that are older than the platform keeps history."""
        after = b""
        oldest = now_ms() - self._days * DAY_MS
        while True:
            async with at_ease():
                row = await self._events.find_one(
                    {"_id": {"$gt": after}}, {"_id": 1}, sort=[("_id", 1)]
                )
                if row is None:
                    return
                device, ts, _ = KEY.unpack(row["_id"])
                if ts < oldest:
                    await self._events.delete_many(_before(device, oldest))
                after = history_key(device, LAST, LAST)

    async def tenants(self) -> list[str]:
        """Return the tenants that have devices; find out whose history is too much."""
        self._fitting = await self._rows.days()
        return await self._devices.tenants()

    async def shorter(self, tenant: str) -> Steps:
        """Remove history and events of a tenant and products that keep theirs for fewer days.

        A tenant that has more history than it may keeps it for as many days as fit.
        """
        days = min(await self._retention.of_tenant(tenant), self._fitting.get(tenant, self._days))
        products = await self._products.all_history_days(tenant)
        if days < self._days or any(one < self._days for one in products.values()):
            async for _ in self._shorten(tenant, days, products):
                yield

    async def removed(self) -> None:
        """Whatever is left of things that are gone."""
        while gone := await self._removed.settled(CHUNK):
            for thing in gone:
                async with at_ease():
                    await self._remove(thing)

    async def _remove(self, thing: int) -> None:
        everything = _before(thing, LAST)
        for collection in [*await self._partitions.collections(), self._events]:
            await collection.delete_many(everything)
        for store in self._stores:
            await store.delete_thing_data(thing)
        await self._removed.forget(thing)

    async def _shorten(self, tenant: str, days: float, products: dict[str, int]) -> Steps:
        """Go through the tenant's devices, and its own things where all is kept for less."""
        models = None if days < self._days else list(products)
        after = 0
        while chunk := await self._devices.models_after(tenant, models, after, CHUNK):
            await self._cut({thing: min(days, products.get(model, days)) for thing, model in chunk})
            after = chunk[-1][0]
            yield
        if days < self._days:
            after = 0
            while own := await self._own.after(tenant, after, CHUNK):
                await self._cut(dict.fromkeys(own, days))
                after = own[-1]
                yield

    async def _cut(self, days: dict[int, float]) -> None:
        """Delete what is older than so many days, by thing."""
        now = now_ms()
        oldest = collection_name(partition_of(now - self._days * DAY_MS))
        newest = collection_name(partition_of(now - int(min(days.values()) * DAY_MS)))
        cuts = [DeleteMany(_before(thing, now - int(d * DAY_MS))) for thing, d in days.items()]
        partitions = await self._partitions.collections()
        reached = [history for history in partitions if oldest <= history.name <= newest]
        for collection in [*reached, self._events]:
            async with at_ease():
                await collection.bulk_write(cuts, ordered=False)


@asynccontextmanager
async def at_ease() -> AsyncIterator[None]:
    """Do some work, and rest after it."""
    started = time.monotonic()
    yield
    await asyncio.sleep(min((time.monotonic() - started) * REST, LONGEST_REST))


def _before(thing: int, oldest: int) -> dict[str, Any]:
    return {"_id": {"$gte": history_key(thing, 0, 0), "$lt": history_key(thing, oldest, 0)}}
