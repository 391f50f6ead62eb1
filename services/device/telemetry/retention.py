"""Retention of history: how long data is kept, and the sweeps that delete it.

A sweep pauses nine times as long as it works, and holds only some hundred ids in memory.

The size of a tenant's history is estimated, because counting takes as long as reading it. Each
partition knows its number of records, and a sample of them shows the share of each tenant.
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
from libs.common.limits.tenants import LimitsCache, count_rejection
from libs.common.lru_cache import LruCache
from libs.common.scheduling.turns import TenantSteps, repeat, take_turns
from libs.common.store.mongo import Collection
from services.device.telemetry.ledger import Ledger
from services.device.telemetry.partitions import (
    DAY_MS,
    KEY_FORMAT,
    MAX_KEY_PART,
    PARTITION_MS,
    Partitions,
    collection_name,
    history_key,
    partition_number,
)
from services.device.things.deleted_things import DeletedThings, ThingDataStore
from services.device.things.device_queries import DeviceQueries
from services.device.things.product_store import ProductStore
from services.device.things.thing_store import ThingStore

log = logging.getLogger(__name__)

CACHE_SECONDS = 5.0
"""Seconds that the days of a product are cached."""
CACHE_SIZE = 10_000
"""Maximum products whose days are cached."""


class Retention:
    """Returns how long tenants and products keep history; it caches this for some seconds."""

    def __init__(self, products: ProductStore, limits: LimitsCache, days: int) -> None:
        self._products = products
        self._limits = limits
        self._days = days
        self._product_days: LruCache[tuple[str, str], tuple[float, int]] = LruCache(CACHE_SIZE)

    async def oldest_kept_time(self, tenant: str, model: str = "") -> int:
        """Return the time (ms) from which history of a product is kept; "" is no product."""
        return max(now_ms() - await self.kept_ms(tenant, model), 0)

    async def kept_ms(self, tenant: str, model: str = "") -> int:
        """Return how long (ms) history of a product's devices is kept; "" is no product."""
        days = await self.find_tenant_days(tenant)
        if model:
            days = min(days, await self._find_product_days(tenant, model))
        return days * DAY_MS

    async def find_tenant_days(self, tenant: str) -> int:
        """Return the days that history of a tenant is kept."""
        return min(self._days, (await self._limits.fetch(tenant)).history_days)

    async def _find_product_days(self, tenant: str, model: str) -> int:
        key, now = (tenant, model), time.monotonic()
        read, days = self._product_days.get(key) or (-CACHE_SECONDS, self._days)
        if read + CACHE_SECONDS <= now:
            days = await self._products.find_history_days(tenant, model) or self._days
            self._product_days.put(key, (now, days))
        return days


SAMPLED_RECORDS = 1000
"""Records in the sample of a partition."""


@dataclass(frozen=True)
class HistoryRowLimits:
    """Checks the limit `historyRows` of all tenants."""

    devices: DeviceQueries
    thing_store: ThingStore
    partitions: Partitions
    limits: LimitsCache
    kept_days: int

    async def find_reduced_days(self) -> dict[str, float]:
        """Return the days of history that fit into the limit, only for tenants that exceed it."""
        now, reduced_days = now_ms(), dict[str, float]()
        kept_rows: dict[str, float] = defaultdict(float)
        oldest = partition_number(now - self.kept_days * DAY_MS)
        for partition in range(partition_number(now) + 1, oldest - 1, -1):
            start, end = partition * PARTITION_MS, min((partition + 1) * PARTITION_MS, now)
            for tenant, rows in (await self._estimate_rows(partition)).items():
                maximum = (await self.limits.fetch(tenant)).history_rows
                kept_rows[tenant] += rows
                if kept_rows[tenant] > maximum and tenant not in reduced_days:
                    fits = 1 - (kept_rows[tenant] - maximum) / rows
                    reduced_days[tenant] = max(now - end + (end - start) * fits, 0) / DAY_MS
                    count_rejection("historyRows", tenant)
        return reduced_days

    async def _estimate_rows(self, partition: int) -> dict[str, float]:
        """Estimate the records of a partition by tenant; omit deleted things."""
        history = self.partitions.collection(partition)
        number = await history.estimated_document_count()
        if not number:
            return {}
        sample = await history.aggregate(
            [{"$sample": {"size": SAMPLED_RECORDS}}, {"$project": {"_id": 1}}]
        )
        things = Counter([KEY_FORMAT.unpack(row["_id"])[0] async for row in sample])
        tenants: Counter[str] = Counter()
        for store in (self.devices, self.thing_store):
            for thing, tenant in (await store.find_tenants(things)).items():
                tenants[tenant] += things[thing]
        looked_at = things.total()
        return {tenant: number * sampled / looked_at for tenant, sampled in tenants.items()}


CONCURRENT_TENANTS = 2
"""Maximum tenants whose history is deleted concurrently."""
SWEEP_INTERVAL_SECONDS = 3600.0
"""Seconds between two sweeps."""
THINGS_PER_BATCH = 200
"""Maximum things whose data is deleted together."""
PAUSE_RATIO = 9
"""Ratio of the pause after each deletion to its duration."""
MAX_PAUSE_SECONDS = 10.0
"""Maximum seconds of the pause after each deletion of a sweep."""


@dataclass(kw_only=True)
class RetentionSweeper:
    """Deletes data that is older than its retention, and data of deleted things."""

    devices: DeviceQueries
    thing_store: ThingStore
    deleted_things: DeletedThings
    partitions: Partitions
    events: Collection
    ledger: Ledger
    products: ProductStore
    retention: Retention
    rows: HistoryRowLimits
    stores: Sequence[ThingDataStore]
    days: int
    _reduced_days: dict[str, float] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """Sweep once an hour; run by the lease holder."""
        tenants = take_turns(
            "retention",
            CONCURRENT_TENANTS,
            self.list_tenants_to_sweep,
            self.sweep_tenant,
            SWEEP_INTERVAL_SECONDS,
        )
        await run_until_first_ends(
            tenants, repeat(self.sweep_platform, SWEEP_INTERVAL_SECONDS, "retention")
        )

    async def sweep_platform(self) -> None:
        """Delete data regardless of tenants, the cheapest steps first."""
        dropped = await self.partitions.drop_before(now_ms() - self.days * DAY_MS)
        if dropped:
            log.info("history is kept for %d days: dropped %s", self.days, ", ".join(dropped))
        await self.ledger.merge_old_pages()
        await self.delete_orphaned_data()
        await self.delete_old_events()

    async def delete_old_events(self) -> None:
        """Delete events that are older than the platform keeps history."""
        after = b""
        oldest = now_ms() - self.days * DAY_MS
        while True:
            async with throttled():
                row = await self.events.find_one(
                    {"_id": {"$gt": after}}, {"_id": 1}, sort=[("_id", 1)]
                )
                if row is None:
                    return
                device, ts, _ = KEY_FORMAT.unpack(row["_id"])
                if ts < oldest:
                    await self.events.delete_many(_older_than_query(device, oldest))
                after = history_key(device, MAX_KEY_PART, MAX_KEY_PART)

    async def list_tenants_to_sweep(self) -> list[str]:
        """Return the tenants with devices; estimate which of them exceed their limit of rows."""
        self._reduced_days = await self.rows.find_reduced_days()
        return await self.devices.list_tenants()

    async def sweep_tenant(self, tenant: str) -> TenantSteps:
        """Delete history and events of a tenant that are older than its retention.

        Products may keep them for fewer days. A tenant that exceeds its limit of rows keeps as many
        days as fit.
        """
        days = min(
            await self.retention.find_tenant_days(tenant), self._reduced_days.get(tenant, self.days)
        )
        products = await self.products.list_history_days(tenant)
        if days < self.days or any(product < self.days for product in products.values()):
            async for _ in self._delete_expired(tenant, days, products):
                yield

    async def delete_orphaned_data(self) -> None:
        """Delete the data of deleted things."""
        while things := await self.deleted_things.list_after_delay(THINGS_PER_BATCH):
            for thing in things:
                async with throttled():
                    await self._delete_data(thing)

    async def _delete_data(self, thing: int) -> None:
        everything = _older_than_query(thing, MAX_KEY_PART)
        for collection in [*await self.partitions.collections(), self.events]:
            await collection.delete_many(everything)
        for store in self.stores:
            await store.delete_thing_data(thing)
        await self.deleted_things.delete_record(thing)

    async def _delete_expired(
        self, tenant: str, days: float, products: dict[str, int]
    ) -> TenantSteps:
        """Delete old data of the tenant's devices.

        If the tenant keeps history for fewer days than the platform, also delete old data of its
        things that are not devices.
        """
        models = None if days < self.days else list(products)
        after = 0
        while chunk := await self.devices.list_ids_with_models(
            tenant, models, after, THINGS_PER_BATCH
        ):
            await self._delete_older(
                {thing: min(days, products.get(model, days)) for thing, model in chunk}
            )
            after = chunk[-1][0]
            yield
        if days < self.days:
            after = 0
            while ids := await self.thing_store.list_ids(tenant, after, THINGS_PER_BATCH):
                await self._delete_older(dict.fromkeys(ids, days))
                after = ids[-1]
                yield

    async def _delete_older(self, days: dict[int, float]) -> None:
        """Delete history and events that are older than the `days` of their thing, by thing id."""
        now = now_ms()
        oldest = collection_name(partition_number(now - self.days * DAY_MS))
        newest = collection_name(partition_number(now - int(min(days.values()) * DAY_MS)))
        cuts = [
            DeleteMany(_older_than_query(thing, now - int(d * DAY_MS))) for thing, d in days.items()
        ]
        partitions = await self.partitions.collections()
        reached = [history for history in partitions if oldest <= history.name <= newest]
        for collection in [*reached, self.events]:
            async with throttled():
                await collection.bulk_write(cuts, ordered=False)


@asynccontextmanager
async def throttled() -> AsyncIterator[None]:
    """Pause for `PAUSE_RATIO` times the duration of the body, at most `MAX_PAUSE_SECONDS`."""
    started = time.monotonic()
    yield
    await asyncio.sleep(min((time.monotonic() - started) * PAUSE_RATIO, MAX_PAUSE_SECONDS))


def _older_than_query(thing: int, oldest: int) -> dict[str, Any]:
    return {"_id": {"$gte": history_key(thing, 0, 0), "$lt": history_key(thing, oldest, 0)}}
