"""Retention of history: how long data is kept, and the sweeps that delete it.

A sweep rests nine times as long as it works, and holds some hundred ids at a time.

How much history tenants have, roughly, and how many days of it fit into their limits.

Counting all of it would take as long as reading it. Each partition knows its number of records,
and a sample of them tells whose they are: a tenant with a tenth of them is seen within a tenth.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pymongo import DeleteMany

from libs.common.clock import now_ms
from libs.common.jobs import run_until_first_ends
from libs.common.limits.tenants import LimitsCache, count_limited
from libs.common.lru_cache import LruCache
from libs.common.scheduling.turns import Steps, repeat, take_turns
from libs.common.store.mongo import Collection
from services.device.telemetry.ledger import Ledger
from services.device.telemetry.partitions import (
    DAY_MS,
    KEY,
    LAST,
    SPAN_MS,
    Partitions,
    collection_name,
    history_key,
    partition_of,
)
from services.device.things.deleted_things import DeletedThings, ThingDataStore
from services.device.things.device_queries import DeviceQueries
from services.device.things.product_store import ProductStore
from services.device.things.thing_store import ThingStore

log = logging.getLogger(__name__)

LIFE = 5.0
"""Seconds after which the days of a product are read anew."""
KEPT = 10_000
"""Most products that are kept."""


class Retention:
    """The days of tenants and products; a change is known within seconds."""

    def __init__(self, products: ProductStore, limits: LimitsCache, days: int) -> None:
        self._products = products
        self._limits = limits
        self._days = days
        self._of: LruCache[tuple[str, str], tuple[float, int]] = LruCache(KEPT)

    async def oldest(self, tenant: str, model: str = "") -> int:
        """From when on (ms) history of a product's devices is kept; `model` "" is no product."""
        return max(now_ms() - await self.kept_ms(tenant, model), 0)

    async def kept_ms(self, tenant: str, model: str = "") -> int:
        """Return how long (ms) history of a product's devices is kept; "" is no product."""
        days = await self.find_tenant_days(tenant)
        if model:
            days = min(days, await self._of_product(tenant, model))
        return days * DAY_MS

    async def find_tenant_days(self, tenant: str) -> int:
        """Days for all that is the tenant's."""
        return min(self._days, (await self._limits.asked(tenant)).history_days)

    async def _of_product(self, tenant: str, model: str) -> int:
        key, now = (tenant, model), time.monotonic()
        read, days = self._of.get(key) or (-LIFE, self._days)
        if read + LIFE <= now:
            days = await self._products.find_history_days(tenant, model) or self._days
            self._of.put(key, (now, days))
        return days


SAMPLE = 1000
"""Records of a partition that are looked at."""


@dataclass(frozen=True)
class HistoryRowLimits:
    """The limits `historyRows` of all tenants."""

    devices: DeviceQueries
    thing_store: ThingStore
    partitions: Partitions
    limits: LimitsCache
    kept_days: int

    async def days(self) -> dict[str, float]:
        """The days that fit, of the tenants that have more; counts them as refused."""
        now, found = now_ms(), dict[str, float]()
        kept: dict[str, float] = defaultdict(float)
        oldest = partition_of(now - self.kept_days * DAY_MS)
        for partition in range(partition_of(now) + 1, oldest - 1, -1):
            start, end = partition * SPAN_MS, min((partition + 1) * SPAN_MS, now)
            for tenant, rows in (await self._rows(partition)).items():
                most = (await self.limits.asked(tenant)).history_rows
                kept[tenant] += rows
                if kept[tenant] > most and tenant not in found:
                    fits = 1 - (kept[tenant] - most) / rows
                    found[tenant] = max(now - end + (end - start) * fits, 0) / DAY_MS
                    count_limited("historyRows", tenant)
        return found

    async def _rows(self, partition: int) -> dict[str, float]:
        """Records of a partition by tenant; none of what is being removed."""
        history = self.partitions.collection(partition)
        number = await history.estimated_document_count()
        if not number:
            return {}
        sample = await history.aggregate([{"$sample": {"size": SAMPLE}}, {"$project": {"_id": 1}}])
        things = Counter([KEY.unpack(row["_id"])[0] async for row in sample])
        tenants: Counter[str] = Counter()
        for store in (self.devices, self.thing_store):
            for thing, tenant in (await store.find_tenants(things)).items():
                tenants[tenant] += things[thing]
        looked_at = things.total()
        return {tenant: number * seen / looked_at for tenant, seen in tenants.items()}


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


@dataclass(kw_only=True)
class RetentionSweeper:
    """Removes what is older than it may be, and what belongs to nobody any more."""

    devices: DeviceQueries
    thing_store: ThingStore
    gone: DeletedThings
    partitions: Partitions
    events: Collection
    ledger: Ledger
    products: ProductStore
    retention: Retention
    rows: HistoryRowLimits
    stores: Sequence[ThingDataStore]
    days: int
    _fitting: dict[str, float] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """Work once an hour, for ever; run by the lease holder."""
        shorter = take_turns("retention", WORKERS, self.tenants, self.shorter, PERIOD)
        await run_until_first_ends(shorter, repeat(self.once, PERIOD, "retention waits"))

    async def once(self) -> None:
        """Do what is for all tenants alike, or for none any more; what is cheap first."""
        dropped = await self.partitions.drop_before(now_ms() - self.days * DAY_MS)
        if dropped:
            log.info("history is kept for %d days: dropped %s", self.days, ", ".join(dropped))
        await self.ledger.fold()
        await self.removed()
        await self.old_events()

    async def old_events(self) -> None:
        """Events of devices that are older than the platform keeps history."""
        after = b""
        oldest = now_ms() - self.days * DAY_MS
        while True:
            async with throttled():
                row = await self.events.find_one(
                    {"_id": {"$gt": after}}, {"_id": 1}, sort=[("_id", 1)]
                )
                if row is None:
                    return
                device, ts, _ = KEY.unpack(row["_id"])
                if ts < oldest:
                    await self.events.delete_many(_before(device, oldest))
                after = history_key(device, LAST, LAST)

    async def tenants(self) -> list[str]:
        """Return the tenants that have devices; find out whose history is too much."""
        self._fitting = await self.rows.days()
        return await self.devices.list_tenants()

    async def shorter(self, tenant: str) -> Steps:
        """Remove history and events of a tenant and products that keep theirs for fewer days.

        A tenant that has more history than it may keeps it for as many days as fit.
        """
        days = min(
            await self.retention.find_tenant_days(tenant), self._fitting.get(tenant, self.days)
        )
        products = await self.products.list_history_days(tenant)
        if days < self.days or any(one < self.days for one in products.values()):
            async for _ in self._shorten(tenant, days, products):
                yield

    async def removed(self) -> None:
        """Whatever is left of things that are gone."""
        while gone := await self.gone.list_settled(CHUNK):
            for thing in gone:
                async with throttled():
                    await self._remove(thing)

    async def _remove(self, thing: int) -> None:
        everything = _before(thing, LAST)
        for collection in [*await self.partitions.collections(), self.events]:
            await collection.delete_many(everything)
        for store in self.stores:
            await store.delete_thing_data(thing)
        await self.gone.delete(thing)

    async def _shorten(self, tenant: str, days: float, products: dict[str, int]) -> Steps:
        """Go through the tenant's devices, and its own things where all is kept for less."""
        models = None if days < self.days else list(products)
        after = 0
        while chunk := await self.devices.list_models(tenant, models, after, CHUNK):
            await self._cut({thing: min(days, products.get(model, days)) for thing, model in chunk})
            after = chunk[-1][0]
            yield
        if days < self.days:
            after = 0
            while own := await self.thing_store.list_ids(tenant, after, CHUNK):
                await self._cut(dict.fromkeys(own, days))
                after = own[-1]
                yield

    async def _cut(self, days: dict[int, float]) -> None:
        """Delete what is older than so many days, by thing."""
        now = now_ms()
        oldest = collection_name(partition_of(now - self.days * DAY_MS))
        newest = collection_name(partition_of(now - int(min(days.values()) * DAY_MS)))
        cuts = [DeleteMany(_before(thing, now - int(d * DAY_MS))) for thing, d in days.items()]
        partitions = await self.partitions.collections()
        reached = [history for history in partitions if oldest <= history.name <= newest]
        for collection in [*reached, self.events]:
            async with throttled():
                await collection.bulk_write(cuts, ordered=False)


@asynccontextmanager
async def throttled() -> AsyncIterator[None]:
    """Do some work, and rest after it."""
    started = time.monotonic()
    yield
    await asyncio.sleep(min((time.monotonic() - started) * REST, LONGEST_REST))


def _before(thing: int, oldest: int) -> dict[str, Any]:
    return {"_id": {"$gte": history_key(thing, 0, 0), "$lt": history_key(thing, oldest, 0)}}
