"""Shares of tenants in `EVENTS`: a tenant that exceeds its own loses its own oldest events.

One process measures and purges (decision 0058). nats-server tells how many messages a tenant has;
their mean size is sampled. While the stream is nearly full, shares are equal, and whatever a
tenant does not use is divided among the others.
"""

import asyncio
import logging
import math
import time
from collections import defaultdict, deque
from collections.abc import Collection
from functools import partial

import msgspec
from nats.errors import Error as NatsError
from nats.js.errors import APIError
from opentelemetry import metrics

from libs.common.bus import EVENTS, Bus
from libs.common.bus.fitting import LARGEST_EVENT
from libs.common.bus.retained import count_messages, purge_oldest, sample_sizes
from libs.common.bus.stream_metrics import StreamReading, read_stream
from libs.common.store.mongo import StoreError
from services.auth.accounts.tenants import TenantStore

log = logging.getLogger(__name__)

PERIOD = 5.0
"""Seconds between two looks at the stream."""
HIGH, LOW = 0.8, 0.75
"""Parts of the stream's bytes: beyond the first one tenants are purged, until the second one."""
LARGEST = LARGEST_EVENT + 4096
"""Bytes of a message with its headers at most."""
KEPT, RENEWED = 40, 4
"""Samples of a tenant that count, and those that each look renews."""
SLICE, SLICE_BYTES = 50_000, 64 * 1024**2
"""Messages and bytes of one purge: nobody publishes while it lasts (0.05 to 0.4 s)."""
REST = 1.0
"""Pause after a purge, in multiples of the time that it took."""

_purged = metrics.get_meter("thingway").create_counter(
    "thingway_events_purged", description="Events of a tenant beyond its share, purged unexpired"
)
_bytes = metrics.get_meter("thingway").create_gauge(
    "thingway_event_bytes", description="Bytes of events of a tenant, measured near its share"
)


def equal_share(volumes: Collection[float], room: float) -> float:
    """Return the largest share with which all `volumes`, each cut to it, fit in `room`."""
    for left, volume in zip(range(len(volumes), 0, -1), sorted(volumes), strict=True):
        if volume * left > room:
            return room / left
        room -= volume
    return math.inf


class EventShares:
    """Keeps each tenant within its share of `EVENTS`."""

    def __init__(self, bus: Bus, tenants: TenantStore) -> None:
        self._bus = bus
        self._tenants = tenants
        self._samples: dict[str, deque[tuple[int, int]]] = defaultdict(partial(deque, maxlen=KEPT))

    async def run(self) -> None:
        """Enforce shares for ever; run by the lease holder."""
        while True:
            try:
                await self.enforce()
            except (NatsError, APIError, StoreError, TimeoutError, msgspec.DecodeError) as error:
                log.warning("shares of events are enforced later: %r", error)
            await asyncio.sleep(PERIOD)

    async def enforce(self) -> None:
        """Measure tenants once, and purge those that exceed their share."""
        stream = await read_stream(self._bus, EVENTS)
        held, room = stream.state.bytes, LOW * stream.config.max_bytes
        is_full = 0 < HIGH * stream.config.max_bytes < held
        limits = await self._tenants.event_limits(below=math.inf if is_full else held)
        numbers = {tenant: await self._count(tenant) for tenant in limits}
        share = room / max(1, len(limits)) if is_full else math.inf
        volumes = {  # a tenant with so few messages is within any share
            tenant: await self._measure(tenant, number, stream)
            for tenant, number in numbers.items()
            if number * LARGEST > min(limits[tenant], share)
        }
        if is_full:
            scale = held / max(1.0, sum(volumes.values()))
            volumes = {tenant: volume * scale for tenant, volume in volumes.items()}
            share = equal_share(volumes.values(), room)
        for tenant in sorted(volumes, key=volumes.__getitem__, reverse=True):
            _bytes.set(volumes[tenant], {"tenant": tenant})
            most = min(limits[tenant], share)
            if volumes[tenant] > most:
                enough = room if share < limits[tenant] else 0.0
                await self._purge(tenant, numbers[tenant], volumes[tenant], most, enough)

    async def _count(self, tenant: str) -> int:
        return await count_messages(self._bus, EVENTS, _subject(tenant))

    async def _measure(self, tenant: str, number: int, stream: StreamReading) -> float:
        """Return the bytes of a tenant's messages, of which there are `number`."""
        samples = self._samples[tenant]
        for _ in range(RENEWED if len(samples) == KEPT else KEPT):
            samples.append(
                await sample_sizes(self._bus, EVENTS, _subject(tenant), stream.state, number)
            )
        messages, size = map(sum, zip(*samples, strict=True))
        mean = size / messages if messages else stream.state.bytes / stream.state.messages
        return number * mean

    async def _purge(
        self, tenant: str, number: int, volume: float, most: float, enough: float
    ) -> None:
        """Purge a tenant's oldest messages until it has `most` bytes or the stream `enough`."""
        mean = volume / number
        excess, purged = math.ceil((volume - most) / mean), 0
        while excess > 0:
            started = time.monotonic()
            part = max(1, min(excess, SLICE, int(SLICE_BYTES / mean)))
            purged += await purge_oldest(self._bus, EVENTS, _subject(tenant), part)
            excess -= part
            await asyncio.sleep(REST * (time.monotonic() - started))
            if (await read_stream(self._bus, EVENTS)).state.bytes <= enough:
                break
        _purged.add(purged, {"tenant": tenant})
        log.info("%s: %d events beyond its share of %d bytes are purged", tenant, purged, most)
        await self._tenants.record_purge(tenant, purged, int(most))


def _subject(tenant: str) -> str:
    return f"event.{tenant}.>"
