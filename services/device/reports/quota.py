"""What devices may send: beyond it a message is refused, and its connection closed.

Messages over MQTT reach `UPLINK` without a gate of ours. The time that counts is when the stream
took a message. One that is delivered again was counted before.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from libs.common.bus import RpcClient
from libs.common.identity.connections import Closer
from libs.common.limits.meter import BURST, Excess, MessageMeter
from libs.common.limits.metrics import count_limited
from libs.common.limits.tenants import KnownLimits
from services.device.reports.uplink import Uplink
from services.device.things import Thing

SLACK = 1.0
"""Seconds' worth more than at the edges, so that who was let in there is not refused here."""


class Quota:
    """Finds the messages of a batch that are too many."""

    def __init__(self, limits: KnownLimits, rpc: RpcClient) -> None:
        self._meter = MessageMeter(limits, BURST + SLACK)
        self._closer = Closer(rpc)

    def beyond(self, uplinks: Iterable[Uplink], things: Mapping[str, Thing]) -> dict[int, Excess]:
        """The messages that are refused, by sequence; closes the connections they came on."""
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
                self._closer.close(sn)
        return beyond

    def _take(self, thing: Thing, uplinks: list[Uplink]) -> Excess | None:
        size = sum(len(uplink.payload) for uplink in uplinks)
        at = max(uplink.received for uplink in uplinks) / 1000
        return self._meter.take(thing.tenant, thing.id, len(uplinks), size, at)
