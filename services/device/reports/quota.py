"""What devices may send, and how much of what is refused is kept.

Beyond it a message is refused, and its device shut out for a while. Messages over MQTT reach
`UPLINK` without a gate of ours. The time that counts is when the stream took a message. One that
is delivered again was counted before.

Each tenant has so many bytes a day in `DEAD`. Beyond them a refused message is only counted, and
once a minute an entry without a payload tells how many they were: nobody pushes the entries of
others out of the stream.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from libs.common.bus import Outgoing, RpcClient
from libs.common.clock import now_ms
from libs.common.contracts.limits import Limits
from libs.common.limits.meter import BURST, Excess, Floods, MessageMeter, Meter
from libs.common.limits.tenants import KnownLimits, count_limited
from services.device.reports.batch import Batch, Refused
from services.device.reports.messages import dead, dead_summary
from services.device.reports.uplink import Uplink
from services.device.things.model import Thing

SLACK = 1.0
"""Seconds' worth more than at the edges, so that who was let in there is not refused here."""
DAY = 86_400.0
TOLD_EVERY = 60.0
"""Seconds between two entries about what is not kept."""


class Quota:
    """Finds the messages of a batch that are too many."""

    def __init__(self, limits: KnownLimits, rpc: RpcClient) -> None:
        self._meter = MessageMeter(limits, BURST + SLACK)
        self._floods = Floods(rpc)

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


class Refusals:
    """Makes the entries of `DEAD`."""

    def __init__(self, limits: KnownLimits) -> None:
        self._limits = limits
        self._meter = Meter()
        self._left_out: Counter[str] = Counter()
        self._told: dict[str, float] = {}

    def entries(self, batch: Batch) -> list[Outgoing]:
        """The entries for a batch."""
        return [entry for refused in batch.refused if (entry := self._entry(refused)) is not None]

    def _entry(self, refused: Refused) -> Outgoing | None:
        tenant = refused.thing.tenant if refused.thing else ""
        entry = dead(refused.uplink, refused.thing, refused.reason, refused.faults)
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
