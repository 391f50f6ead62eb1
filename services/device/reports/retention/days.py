"""How long history is kept: as long as the platform's, or less for a tenant or a product."""

import time
from collections import OrderedDict

from libs.common.clock import now_ms
from libs.common.limits.tenants import KnownLimits
from libs.common.store.mongo import Database
from services.device.reports.history.partitions import DAY_MS

LIFE = 5.0
"""Seconds after which the days of a product are read anew."""
KEPT = 10_000
"""Most products that are kept."""


class Retention:
    """The days of tenants and products; a change is known within seconds."""

    def __init__(self, database: Database, limits: KnownLimits, days: int) -> None:
        self._products = database["products"]
        self._limits = limits
        self._days = days
        self._of: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    async def oldest(self, tenant: str, model: str = "") -> int:
        """From when on (ms) history of a product's devices is kept; `model` "" is no product."""
        days = await self.of_tenant(tenant)
        if model:
            days = min(days, await self._of_product(tenant, model))
        return max(now_ms() - days * DAY_MS, 0)

    async def of_tenant(self, tenant: str) -> int:
        """Days for all that is the tenant's."""
        return min(self._days, (await self._limits.asked(tenant)).history_days)

    async def of_products(self, tenant: str) -> dict[str, int]:
        """Days of the tenant's products that have some of their own."""
        query = {"_id.tenant": tenant, "historyDays": {"$gt": 0}}
        found = self._products.find(query, {"historyDays": 1})
        return {row["_id"]["model"]: row["historyDays"] async for row in found}

    async def _of_product(self, tenant: str, model: str) -> int:
        key, now = (tenant, model), time.monotonic()
        read, days = self._of.get(key, (-LIFE, self._days))
        if read + LIFE <= now:
            identity = {"tenant": tenant, "model": model}
            found = await self._products.find_one({"_id": identity}, {"historyDays": 1})
            days = (found or {}).get("historyDays") or self._days
            self._of[key] = (now, days)
            self._of.move_to_end(key)
            if len(self._of) > KEPT:
                self._of.popitem(last=False)
        return days
