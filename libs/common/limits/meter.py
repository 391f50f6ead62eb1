"""How much each of many may do, counted in this process: token buckets on the caller's clock.

The clock of a message is when it was received, so a backlog after an outage counts as it came.
Several processes count each for themselves: together they let that many times as much pass.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Hashable
from functools import partial
from typing import NamedTuple

from libs.common.bus import RpcClient
from libs.common.contracts.auth import SHUT_OUT, SHUT_OUT_SECONDS, Done, ShutOut
from libs.common.contracts.limits import Limits
from libs.common.errors import ThingwayError
from libs.common.jobs import Beside
from libs.common.limits.tenants import KnownLimits
from libs.common.recent import Recent

log = logging.getLogger(__name__)

BURST = 10.0
"""Seconds' worth that may come at once."""
DAY = 86_400.0
"""Seconds."""
KEPT = 100_000
"""Buckets that are kept. What was used longest ago goes, and is full when it is asked for."""


class _Bucket:
    __slots__ = ("at", "permits")

    def __init__(self, permits: float, at: float) -> None:
        self.permits = permits
        self.at = at


class Meter:
    """Buckets by key, each refilled at the rate that its caller names."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def lacking(
        self, key: Hashable, amount: float, rate: float, at: float, burst: float = BURST
    ) -> float:
        """Seconds until `amount` is there at `rate` per second; 0 when it is.

        `at` is in seconds; time never goes back. `burst` is in seconds' worth.
        """
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(rate * burst, at)
            if len(self._buckets) > KEPT:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        if at > bucket.at:
            bucket.permits += (at - bucket.at) * rate
            bucket.at = at
        bucket.permits = min(bucket.permits, rate * burst)
        return max(0.0, (amount - bucket.permits) / rate)

    def take(self, key: Hashable, amount: float) -> None:
        """Take what is not lacking."""
        self._buckets[key].permits -= amount


class Excess(NamedTuple):
    """What was beyond a limit."""

    limit: str
    """Name of the field of `Limits`, as JSON has it."""
    reason: str
    wait: float
    """Seconds until it would pass."""


class MessageMeter:
    """Counts the messages of devices, and their bytes, against the limits of their tenants."""

    def __init__(self, limits: KnownLimits, burst: float = BURST) -> None:
        self._limits = limits
        self._burst = burst
        self._meter = Meter()

    def take(
        self, tenant: str, device: Hashable, number: int, size: int, at: float
    ) -> Excess | None:
        """Let `number` messages of `size` bytes pass at time `at` (s), all of them or none."""
        limits = self._limits.of(tenant)
        wanted = _wanted(limits, tenant, device, number, size)
        for key, amount, rate, what in wanted:
            wait = self._meter.lacking(key, amount, rate, at, self._burst)
            if wait > 0:
                whose = "of this device" if key[1] == device else "of this tenant"
                return Excess(key[0], f"more than {rate} {what} per second {whose}", wait)
        told, day = ("eventBytes", tenant), limits.event_bytes
        wait = self._meter.lacking(told, size, day / DAY, at, DAY)
        if wait > 0:
            return Excess(told[0], f"more than {day} bytes per day of this tenant", wait)
        for key, amount, _, _ in wanted:
            self._meter.take(key, amount)
        self._meter.take(told, size)
        return None


def _wanted(
    limits: Limits, tenant: str, device: Hashable, number: int, size: int
) -> list[tuple[tuple[str, Hashable], int, int, str]]:
    """Bucket, amount, rate and what is counted."""
    return [
        (("eachMessages", device), number, limits.each_messages, "messages"),
        (("eachMessageBytes", device), size, limits.each_message_bytes, "bytes"),
        (("messages", tenant), number, limits.messages, "messages"),
        (("messageBytes", tenant), size, limits.message_bytes, "bytes"),
    ]


TIMEOUT = 5.0
"""Seconds that `auth` and `device`, which it asks, get."""
REMEMBERED_USERS = 10_000
"""Users that are remembered."""


class Floods:
    """Shuts out users of the bus, beside what its caller does."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc
        self._since: Recent[str, float] = Recent(REMEMBERED_USERS)
        self._asking = Beside()

    def __len__(self) -> int:
        """How many users are remembered; none while nobody has sent too much."""
        return len(self._since)

    def shuts_out(self, user: str) -> bool:
        """Tell whether a user was shut out a moment ago: what still comes was on its way."""
        since = self._since.get(user)
        return since is not None and time.monotonic() < since + SHUT_OUT_SECONDS

    def end(self, user: str) -> None:
        """Shut a user out, unless it is."""
        if not self.shuts_out(user):
            self._since.put(user, time.monotonic())
            self._asking.begin(user, partial(self._end, user))

    async def _end(self, user: str) -> None:
        try:
            await self._rpc.call(SHUT_OUT, ShutOut(user), Done, timeout=TIMEOUT)
        except ThingwayError as error:
            self._since.pop(user)
            log.warning("%s sends too much and is not shut out: %s", user, error)
