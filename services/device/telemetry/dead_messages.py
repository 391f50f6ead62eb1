"""Messages that are rejected as a whole: entries of the stream `DEAD`.

Ingest writes them for each batch, and the HTTP edge for each request. `rejected_messages` shows
them to users.

Each tenant has a number of bytes a day in `DEAD`. Above it, rejected messages are only counted. An
entry without payload reports their number once a minute, so that no tenant pushes the entries of
others out of the stream.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace
from nats.aio.msg import Msg

from libs.common.bus import Bus, OutgoingMessage, publish_each
from libs.common.bus.subjects import uplink_subject
from libs.common.clock import now_ms
from libs.common.contracts.limits import Limits
from libs.common.errors import InvalidInput, ThingwayError
from libs.common.limits.meter import Meter
from libs.common.limits.tenants import LimitsCache, count_rejection
from libs.common.tsl import Fault
from services.device.telemetry.batch import Batch, RejectedUplink
from services.device.telemetry.events import dead_message, dead_summary
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing

log = logging.getLogger(__name__)

DAY_SECONDS = 86_400.0
SUMMARY_INTERVAL_SECONDS = 60.0
"""Seconds between two entries about messages that are not kept."""


class DeadMessageBuilder:
    """Builds the entries of `DEAD`, within the limit of each tenant."""

    def __init__(self, limits: LimitsCache) -> None:
        self._limits = limits
        self._meter = Meter()
        self._left_out: Counter[str] = Counter()
        self._summarized: dict[str, float] = {}

    def build(self, batch: Batch) -> list[OutgoingMessage]:
        """Return the entries for the rejected uplinks of a batch."""
        return [
            entry
            for rejected in batch.rejected
            if (entry := self._build_entry(rejected)) is not None
        ]

    def _build_entry(self, rejected: RejectedUplink) -> OutgoingMessage | None:
        tenant = rejected.thing.tenant if rejected.thing else ""
        entry = dead_message(rejected.uplink, rejected.thing, rejected.reason, rejected.faults)
        maximum = (self._limits.get(tenant) if tenant else Limits()).dead_bytes
        size, rate = len(entry.payload), maximum / DAY_SECONDS
        if not self._meter.seconds_until(tenant, size, rate, now_ms() / 1000, DAY_SECONDS):
            self._meter.consume(tenant, size)
            return entry
        count_rejection("deadBytes", tenant)
        self._left_out[tenant] += 1
        now = time.monotonic()
        if self._summarized.get(tenant, -SUMMARY_INTERVAL_SECONDS) + SUMMARY_INTERVAL_SECONDS > now:
            return None
        self._summarized[tenant] = now
        return dead_summary(rejected.uplink, self._left_out.pop(tenant), maximum)


class RejectedHttpMessage(NamedTuple):
    """A message of an HTTP request that was rejected as a whole."""

    raw: bytes
    reason: str
    faults: list[Fault]

    @classmethod
    def from_error(cls, raw: bytes, error: InvalidInput) -> "RejectedHttpMessage":
        """Return the entry for a message that was rejected with `error`."""
        faults = list(error.faults)
        return cls(raw, "; ".join(map(str, faults)) or error.text, faults)


class DeadMessagePublisher:
    """Records rejected messages of HTTP requests in `DEAD`."""

    def __init__(self, bus: Bus, rejections: DeadMessageBuilder) -> None:
        self._bus = bus
        self._rejections = rejections

    async def publish(
        self, thing: Thing, channel: str, rejected: Sequence[RejectedHttpMessage]
    ) -> None:
        """Record rejected messages; log those that the bus does not accept."""
        batch = Batch(
            rejected=[_to_rejected_uplink(thing, channel, message) for message in rejected]
        )
        # Without ids, which derive from a sequence in `UPLINK`: requests are never redelivered.
        entries = [replace(entry, msg_id=None) for entry in self._rejections.build(batch)]
        try:
            await publish_each(self._bus, entries)
        except ThingwayError as error:
            log.warning("%d refusals of %s are not kept: %s", len(entries), thing.sn, error)


def _to_rejected_uplink(
    thing: Thing, channel: str, rejected: RejectedHttpMessage
) -> RejectedUplink:
    message = Msg(None, subject=uplink_subject(thing.sn, channel))  # type: ignore[arg-type]
    uplink = Uplink(
        sn=thing.sn,
        channel=channel,
        payload=rejected.raw,
        sequence=0,
        received=now_ms(),
        delivered=1,
        message=message,
    )
    return RejectedUplink(uplink, rejected.reason, thing, rejected.faults)
