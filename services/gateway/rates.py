"""Rate limits per key, and a tarpit for callers that are refused again and again.

A limit is atomic across replicas, for less than a round trip per request. The bucket stands in
Redis. A replica takes permits from it in small leases (a twentieth of the burst), so nineteen of
twenty requests of a busy caller ask nobody. A key may get one lease per replica above its burst,
and no more: leases expire.

A caller that does not heed `Retry-After` would make the gateway do nothing but refuse. So the
tarpit holds its refusals back, longer each time, and its connection asks for nothing meanwhile.
"""

import asyncio
import time

from libs.common.errors import TooManyRequests
from libs.common.limits import TokenBuckets
from libs.common.limits.meter import BURST, Meter
from libs.common.store.redis import Redis

LEASES_PER_BURST = 20
LEASE_LIFE = 5.0
"""Seconds after which the unused rest of a lease is dropped."""
SHORTEST_REFUSAL = 0.01
"""Seconds for which a key that was refused does not ask again, so that a flood is cheap."""
MOST_KEYS = 20_000
"""Keys kept; then all are forgotten, and every caller takes a new lease."""


class _Lease:
    __slots__ = ("permits", "refill", "refused_until", "valid_until")

    def __init__(self) -> None:
        self.permits = 0
        self.valid_until = 0.0
        self.refused_until = 0.0
        self.refill: asyncio.Task[None] | None = None


class RateLimiter:
    """Lets `rate` requests per second of each key pass, `burst` at once; 0 is no limit."""

    def __init__(self, redis: Redis, name: str, *, rate: float, burst: int) -> None:
        self._name = name
        self._rate = rate
        self._burst = max(1, burst)
        self._chunk = max(1, burst // LEASES_PER_BURST)
        self._buckets = TokenBuckets(redis, "gateway")
        self._leases: dict[str, _Lease] = {}

    def _take_leased(self, key: str) -> bool:
        """Take a permit that is here already; False when there is none."""
        if self._rate <= 0:
            return True
        lease = self._leases.get(key)
        if lease is None or lease.permits < 1 or lease.valid_until < time.monotonic():
            return False
        lease.permits -= 1
        return True

    async def take(self, key: str) -> None:
        """Take a permit; raise `TooManyRequests` when there is none, and what Redis raises."""
        while not self._take_leased(key):
            lease = self._lease(key)
            wait = lease.refused_until - time.monotonic()
            if wait > 0:
                raise TooManyRequests(
                    f"more than {self._rate:g} requests per second by this {self._name}",
                    retry_after=wait,
                )
            if lease.refill is None:
                lease.refill = asyncio.ensure_future(self._refill(key, lease))
            await asyncio.shield(lease.refill)

    def _lease(self, key: str) -> _Lease:
        lease = self._leases.get(key)
        if lease is None:
            if len(self._leases) >= MOST_KEYS:
                self._leases.clear()
            lease = self._leases[key] = _Lease()
        return lease

    async def _refill(self, key: str, lease: _Lease) -> None:
        try:
            granted, wait = await self._buckets.take(
                f"{self._name}:{key}", rate=self._rate, burst=self._burst, wanted=self._chunk
            )
            now = time.monotonic()
            lease.permits, lease.valid_until = granted, now + LEASE_LIFE
            if not granted:
                lease.refused_until = now + max(SHORTEST_REFUSAL, wait)
        finally:
            lease.refill = None


AT_ONCE = 2.0
"""Refusals per second of one caller that are told at once; `meter.BURST` seconds' worth may come
together."""
LONGEST = 5.0
"""Seconds that a refusal is held back at most."""
MOST = 10_000
"""Refusals that are held back at a time; more are told at once."""


class Tarpit:
    """Holds refusals back."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._held = 0

    async def wait(self, caller: str) -> None:
        """Return when a refusal of this caller may be told."""
        pause = self._pause(caller, time.monotonic())
        if not pause or self._held >= MOST:
            return
        self._held += 1
        try:
            await asyncio.sleep(pause)
        finally:
            self._held -= 1

    def _pause(self, caller: str, now: float) -> float:
        pause = self._meter.lacking(caller, 1, AT_ONCE, now, BURST)
        if pause < LONGEST:
            self._meter.take(caller, 1)
        return min(pause, LONGEST)
