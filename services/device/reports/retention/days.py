"""How long history is kept: as long as the platform's, or less for a tenant or a product."""

import time

from libs.common.clock import now_ms
from libs.common.limits.tenants import KnownLimits
from libs.common.recent import Recent
from services.device.reports.history.partitions import DAY_MS
from services.device.things.product_store import ProductStore

LIFE = 5.0
"""Seconds after which the days of a product are read anew."""
KEPT = 10_000
"""Most products that are kept."""


class Retention:
    """The days of tenants and products; a change is known within seconds."""

    def __init__(self, products: ProductStore, limits: KnownLimits, days: int) -> None:
        self._products = products
        self._limits = limits
        self._days = days
        self._of: Recent[tuple[str, str], tuple[float, int]] = Recent(KEPT)

    async def oldest(self, tenant: str, model: str = "") -> int:
        """From when on (ms) history of a product's devices is kept; `model` "" is no product."""
        return max(now_ms() - await self.kept_ms(tenant, model), 0)

    async def kept_ms(self, tenant: str, model: str = "") -> int:
        """Return how long (ms) history of a product's devices is kept; "" is no product."""
        days = await self.of_tenant(tenant)
        if model:
            days = min(days, await self._of_product(tenant, model))
        return days * DAY_MS

    async def of_tenant(self, tenant: str) -> int:
        """Days for all that is the tenant's."""
        return min(self._days, (await self._limits.asked(tenant)).history_days)

    async def _of_product(self, tenant: str, model: str) -> int:
        key, now = (tenant, model), time.monotonic()
        read, days = self._of.get(key) or (-LIFE, self._days)
        if read + LIFE <= now:
            days = await self._products.history_days(tenant, model) or self._days
            self._of.put(key, (now, days))
        return days
