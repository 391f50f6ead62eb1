"""Distributes events over partitions; copies events for applications to `EVENTS`.

An application has one durable consumer, on `EVENTS`. With partitions, `EVENTS` therefore sources
the events of tenants with applications that may read events, from all partitions (decision 0070). A
new source starts at the oldest event. If events of the tenant were copied before, the source starts
after the last copied event.
"""

import logging
from dataclasses import dataclass

from nats.js.api import StreamSource

from libs.common.bus import EVENTS, Bus
from libs.common.bus.streams import set_event_partitions
from libs.common.scheduling.turns import repeat
from services.auth.applications.store import ApplicationStore

log = logging.getLogger(__name__)

UPDATE_INTERVAL_SECONDS = 2.0
"""Seconds between two updates; a new application may wait as long for its first event."""


@dataclass(frozen=True)
class EventStreamUpdater:
    """Maintains the partitions of events and the sources of `EVENTS`."""

    bus: Bus
    applications: ApplicationStore
    partitions: int

    async def run(self) -> None:
        """Call `update_streams` periodically; runs in the lease holder."""
        late = "events were not distributed; retrying"
        await repeat(
            self.update_streams, UPDATE_INTERVAL_SECONDS, late, upcoming=self._set_partition_count
        )

    async def update_streams(self) -> None:
        """Set the number of partitions and the tenants whose events are copied."""
        if not (streams := await self._set_partition_count()):
            return
        copied_tenants = [
            StreamSource(name=stream, filter_subject=f"event.{tenant}.>")
            for tenant in await self.applications.list_event_reading_tenants()
            for stream in streams
        ]
        config = (await self.bus.js.stream_info(EVENTS)).config
        if _source_filters(config.sources or []) != _source_filters(copied_tenants):
            await self.bus.js.update_stream(config.evolve(sources=copied_tenants or None))
            log.info("EVENTS copies the events of %d tenants", len(copied_tenants) // len(streams))

    async def _set_partition_count(self, _: float = 0.0) -> list[str]:
        """Set the number of partitions; return the streams of all partitions ever created."""
        event_partitions = await set_event_partitions(
            self.bus.js, self.bus.replicas, self.partitions
        )
        return event_partitions.streams[1:]


def _source_filters(sources: list[StreamSource]) -> set[tuple[str, str | None]]:
    return {(source.name, source.filter_subject) for source in sources}
