"""Rate limits per key, and a tarpit for callers that are rejected repeatedly.

Limits are atomic across replicas, but cost less than a round trip per request. Buckets are in
Redis. A replica takes leases of a twentieth of the burst, so most requests of a busy caller need no
round trip. A key may exceed its burst by one lease per replica; leases expire.
A caller that ignores `Retry-After` would keep the gateway busy with rejections. The tarpit
therefore delays each rejection of this caller longer than the previous one. Meanwhile, the gateway
answers no further request on the same connection.
"""

import asyncio
import time

from libs.common.errors import TooManyRequests
from libs.common.limits import TokenBuckets
from libs.common.limits.meter import BURST_SECONDS, Meter
from libs.common.store.redis import Redis

LEASES_PER_BURST = 20
LEASE_SECONDS = 5.0
"""Seconds after which unused permits of a lease are dropped."""
MIN_LOCAL_REJECTION_SECONDS = 0.01
"""Minimum seconds for which a rejected key is rejected without a request to Redis."""
MAX_LEASED_KEYS = 20_000
"""Maximum number of keys with a lease; with more, all leases are dropped."""


class _PermitLease:
    __slots__ = ("permits", "refill", "rejected_until", "valid_until")

    def __init__(self) -> None:
        self.permits = 0
        self.valid_until = 0.0
        self.rejected_until = 0.0
        self.refill: asyncio.Task[None] | None = None


class RateLimiter:
    """Permits `rate` requests per second per key, in bursts of `burst`; rate 0 is no limit."""

    def __init__(self, redis: Redis, name: str, *, rate: float, burst: int) -> None:
        self._name = name
        self._rate = rate
        self._burst = max(1, burst)
        self._chunk = max(1, burst // LEASES_PER_BURST)
        self._buckets = TokenBuckets(redis, "gateway")
        self._leases: dict[str, _PermitLease] = {}

    def _take_leased_permit(self, key: str) -> bool:
        """Take a permit of the key's lease; return False if the lease is used up or has expired."""
        if self._rate <= 0:
            return True
        lease = self._leases.get(key)
        if lease is None or lease.permits < 1 or lease.valid_until < time.monotonic():
            return False
        lease.permits -= 1
        return True

    async def take_permit(self, key: str) -> None:
        """Take a permit; raise `TooManyRequests` if none is available, or an error of Redis."""
        while not self._take_leased_permit(key):
            lease = self._get_or_create_lease(key)
            wait = lease.rejected_until - time.monotonic()
            if wait > 0:
                raise TooManyRequests(
                    f"more than {self._rate:g} requests per second by this {self._name}",
                    retry_after=wait,
                )
            if lease.refill is None:
                lease.refill = asyncio.ensure_future(self._refill_lease(key, lease))
            await asyncio.shield(lease.refill)

    def _get_or_create_lease(self, key: str) -> _PermitLease:
        lease = self._leases.get(key)
        if lease is None:
            if len(self._leases) >= MAX_LEASED_KEYS:
                self._leases.clear()
            lease = self._leases[key] = _PermitLease()
        return lease

    async def _refill_lease(self, key: str, lease: _PermitLease) -> None:
        try:
            granted, wait = await self._buckets.take_permits(
                f"{self._name}:{key}", rate=self._rate, burst=self._burst, number=self._chunk
            )
            now = time.monotonic()
            lease.permits, lease.valid_until = granted, now + LEASE_SECONDS
            if not granted:
                lease.rejected_until = now + max(MIN_LOCAL_REJECTION_SECONDS, wait)
        finally:
            lease.refill = None


FREE_REJECTIONS_PER_SECOND = 2.0
"""Rejections per second that a caller gets without delay. A burst may have as many as this rate
permits in `meter.BURST_SECONDS`."""
MAX_REJECTION_DELAY_SECONDS = 5.0
"""Maximum delay of a rejection in seconds."""
MAX_DELAYED_REJECTIONS = 10_000
"""Maximum number of delayed rejections; more are sent immediately."""


class Tarpit:
    """Delays the rejections of callers that are rejected often."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._held = 0

    async def delay_rejection(self, caller: str) -> None:
        """Wait until a rejection of this caller may be sent."""
        pause = self._compute_delay_seconds(caller, time.monotonic())
        if not pause or self._held >= MAX_DELAYED_REJECTIONS:
            return
        self._held += 1
        try:
            await asyncio.sleep(pause)
        finally:
            self._held -= 1

    def _compute_delay_seconds(self, caller: str, now: float) -> float:
        pause = self._meter.seconds_until(caller, 1, FREE_REJECTIONS_PER_SECOND, now, BURST_SECONDS)
        if pause < MAX_REJECTION_DELAY_SECONDS:
            self._meter.consume(caller, 1)
        return min(pause, MAX_REJECTION_DELAY_SECONDS)
