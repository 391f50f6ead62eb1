"""The limits of tenants, requested from `auth` in the background and cached."""

import asyncio
import logging
import time

from opentelemetry import metrics

from libs.common.bus import RpcClient
from libs.common.contracts.limits import GET_LIMITS, GetLimits, Limits, TenantLimits
from libs.common.errors import ThingwayError
from libs.common.lru_cache import LruCache

log = logging.getLogger(__name__)

_limited = metrics.get_meter("thingway").create_counter(
    "thingway_limited", description="Rejected requests and messages, by limit and tenant"
)


def count_limited(limit: str, tenant: str, number: int = 1) -> None:
    """Count rejections; `limit` is a field of `Limits` in camelCase."""
    _limited.add(number, {"limit": limit, "tenant": tenant})


LIFE = 5.0
"""Seconds after which a tenant's limits are read again."""
KEPT = 10_000
"""Tenants whose limits are cached."""


class LimitsCache:
    """The limits of each tenant; the defaults until `auth` has answered.

    A change takes effect within `LIFE` seconds. While `auth` is unavailable, the last known limits
    remain valid.
    """

    def __init__(self, rpc: RpcClient, defaults: Limits | None = None) -> None:
        self._rpc = rpc
        self._defaults = defaults or Limits()
        self._known: LruCache[str, tuple[float, Limits]] = LruCache(KEPT)
        self._asking: dict[str, asyncio.Task[None]] = {}

    def get(self, tenant: str) -> Limits:
        """Return the known limits of a tenant; refresh outdated ones in the background."""
        asked, limits = self._known.get(tenant) or (-LIFE, self._defaults)
        if asked + LIFE <= time.monotonic() and tenant not in self._asking:
            task = self._asking[tenant] = asyncio.ensure_future(self._ask(tenant, limits))
            task.add_done_callback(lambda _: self._asking.pop(tenant, None))
        return limits

    async def fetch(self, tenant: str) -> Limits:
        """Return the limits of a tenant; wait for them if none are known."""
        limits = self.get(tenant)
        task = self._asking.get(tenant)
        if tenant in self._known or task is None:
            return limits
        await asyncio.shield(task)
        return self.get(tenant)

    async def _ask(self, tenant: str, before: Limits) -> None:
        try:
            answer = await self._rpc.call(GET_LIMITS, GetLimits(tenant), TenantLimits)
            before = answer.limits
        except ThingwayError as error:
            log.info("limits of %s cannot be refreshed: %s", tenant, error)
        self._known.put(tenant, (time.monotonic(), before))
