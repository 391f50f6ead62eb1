"""Limits on messages, refused messages in `DEAD`, and messages of slow codecs.

Messages above the limit are refused, and their device is disconnected for a while. Messages over
MQTT reach `UPLINK` without a check at the edge. The time of arrival in the stream counts, and
redelivered messages are not counted again.

Each tenant has a number of bytes a day in `DEAD`. Above it, rejected messages are only counted. An
entry without payload reports their number once a minute, so that no tenant pushes the entries of
others out of the stream.

Messages of tenants with slow codecs wait apart from all others. A tenant becomes slow when one of
its codecs does not decode its frames of a batch in time, and stays slow until all its waiting
messages are processed. Meanwhile the messages of its devices that may send frames go into the lane
of the tenant, in order, and each lane has its own batches.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace
from nats.aio.msg import Msg

from libs.common.bus import Bus, OutgoingMessage, RpcClient, publish_each
from libs.common.bus.laned import LanedMessages
from libs.common.bus.subjects import up
from libs.common.clock import now_ms
from libs.common.contracts.limits import Limits
from libs.common.errors import InvalidInput, ThingwayError
from libs.common.limits.meter import BURST, Excess, FloodGuard, MessageMeter, Meter
from libs.common.limits.tenants import LimitsCache, count_limited
from libs.common.lru_cache import LruCache
from libs.common.things import DIRECT
from libs.common.tsl import Fault
from services.device.telemetry.batch import Batch, RefusedUplink
from services.device.telemetry.events import dead_message, dead_summary
from services.device.telemetry.uplink import Uplink, read_uplink
from services.device.things.model import Thing

log = logging.getLogger(__name__)

SLACK = 1.0
"""Additional seconds of allowance, so that messages accepted at the edge are not refused here."""
DAY = 86_400.0
SUMMARY_PERIOD = 60.0
"""Seconds between two entries about messages that are not kept."""


class Quota:
    """Finds the messages of a batch that exceed limits."""

    def __init__(self, limits: LimitsCache, rpc: RpcClient) -> None:
        self._meter = MessageMeter(limits, BURST + SLACK)
        self._floods = FloodGuard(rpc)

    def find_excess(
        self, uplinks: Iterable[Uplink], things: Mapping[str, Thing]
    ) -> dict[int, Excess]:
        """Return the messages to refuse, by sequence; disconnect their devices."""
        by_sn: dict[str, list[Uplink]] = defaultdict(list)
        for uplink in uplinks:
            if uplink.delivered == 1:
                by_sn[uplink.sn].append(uplink)
        beyond: dict[int, Excess] = {}
        for sn, some in by_sn.items():
            thing = things.get(sn)
            if thing is None or self._measure(thing, some) is None:
                continue
            for uplink in some:
                excess = self._measure(thing, [uplink])
                if excess is not None:
                    beyond[uplink.sequence] = excess
                    count_limited(excess.limit, thing.tenant)
            if thing.device:
                self._floods.block(sn)
        return beyond

    def _measure(self, thing: Thing, uplinks: list[Uplink]) -> Excess | None:
        size = sum(len(uplink.payload) for uplink in uplinks)
        at = max(uplink.received for uplink in uplinks) / 1000
        return self._meter.count(thing.tenant, thing.id, len(uplinks), size, at)


class DeadMessageBuilder:
    """Builds the messages of `DEAD`."""

    def __init__(self, limits: LimitsCache) -> None:
        self._limits = limits
        self._meter = Meter()
        self._left_out: Counter[str] = Counter()
        self._summarized: dict[str, float] = {}

    def build(self, batch: Batch) -> list[OutgoingMessage]:
        """Return the messages of `DEAD` for a batch."""
        return [entry for refused in batch.refused if (entry := self._entry(refused)) is not None]

    def _entry(self, refused: RefusedUplink) -> OutgoingMessage | None:
        tenant = refused.thing.tenant if refused.thing else ""
        entry = dead_message(refused.uplink, refused.thing, refused.reason, refused.faults)
        most = (self._limits.get(tenant) if tenant else Limits()).dead_bytes
        size, rate = len(entry.payload), most / DAY
        if not self._meter.seconds_until(tenant, size, rate, now_ms() / 1000, DAY):
            self._meter.consume(tenant, size)
            return entry
        count_limited("deadBytes", tenant)
        self._left_out[tenant] += 1
        now = time.monotonic()
        if self._summarized.get(tenant, -SUMMARY_PERIOD) + SUMMARY_PERIOD > now:
            return None
        self._summarized[tenant] = now
        return dead_summary(refused.uplink, self._left_out.pop(tenant), most)


class RejectedEntry(NamedTuple):
    """An entry of a request that was refused as a whole."""

    raw: bytes
    reason: str
    faults: list[Fault]

    @classmethod
    def from_error(cls, raw: bytes, error: InvalidInput) -> "RejectedEntry":
        """Return the entry that an error refused."""
        faults = list(error.faults)
        return cls(raw, "; ".join(map(str, faults)) or error.text, faults)


class DeadMessagePublisher:
    """Publishes refused entries of HTTP requests in `DEAD`, within the tenant's limit."""

    def __init__(self, bus: Bus, refusals: DeadMessageBuilder) -> None:
        self._bus = bus
        self._refusals = refusals

    async def publish(self, thing: Thing, channel: str, rejected: Sequence[RejectedEntry]) -> None:
        """Publish refused entries; log those that the bus does not accept."""
        batch = Batch(refused=[_refused(thing, channel, one) for one in rejected])
        # Without ids, which derive from a sequence in `UPLINK`: requests are never redelivered.
        entries = [replace(entry, msg_id=None) for entry in self._refusals.build(batch)]
        try:
            await publish_each(self._bus, entries)
        except ThingwayError as error:
            log.warning("%d refusals of %s are not kept: %s", len(entries), thing.sn, error)


def _refused(thing: Thing, channel: str, rejected: RejectedEntry) -> RefusedUplink:
    message = Msg(None, subject=up(thing.sn, channel))  # type: ignore[arg-type]
    uplink = Uplink(
        sn=thing.sn,
        channel=channel,
        payload=rejected.raw,
        sequence=0,
        received=now_ms(),
        delivered=1,
        message=message,
    )
    return RefusedUplink(uplink, rejected.reason, thing, rejected.faults)


BATCH = 8000
"""Messages of a tenant that wait, and that are processed together."""
TENANTS = 6
"""Slow tenants that are processed concurrently: fewer than there are codec processes."""
EXTENDED = 10.0
"""Seconds between two extensions of the acknowledgement deadline of waiting messages."""
ENDING = 30.0
"""Seconds that shutdown waits for running batches."""
KNOWN = 100_000
"""Devices whose tenants are cached."""


class SlowCodecs:
    """Separates messages of tenants with slow codecs, and processes them."""

    def __init__(self, bus: Bus, handle: Callable[[list[Msg]], Awaitable[bool]]) -> None:
        """`handle` processes a batch of one tenant; if it returns False, the batch is retried."""
        self._messages = LanedMessages(
            bus, "slow codecs", self._tenant_of, handle, BATCH, TENANTS, BATCH
        )
        self._tenants: LruCache[str, str] = LruCache(KNOWN)

    async def run(self) -> None:
        """Extend the deadline of waiting messages, until cancelled."""
        try:
            while True:
                await asyncio.sleep(EXTENDED)
                await self._messages.extend()
        finally:
            await self._messages.finish(ENDING)

    async def separate(
        self,
        uplinks: Sequence[Uplink],
        things: Mapping[str, Thing],
        refused: Container[int],
        late: Container[str] = (),
    ) -> list[Uplink]:
        """Queue messages of slow tenants and of `late` ones; return the others.

        Messages in `refused` are returned too.
        """
        immediate, waiting = list[Uplink](), list[Msg]()
        for uplink in uplinks:
            thing = things.get(uplink.sn)
            if (
                thing is None
                or uplink.sequence in refused
                or (uplink.channel != "frame" and thing.integration == DIRECT)
                or not (thing.tenant in late or self._messages.holds(thing.tenant))
            ):
                immediate.append(uplink)
            else:
                self._tenants.put(uplink.sn, thing.tenant)
                waiting.append(uplink.message)
        await self._messages.put(waiting)
        return immediate

    def _tenant_of(self, message: Msg) -> str:
        return self._tenants.get(read_uplink(message).sn) or ""
