"""Limits on messages: counts them, and keeps what is refused.

Beyond it a message is refused, and its device shut out for a while. Messages over MQTT reach
`UPLINK` without a gate of ours. The time that counts is when the stream took a message. One that
is delivered again was counted before.

Each tenant has so many bytes a day in `DEAD`. Beyond them a refused message is only counted, and
once a minute an entry without a payload tells how many they were: nobody pushes the entries of
others out of the stream.
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace
from nats.aio.msg import Msg

from libs.common.bus import Bus, OutgoingMessage, RpcClient, publish_each
from libs.common.bus.subjects import up
from libs.common.clock import now_ms
from libs.common.contracts.limits import Limits
from libs.common.errors import InvalidInput, ThingwayError
from libs.common.limits.meter import BURST, Excess, FloodGuard, MessageMeter, Meter
from libs.common.limits.tenants import LimitsCache, count_limited
from libs.common.tsl import Fault
from services.device.telemetry.batch import Batch, RefusedUplink
from services.device.telemetry.events import dead_message, dead_summary
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing

log = logging.getLogger(__name__)

SLACK = 1.0
"""Seconds' worth more than at the edges, so that who was let in there is not refused here."""
DAY = 86_400.0
TOLD_EVERY = 60.0
"""Seconds between two entries about what is not kept."""


class Quota:
    """Finds the messages of a batch that are too many."""

    def __init__(self, limits: LimitsCache, rpc: RpcClient) -> None:
        self._meter = MessageMeter(limits, BURST + SLACK)
        self._floods = FloodGuard(rpc)

    def beyond(self, uplinks: Iterable[Uplink], things: Mapping[str, Thing]) -> dict[int, Excess]:
        """The messages that are refused, by sequence; shuts out the devices that sent them."""
        by_sn: dict[str, list[Uplink]] = defaultdict(list)
        for uplink in uplinks:
            if uplink.delivered == 1:
                by_sn[uplink.sn].append(uplink)
        beyond: dict[int, Excess] = {}
        for sn, some in by_sn.items():
            thing = things.get(sn)
            if thing is None or self._take(thing, some) is None:
                continue
            for uplink in some:
                excess = self._take(thing, [uplink])
                if excess is not None:
                    beyond[uplink.sequence] = excess
                    count_limited(excess.limit, thing.tenant)
            if thing.device:
                self._floods.end(sn)
        return beyond

    def _take(self, thing: Thing, uplinks: list[Uplink]) -> Excess | None:
        size = sum(len(uplink.payload) for uplink in uplinks)
        at = max(uplink.received for uplink in uplinks) / 1000
        return self._meter.take(thing.tenant, thing.id, len(uplinks), size, at)


class DeadMessageBuilder:
    """Makes the entries of `DEAD`."""

    def __init__(self, limits: LimitsCache) -> None:
        self._limits = limits
        self._meter = Meter()
        self._left_out: Counter[str] = Counter()
        self._told: dict[str, float] = {}

    def entries(self, batch: Batch) -> list[OutgoingMessage]:
        """The entries for a batch."""
        return [entry for refused in batch.refused if (entry := self._entry(refused)) is not None]

    def _entry(self, refused: RefusedUplink) -> OutgoingMessage | None:
        tenant = refused.thing.tenant if refused.thing else ""
        entry = dead_message(refused.uplink, refused.thing, refused.reason, refused.faults)
        most = (self._limits.of(tenant) if tenant else Limits()).dead_bytes
        size, rate = len(entry.payload), most / DAY
        if not self._meter.lacking(tenant, size, rate, now_ms() / 1000, DAY):
            self._meter.take(tenant, size)
            return entry
        count_limited("deadBytes", tenant)
        self._left_out[tenant] += 1
        now = time.monotonic()
        if self._told.get(tenant, -TOLD_EVERY) + TOLD_EVERY > now:
            return None
        self._told[tenant] = now
        return dead_summary(refused.uplink, self._left_out.pop(tenant), most)


class RejectedEntry(NamedTuple):
    """An entry of a request that was refused whole."""

    raw: bytes
    reason: str
    faults: list[Fault]

    @classmethod
    def from_error(cls, raw: bytes, error: InvalidInput) -> "RejectedEntry":
        """What was refused by an error."""
        faults = list(error.faults)
        return cls(raw, "; ".join(map(str, faults)) or error.text, faults)


class DeadMessagePublisher:
    """Makes entries of `DEAD` within the tenant's quota; the device has been told already."""

    def __init__(self, bus: Bus, refusals: DeadMessageBuilder) -> None:
        self._bus = bus
        self._refusals = refusals

    async def keep(self, thing: Thing, channel: str, rejected: Sequence[RejectedEntry]) -> None:
        """Keep what was refused; what the bus does not take is lost, and the log says so."""
        batch = Batch(refused=[_refused(thing, channel, one) for one in rejected])
        # Without ids, which come of a sequence in `UPLINK`: nothing of it comes again.
        entries = [replace(entry, msg_id=None) for entry in self._refusals.entries(batch)]
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
