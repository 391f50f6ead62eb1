"""What of refused messages goes to `DEAD`: each tenant has so many bytes a day there.

Beyond them a message is only counted, and once a minute an entry without a payload tells how
many they were: nobody pushes the entries of others out of the stream.
"""

import time
from collections import Counter

from libs.common.bus import Outgoing
from libs.common.clock import now_ms
from libs.common.contracts.limits import Limits
from libs.common.limits.meter import Meter
from libs.common.limits.metrics import count_limited
from libs.common.limits.tenants import KnownLimits
from services.device.reports.batch import Batch, Refused
from services.device.reports.messages import dead, dead_summary

DAY = 86_400.0
TOLD_EVERY = 60.0
"""Seconds between two entries about what is not kept."""


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
        entry = dead(refused.uplink, refused.reason)
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
