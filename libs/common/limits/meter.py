"""Rate limits per key in this process: token buckets with the caller's clock.

The time of a message is when it was received, so a backlog after an outage counts at its original
times. Each process counts separately: several processes together permit a multiple.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from libs.common.bus import RpcClient
from libs.common.contracts.auth import BLOCK_SECONDS, BLOCK_USER, BlockUser, Done
from libs.common.contracts.limits import Limits
from libs.common.errors import ThingwayError
from libs.common.jobs import NamedTasks
from libs.common.limits.tenants import LimitsCache
from libs.common.lru_cache import LruCache

log = logging.getLogger(__name__)

BURST_SECONDS = 10.0
"""Permits that may be used at once, in seconds of the rate."""
DAY_SECONDS = 86_400.0
"""Seconds of a day."""
MAX_BUCKETS = 100_000
"""Buckets in memory. The least recently used one is dropped, and is full when it is used again."""


@dataclass(slots=True)
class _Bucket:
    permits: float
    at: float


class Meter:
    """Buckets by key, each refilled at the rate that the caller passes."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def seconds_until(
        self, key: Hashable, amount: float, rate: float, at: float, burst: float = BURST_SECONDS
    ) -> float:
        """Return the seconds until `amount` permits are available at `rate`, or 0.

        `at` is in seconds and never decreases. `burst` is in seconds of the rate.
        """
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(rate * burst, at)
            if len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        if at > bucket.at:
            bucket.permits += (at - bucket.at) * rate
            bucket.at = at
        bucket.permits = min(bucket.permits, rate * burst)
        return max(0.0, (amount - bucket.permits) / rate)

    def consume(self, key: Hashable, amount: float) -> None:
        """Take available permits."""
        self._buckets[key].permits -= amount


class RateExcess(NamedTuple):
    """A message rate above a limit."""

    limit: str
    """The field of `Limits` in camelCase."""
    reason: str
    """Begins with the limit."""
    wait: float
    """Seconds until the messages are permitted."""


class MessageMeter:
    """Applies the limits of tenants to their devices' messages and bytes."""

    def __init__(self, limits: LimitsCache, burst: float = BURST_SECONDS) -> None:
        self._limits = limits
        self._burst = burst
        self._meter = Meter()

    def count(
        self, tenant: str, device: Hashable, number: int, size: int, at: float
    ) -> RateExcess | None:
        """Count messages of `size` bytes in total, or return the limit that they exceed."""
        limits = self._limits.get(tenant)
        permits = _required_permits(limits, tenant, device, number, size)
        for key, amount, rate, what in permits:
            wait = self._meter.seconds_until(key, amount, rate, at, self._burst)
            if wait > 0:
                whose = "device" if key[1] == device else "tenant"
                reason = f"more than {rate} {what} per second of this {whose}"
                return RateExcess(key[0], f"{key[0]}: {reason}", wait)
        day_bucket, day = ("eventBytes", tenant), limits.event_bytes
        wait = self._meter.seconds_until(day_bucket, size, day / DAY_SECONDS, at, DAY_SECONDS)
        if wait > 0:
            reason = f"eventBytes: more than {day} bytes per day of this tenant"
            return RateExcess(day_bucket[0], reason, wait)
        for key, amount, _, _ in permits:
            self._meter.consume(key, amount)
        self._meter.consume(day_bucket, size)
        return None


def _required_permits(
    limits: Limits, tenant: str, device: Hashable, number: int, size: int
) -> list[tuple[tuple[str, Hashable], int, int, str]]:
    """Return bucket, amount, rate and unit of each limit per second."""
    return [
        (("eachMessages", device), number, limits.each_messages, "messages"),
        (("eachMessageBytes", device), size, limits.each_message_bytes, "bytes"),
        (("messages", tenant), number, limits.messages, "messages"),
        (("messageBytes", tenant), size, limits.message_bytes, "bytes"),
    ]


BLOCK_TIMEOUT_SECONDS = 5.0
"""Seconds that `auth` may take to disconnect a user, including its call to `device`."""
MAX_REMEMBERED_USERS = 10_000
"""Maximum users whose last disconnection is remembered."""


class FloodGuard:
    """Disconnects users of the bus that send too much, in the background."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc
        self._since: LruCache[str, float] = LruCache(MAX_REMEMBERED_USERS)
        self._asking = NamedTasks()

    def __len__(self) -> int:
        """Return the number of remembered users; 0 if no user has sent too much."""
        return len(self._since)

    def is_blocked(self, user: str) -> bool:
        """Return whether a user was disconnected recently; late messages are ignored."""
        since = self._since.get(user)
        return since is not None and time.monotonic() < since + BLOCK_SECONDS

    def block(self, user: str) -> None:
        """Disconnect a user, unless it was disconnected recently."""
        if not self.is_blocked(user):
            self._since.put(user, time.monotonic())
            self._asking.start(user, partial(self._disconnect, user))

    async def _disconnect(self, user: str) -> None:
        try:
            await self._rpc.call(BLOCK_USER, BlockUser(user), Done, timeout=BLOCK_TIMEOUT_SECONDS)
        except ThingwayError as error:
            self._since.pop(user)
            log.warning("%s sends too much, but cannot be disconnected: %s", user, error)
