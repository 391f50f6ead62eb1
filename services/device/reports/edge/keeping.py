"""Keeps what is refused over HTTP where people look for it: in `DEAD`, as that of MQTT is."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace
from nats.aio.msg import Msg

from libs.common.bus import Bus, publish_each
from libs.common.bus.subjects import up
from libs.common.clock import now_ms
from libs.common.errors import InvalidInput, ThingwayError
from libs.common.tsl import Fault
from services.device.reports.batch import Batch, Refused
from services.device.reports.quota import Refusals
from services.device.reports.uplink import Uplink
from services.device.things.model import Thing

log = logging.getLogger(__name__)


class Rejected(NamedTuple):
    """An entry of a request that was refused whole."""

    raw: bytes
    reason: str
    faults: list[Fault]

    @classmethod
    def by(cls, raw: bytes, error: InvalidInput) -> "Rejected":
        """What was refused by an error."""
        faults = list(error.faults)
        return cls(raw, "; ".join(map(str, faults)) or error.text, faults)


class RefusalKeeper:
    """Makes entries of `DEAD` within the tenant's quota; the device has been told already."""

    def __init__(self, bus: Bus, refusals: Refusals) -> None:
        self._bus = bus
        self._refusals = refusals

    async def keep(self, thing: Thing, channel: str, rejected: Sequence[Rejected]) -> None:
        """Keep what was refused; what the bus does not take is lost, and the log says so."""
        batch = Batch(refused=[_refused(thing, channel, one) for one in rejected])
        # Without ids, which come of a sequence in `UPLINK`: nothing of it comes again.
        entries = [replace(entry, msg_id=None) for entry in self._refusals.entries(batch)]
        try:
            await publish_each(self._bus, entries)
        except ThingwayError as error:
            log.warning("%d refusals of %s are not kept: %s", len(entries), thing.sn, error)


def _refused(thing: Thing, channel: str, rejected: Rejected) -> Refused:
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
    return Refused(uplink, rejected.reason, thing, rejected.faults)
