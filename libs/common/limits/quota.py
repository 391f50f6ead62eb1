"""How many documents of a collection a tenant may have: a field of `Limits`."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakValueDictionary

from libs.common.contracts.limits import AskUse
from libs.common.errors import TooManyRequests
from libs.common.limits.tenants import KnownLimits, count_limited
from libs.common.limits.use import Use
from libs.common.recent import Recent

LIFE = 1.0
"""Seconds that a count holds at least."""
SHARE = 20
"""Times as long as it took that a count holds, where that is more: 10,000,000 take seconds."""
KEPT = 10_000
"""Most tenants whose counts are kept."""
AGAIN = 60.0
"""Seconds after which whoever is refused may try again: documents go when people delete them."""


def limit_reached(limit: str, most: int) -> TooManyRequests:
    """Return the error of a tenant that has `most` documents, as many as `limit` permits."""
    text = f"{limit}: the tenant has {most} of these, which is its limit"
    return TooManyRequests(text, retry_after=AGAIN)


@dataclass(slots=True)
class _Counted:
    number: int
    until: float


class Quota:
    """Counts what tenants add; one per process and collection.

    Additions of other processes count when the count is made anew, so a tenant may get as many
    too many as they make meanwhile.
    """

    def __init__(
        self,
        collection: Any,
        limits: KnownLimits,
        limit: Literal["devices", "records"],
        tenant: str = "tenant",
        **only: Any,
    ) -> None:
        """`tenant` is the field that names the tenant; `only` documents like this count."""
        self._collection = collection
        self._limits = limits
        self._limit = limit
        self._field = tenant
        self._only = only
        self._counted: Recent[str, _Counted] = Recent(KEPT)
        self._counting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, tenant: str) -> None:
        """Count one more; raise `TooManyRequests` when the tenant has as many as it may."""
        most: int = getattr(await self._limits.asked(tenant), self._limit)
        counted = await self._count(tenant, most)
        if counted.number >= most:
            count_limited(self._limit, tenant)
            raise limit_reached(self._limit, most)
        counted.number += 1

    async def beyond(self, tenant: str, wanted: int) -> tuple[int, TooManyRequests]:
        """Return how many of `wanted` more documents would be too many, and their error."""
        most: int = getattr(await self._limits.asked(tenant), self._limit)
        counted = await self._count(tenant, most)
        return max(0, counted.number + wanted - most), limit_reached(self._limit, most)

    async def used(self, wanted: AskUse) -> Use:
        """How many a tenant has, for `report_use`."""
        most: int = getattr(await self._limits.asked(wanted.tenant), self._limit)
        return {self._limit: (await self._count(wanted.tenant, most)).number}

    async def _count(self, tenant: str, most: int) -> _Counted:
        async with self._counting.setdefault(tenant, asyncio.Lock()):
            known, started = self._counted.get(tenant), time.monotonic()
            if known is not None and known.until > started:
                return known
            query = {self._field: tenant, **self._only}
            number = await self._collection.count_documents(query, limit=most)
            now = time.monotonic()
            counted = _Counted(number, now + max(LIFE, SHARE * (now - started)))
            self._counted.put(tenant, counted)
            return counted
