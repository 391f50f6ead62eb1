"""The maximum number of a tenant's documents in a collection."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakValueDictionary

from libs.common.contracts.limits import UsageRequest
from libs.common.errors import TooManyRequests
from libs.common.limits.tenants import LimitsCache, Usage, count_rejection
from libs.common.lru_cache import LruCache

MIN_CACHE_SECONDS = 1.0
"""Minimum seconds for which a count is cached."""
MIN_CACHE_RATIO = 20
"""Minimum ratio of the time for which a count is cached to the time that counting takes."""
MAX_CACHED_TENANTS = 10_000
"""Tenants whose counts are cached."""
RETRY_SECONDS = 60.0
"""Seconds after which a rejected caller may retry, because users may have deleted documents."""


def limit_error(limit: str, maximum: int) -> TooManyRequests:
    """Return the error for a tenant that has as many documents as `limit` permits."""
    text = f"{limit}: the tenant has {maximum} of these, which is its limit"
    return TooManyRequests(text, retry_after=RETRY_SECONDS)


@dataclass(slots=True)
class _CachedCount:
    number: int
    until: float


class Quota:
    """Limits the documents that tenants add; one instance per process and collection.

    Documents that other processes add are included in the next count, so a tenant may slightly
    exceed its limit.
    """

    def __init__(
        self,
        collection: Any,
        limits: LimitsCache,
        limit: Literal["devices", "records"],
        tenant: str = "tenant",
        **only: Any,
    ) -> None:
        """`tenant` is the name of the tenant's field; only documents matching `only` count."""
        self._collection = collection
        self._limits = limits
        self._limit = limit
        self._field = tenant
        self._only = only
        self._counted: LruCache[str, _CachedCount] = LruCache(MAX_CACHED_TENANTS)
        self._counting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def reserve(self, tenant: str) -> None:
        """Count a new document; raise `TooManyRequests` above the tenant's limit."""
        maximum: int = getattr(await self._limits.fetch(tenant), self._limit)
        counted = await self._count(tenant, maximum)
        if counted.number >= maximum:
            count_rejection(self._limit, tenant)
            raise limit_error(self._limit, maximum)
        counted.number += 1

    async def find_excess(self, tenant: str, number: int) -> tuple[int, TooManyRequests]:
        """Return how many of `number` new documents exceed the limit, and their error."""
        maximum: int = getattr(await self._limits.fetch(tenant), self._limit)
        counted = await self._count(tenant, maximum)
        return max(0, counted.number + number - maximum), limit_error(self._limit, maximum)

    async def count_used(self, request: UsageRequest) -> Usage:
        """Return the number of documents of a tenant, for `answer_usage_requests`."""
        maximum: int = getattr(await self._limits.fetch(request.tenant), self._limit)
        return {self._limit: (await self._count(request.tenant, maximum)).number}

    async def _count(self, tenant: str, maximum: int) -> _CachedCount:
        async with self._counting.setdefault(tenant, asyncio.Lock()):
            known, started = self._counted.get(tenant), time.monotonic()
            if known is not None and known.until > started:
                return known
            query = {self._field: tenant, **self._only}
            number = await self._collection.count_documents(query, limit=maximum)
            now = time.monotonic()
            counted = _CachedCount(
                number, now + max(MIN_CACHE_SECONDS, MIN_CACHE_RATIO * (now - started))
            )
            self._counted.put(tenant, counted)
            return counted
