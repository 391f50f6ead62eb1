"""What ingest does for alarms: it points at the rules whose states a report may change.

It judges by rules and states in memory, in microseconds; nearly all reports change nothing. What
is pointed at is decided elsewhere, by history and in a transaction (`evaluating`), so that ingest
may be wrong: too many pointers cost a look, and one too few is made good by the second look that
each change has.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any

from libs.common.bus import OutboxEntry, Outgoing
from libs.common.telemetry.tracing import trace_header
from services.device.alarms.deciding import bounded
from services.device.alarms.following import FollowedRules
from services.device.alarms.index import Found, RuleIndex
from services.device.alarms.messages import Pointer, pointing
from services.device.telemetry.batch import Batch
from services.device.telemetry.ports import AlarmTrigger
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing

DOUBT = 5.0
"""Seconds for which any value of a device is pointed at after one that may change its state."""


class RuleAlarmTrigger(AlarmTrigger):
    """Judges values by rules and states, and says which rules have to be evaluated."""

    def __init__(self, followed: FollowedRules) -> None:
        self._followed = followed

    async def messages_for_batch(self, batch: Batch) -> list[Outgoing]:
        """Return pointers for a stored batch; raise `StoreError` when the rules cannot be read."""
        index = await self._followed.index()
        return list(_of_batch(index, batch)) if batch.reports or batch.events else []

    async def entries_for_values(
        self, uplink: Uplink, thing: Thing, values: dict[str, Any]
    ) -> list[OutboxEntry]:
        """Return pointers for values that a device had when the uplink was received."""
        index = await self._followed.index()
        found = index.reported(_subject(thing), values, uplink.received)
        messages = _pointer(index, uplink, thing, uplink.received, found)
        return [OutboxEntry(one.subject, one.payload, headers=one.headers) for one in messages]


def _of_batch(index: RuleIndex, batch: Batch) -> Iterator[Outgoing]:
    for report in batch.reports:
        thing = report.thing
        if thing.device and index.has(thing.tenant):
            found = index.reported(_subject(thing), report.properties, report.ts)
            yield from _pointer(index, report.uplink, thing, report.ts, found)
    for event in batch.events:
        thing = event.thing
        if thing.device and index.has(thing.tenant):
            found = index.occurred(_subject(thing), event.event_id, event.ts)
            yield from _pointer(index, event.uplink, thing, event.ts, found)


def _subject(thing: Thing) -> tuple[str, int, str]:
    return thing.tenant, thing.id, thing.model


def _pointer(
    index: RuleIndex, uplink: Uplink, thing: Thing, ts: int, found: Iterable[Found]
) -> Iterator[Outgoing]:
    if each := list(found):
        until = time.monotonic() + DOUBT
        pointer = Pointer(
            tenant=thing.tenant,
            device_id=thing.id,
            values={one.compiled.rule.id: bounded(one.value) for one in each},
            ts=ts,
            sequence=uplink.sequence,
            received=uplink.received,
            earliest=min(index.doubt(one, thing.id, until, ts) for one in each),
        )
        yield pointing(pointer, uplink.key, trace_header(uplink.trace))
