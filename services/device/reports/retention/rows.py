"""How much history tenants have, roughly, and how many days of it fit into their limits.

Counting all of it would take as long as reading it. Each partition knows its number of records,
and a sample of them tells whose they are: a tenant with a tenth of them is seen within a tenth.
"""

from collections import Counter, defaultdict

from libs.common.clock import now_ms
from libs.common.limits.tenants import KnownLimits, count_limited
from services.device.reports.history.partitions import (
    DAY_MS,
    KEY,
    SPAN_MS,
    Partitions,
    partition_of,
)
from services.device.things.device_queries import DeviceLists
from services.device.things.thing_store import OwnThings

SAMPLE = 1000
"""Records of a partition that are looked at."""


class HistoryRows:
    """The limits `historyRows` of all tenants."""

    def __init__(
        self,
        devices: DeviceLists,
        own: OwnThings,
        partitions: Partitions,
        limits: KnownLimits,
        days: int,
    ) -> None:
        self._devices = devices
        self._own = own
        self._partitions = partitions
        self._limits = limits
        self._days = days

    async def days(self) -> dict[str, float]:
        """The days that fit, of the tenants that have more; counts them as refused."""
        now, found = now_ms(), dict[str, float]()
        kept: dict[str, float] = defaultdict(float)
        oldest = partition_of(now - self._days * DAY_MS)
        for partition in range(partition_of(now) + 1, oldest - 1, -1):
            start, end = partition * SPAN_MS, min((partition + 1) * SPAN_MS, now)
            for tenant, rows in (await self._rows(partition)).items():
                most = (await self._limits.asked(tenant)).history_rows
                kept[tenant] += rows
                if kept[tenant] > most and tenant not in found:
                    fits = 1 - (kept[tenant] - most) / rows
                    found[tenant] = max(now - end + (end - start) * fits, 0) / DAY_MS
                    count_limited("historyRows", tenant)
        return found

    async def _rows(self, partition: int) -> dict[str, float]:
        """Records of a partition by tenant; none of what is being removed."""
        history = self._partitions.collection(partition)
        number = await history.estimated_document_count()
        if not number:
            return {}
        sample = await history.aggregate([{"$sample": {"size": SAMPLE}}, {"$project": {"_id": 1}}])
        things = Counter([KEY.unpack(row["_id"])[0] async for row in sample])
        tenants: Counter[str] = Counter()
        for store in (self._devices, self._own):
            for thing, tenant in (await store.tenants_of(things)).items():
                tenants[tenant] += things[thing]
        looked_at = things.total()
        return {tenant: number * seen / looked_at for tenant, seen in tenants.items()}
