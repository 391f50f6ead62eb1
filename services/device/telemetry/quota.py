"""Limits on messages, and the messages of tenants with slow codecs.

Messages above the limit are rejected, and their device is disconnected for a while. Messages over
MQTT reach `UPLINK` without a check at the edge. The time of arrival in the stream counts, and
redelivered messages are not counted again.

Messages of tenants with slow codecs wait apart from all others. A tenant becomes slow when one of
its codecs does not decode its frames of a batch in time, and stays slow until all its waiting
messages are processed. Meanwhile the messages of its devices that may send frames go into the lane
of the tenant, in order, and each lane has its own batches.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence

from nats.aio.msg import Msg

from libs.common.bus import Bus, RpcClient
from libs.common.bus.laned import LanedMessages
from libs.common.limits.meter import BURST_SECONDS, FloodGuard, MessageMeter, RateExcess
from libs.common.limits.tenants import LimitsCache, count_rejection
from libs.common.lru_cache import LruCache
from libs.common.things import DIRECT_INTEGRATION
from services.device.telemetry.uplink import Uplink, read_uplink
from services.device.things.model import Thing

log = logging.getLogger(__name__)

EXTRA_BURST_SECONDS = 1.0
"""Seconds of the rate that are allowed in addition to those of HTTP ingest and the relay, so that
messages that these have admitted are not rejected here."""


class MessageQuota:
    """Finds the messages of a batch that exceed limits, and blocks their devices."""

    def __init__(self, limits: LimitsCache, rpc: RpcClient) -> None:
        self._meter = MessageMeter(limits, BURST_SECONDS + EXTRA_BURST_SECONDS)
        self._floods = FloodGuard(rpc)

    def find_excess_and_block(
        self, uplinks: Iterable[Uplink], things: Mapping[str, Thing]
    ) -> dict[int, RateExcess]:
        """Return the exceeded limits by sequence of the message; disconnect the devices."""
        by_sn: dict[str, list[Uplink]] = defaultdict(list)
        for uplink in uplinks:
            if uplink.delivered == 1:
                by_sn[uplink.sn].append(uplink)
        excesses: dict[int, RateExcess] = {}
        for sn, device_uplinks in by_sn.items():
            thing = things.get(sn)
            if thing is None or self._measure(thing, device_uplinks) is None:
                continue
            for uplink in device_uplinks:
                excess = self._measure(thing, [uplink])
                if excess is not None:
                    excesses[uplink.sequence] = excess
                    count_rejection(excess.limit, thing.tenant)
            if thing.device:
                self._floods.block(sn)
        return excesses

    def _measure(self, thing: Thing, uplinks: list[Uplink]) -> RateExcess | None:
        size = sum(len(uplink.payload) for uplink in uplinks)
        at = max(uplink.received for uplink in uplinks) / 1000
        return self._meter.count(thing.tenant, thing.id, len(uplinks), size, at)


MAX_WAITING_PER_TENANT = 8000
"""Maximum messages of a tenant that wait, and that are processed together."""
MAX_CONCURRENT_TENANTS = 6
"""Slow tenants that are processed concurrently: fewer than there are codec processes."""
EXTENSION_INTERVAL_SECONDS = 10.0
"""Seconds between two extensions of the acknowledgement deadline of waiting messages."""
SHUTDOWN_SECONDS = 30.0
"""Seconds that shutdown waits for running batches."""
CACHE_SIZE = 100_000
"""Devices whose tenants are cached."""


class SlowCodecQueue:
    """Queues messages of tenants with slow codecs, and processes them per tenant."""

    def __init__(self, bus: Bus, handle: Callable[[list[Msg]], Awaitable[bool]]) -> None:
        """`handle` processes a batch of one tenant; if it returns False, the batch is retried."""
        self._messages = LanedMessages(
            bus,
            "slow codecs",
            self._find_tenant,
            handle,
            MAX_WAITING_PER_TENANT,
            MAX_CONCURRENT_TENANTS,
            MAX_WAITING_PER_TENANT,
        )
        self._tenants: LruCache[str, str] = LruCache(CACHE_SIZE)

    async def run(self) -> None:
        """Extend the deadline of waiting messages until cancelled.

        Then wait up to `SHUTDOWN_SECONDS` for running batches.
        """
        try:
            while True:
                await asyncio.sleep(EXTENSION_INTERVAL_SECONDS)
                await self._messages.extend()
        finally:
            await self._messages.finish(SHUTDOWN_SECONDS)

    async def queue_slow(
        self,
        uplinks: Sequence[Uplink],
        things: Mapping[str, Thing],
        rejected: Container[int],
        late: Container[str] = (),
    ) -> list[Uplink]:
        """Queue messages of tenants that are slow or in `late`; return all other messages.

        Also return messages whose sequence is in `rejected`, and those that are not frames and come
        from directly connected devices.
        """
        immediate, waiting = list[Uplink](), list[Msg]()
        for uplink in uplinks:
            thing = things.get(uplink.sn)
            if (
                thing is None
                or uplink.sequence in rejected
                or (uplink.channel != "frame" and thing.integration == DIRECT_INTEGRATION)
                or not (thing.tenant in late or self._messages.holds(thing.tenant))
            ):
                immediate.append(uplink)
            else:
                self._tenants.put(uplink.sn, thing.tenant)
                waiting.append(uplink.message)
        await self._messages.put(waiting)
        return immediate

    def _find_tenant(self, message: Msg) -> str:
        return self._tenants.get(read_uplink(message).sn) or ""
