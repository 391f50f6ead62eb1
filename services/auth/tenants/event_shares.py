"""Shares of tenants in streams of events: events beyond a share are purged.

The oldest events are purged first. One process measures and purges (decision 0058). nats-server
returns the number of messages per tenant; their mean size is estimated from samples. While the
stream is nearly full, all tenants have equal shares, and unused parts are divided among the others.
A tenant's limit `retainedEventBytes` always applies.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from nats.js.errors import NotFoundError
from opentelemetry import metrics

from libs.common.bus import EVENTS, Bus
from libs.common.bus.consumer import BACKLOG_INTERVAL_SECONDS
from libs.common.bus.event_shortening import MAX_EVENT_BYTES
from libs.common.bus.stored_messages import count_messages
from libs.common.scheduling.turns import IDLE_PERIOD_SECONDS, repeat
from libs.common.store_metrics import StreamContent, StreamReading, read_stream
from services.auth.accounts.tenants import TenantStore

log = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
"""Seconds between two checks; a stream takes longer to grow from `PURGE_START` to its limit."""
PURGE_START, PURGE_END = 0.8, 0.75
"""Fractions of a stream's size limit at which purging starts and ends."""
MAX_MESSAGE_BYTES = MAX_EVENT_BYTES + 4096
"""Maximum bytes of a message with headers."""
SAMPLE_WINDOWS, MEAN_WINDOW_MESSAGES, MAX_READ = 16, 16, 64
"""The sample of a tenant's messages: number of windows, mean number of messages in a window, and
maximum number of messages that are read per window."""
MESSAGE_OVERHEAD_BYTES = 34
"""Bytes that nats-server adds to each stored message."""
PURGE_MESSAGES, PURGE_BYTES = 50_000, 64 * 1024**2
"""Maximum messages and bytes per purge, which blocks publishing (0.05 to 0.4 s)."""

_purged_counter = metrics.get_meter("thingway").create_counter(
    "thingway_events_purged", description="Unexpired events purged beyond a tenant's share"
)


def compute_volume_cap(volumes: Collection[float], room: float) -> float:
    """Return the largest cap with which the sum of the capped `volumes` is <= `room`."""
    for remaining_tenants, volume in zip(range(len(volumes), 0, -1), sorted(volumes), strict=True):
        if volume * remaining_tenants > room:
            return room / remaining_tenants
        room -= volume
    return math.inf


@dataclass
class EventShareEnforcer:
    """Limits each tenant to its share of the streams with events."""

    bus: Bus
    tenants: TenantStore
    _known: tuple[list[StreamContent], float] = field(default_factory=lambda: ([], 0.0), init=False)
    """The content of the streams when they were last measured, and the monotonic time of the next
    measurement if the content does not change."""

    async def run(self) -> None:
        """Enforce shares periodically; runs in the lease holder."""
        await repeat(
            self._enforce_after_change,
            CHECK_SECONDS,
            "shares of events were not enforced; retrying",
        )

    async def _enforce_after_change(self) -> None:
        """Enforce shares after a change of a stream, or after `IDLE_PERIOD_SECONDS`."""
        names, now = (
            (await self.bus.read_partitions(BACKLOG_INTERVAL_SECONDS)).streams,
            time.monotonic(),
        )
        streams = {name: await read_stream(self.bus, name) for name in names}
        contents = [stream.state for stream in streams.values()]
        if contents != self._known[0] or now >= self._known[1]:
            await self._enforce_all(streams)
            self._known = contents, now + IDLE_PERIOD_SECONDS

    async def enforce(self) -> None:
        """Measure tenants once, and purge the events of tenants that exceed their share."""
        names = (await self.bus.read_partitions(BACKLOG_INTERVAL_SECONDS)).streams
        await self._enforce_all({name: await read_stream(self.bus, name) for name in names})

    async def _enforce_all(self, streams: Mapping[str, StreamReading]) -> None:
        """Enforce shares in all streams.

        Each used partition has an equal part of a tenant's limit; `EVENTS` has the whole limit.
        """
        partitions = await self.bus.read_partitions(BACKLOG_INTERVAL_SECONDS)
        for name, stream in streams.items():
            await self._enforce_in_stream(name, stream, 1 if name == EVENTS else partitions.used)

    async def _enforce_in_stream(self, name: str, stream: StreamReading, stream_count: int) -> None:
        content, room = stream.state, PURGE_END * stream.config.max_bytes
        is_full = 0 < PURGE_START * stream.config.max_bytes < content.bytes
        below = math.inf if is_full else content.bytes * stream_count
        limits_by_tenant = await self.tenants.list_event_byte_limits_below(below)
        limits = {tenant: limit / stream_count for tenant, limit in limits_by_tenant.items()}
        share = room / len(limits) if is_full else math.inf
        numbers, volumes = {}, {}
        for tenant, limit in limits.items():
            number = await count_messages(self.bus, name, f"event.{tenant}.>")
            if number * MAX_MESSAGE_BYTES > min(
                limit, share
            ):  # otherwise it is surely within its share
                numbers[tenant] = number
                volumes[tenant] = number * await self._sample_mean_bytes(
                    name, tenant, number, content
                )
        if is_full:
            scale = content.bytes / max(1.0, sum(volumes.values()))
            volumes = {tenant: volume * scale for tenant, volume in volumes.items()}
            share = compute_volume_cap(volumes.values(), room)
        for tenant in sorted(volumes, key=volumes.__getitem__, reverse=True):
            maximum = min(limits[tenant], share)
            if volumes[tenant] > maximum:
                enough = room if share < limits[tenant] else 0.0
                await self._purge_tenant(
                    name, tenant, numbers[tenant], volumes[tenant], maximum, enough
                )

    async def _sample_mean_bytes(
        self, name: str, tenant: str, message_count: int, content: StreamContent
    ) -> float:
        """Return the mean size of a tenant's messages, from windows at random sequences."""
        span = content.last_seq - content.first_seq + 1
        count = size = 0
        for _ in range(SAMPLE_WINDOWS):
            sequence = random.randint(content.first_seq, content.last_seq)  # noqa: S311 - a sample
            end = sequence + max(1, span * MEAN_WINDOW_MESSAGES // message_count)
            for _ in range(MAX_READ):
                try:
                    message = await self.bus.js.get_msg(
                        name, sequence, f"event.{tenant}.>", next=True
                    )
                except NotFoundError:
                    break
                sequence = (message.seq or end) + 1
                if sequence > end:
                    break
                count += 1
                texts = (message.subject or "", message.data or b"")
                size += (
                    MESSAGE_OVERHEAD_BYTES + sum(map(len, texts)) + len(message.hdrs or "") * 3 // 4
                )
        return size / count if count else content.bytes / content.messages

    async def _purge_tenant(
        self,
        name: str,
        tenant: str,
        message_count: int,
        tenant_bytes: float,
        max_tenant_bytes: float,
        max_stream_bytes: float,
    ) -> None:
        """Purge a tenant's oldest messages.

        Stops when the tenant has `max_tenant_bytes` left, or the stream at most `max_stream_bytes`.
        """
        part = max(1, min(PURGE_MESSAGES, int(PURGE_BYTES * message_count / tenant_bytes)))
        remaining = message_count
        goal = max(1, int(message_count * max_tenant_bytes / tenant_bytes))
        while (
            remaining > goal and (await read_stream(self.bus, name)).state.bytes > max_stream_bytes
        ):
            remaining, started = max(goal, remaining - part), time.monotonic()
            await self.bus.js.purge_stream(name, subject=f"event.{tenant}.>", keep=remaining)
            await asyncio.sleep(time.monotonic() - started)
        _purged_counter.add(message_count - remaining, {"tenant": tenant})
        log.info(
            "tenant %s: purged %d events beyond its share of %d bytes",
            tenant,
            message_count - remaining,
            max_tenant_bytes,
        )
        await self.tenants.record_event_purge(
            tenant, message_count - remaining, int(max_tenant_bytes)
        )
