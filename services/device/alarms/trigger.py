"""Alarm trigger: points at alarms that values may raise or clear, by rules in memory.

It judges by rules and states in memory, in microseconds; nearly all reports change nothing. What
is pointed at is decided elsewhere, by history and in a transaction (`evaluating`), so that ingest
may be wrong: too many pointers cost a look, and one too few is made good by the second look that
each change has.

Keeps a process's index of rules and states in step with the collections.

It asks for what was written since it asked last, when it is used. A change stream would tell
sooner, and has MongoDB read all that ingest writes, once for each stream and process: with two of
them ingest lost a third of its rate. What a report is judged by may so be `PERIOD` old; it is made
good by the second look that each change of a state has (`deciding.SETTLING`).
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import Any

from libs.common.bus import OutboxEntry, Outgoing
from libs.common.clock import now_ms
from libs.common.telemetry.tracing import trace_header
from services.device.alarms.condition_checks import bounded
from services.device.alarms.events import Pointer, pointing
from services.device.alarms.rule_index import Found, RuleIndex
from services.device.alarms.rules import RuleStore
from services.device.alarms.store import AlarmStore
from services.device.telemetry.batch import Batch
from services.device.telemetry.ports import AlarmTrigger
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing

PERIOD = 0.5
"""Seconds for which an answer counts as that of now."""
OVERLAP = 3_000
"""ms that are asked for again: clocks differ, and transactions take their time."""


class FollowedRules:
    """An index that is in step whenever it is handed out."""

    def __init__(self, rules: RuleStore, alarms: AlarmStore) -> None:
        self._index = RuleIndex()
        self._rules = rules
        self._alarms = alarms
        self._asked: int | None = None
        """ms."""
        self._until = 0.0
        """Until when (monotonic) the index counts as in step."""
        self._lock = asyncio.Lock()

    async def index(self) -> RuleIndex:
        """The index as of now; raise `StoreError` when that cannot be known."""
        async with self._lock:
            if time.monotonic() >= self._until:
                asked = now_ms()
                await (self._load() if self._asked is None else self._refresh(self._asked))
                self._asked, self._until = asked, time.monotonic() + PERIOD
                self._index.forget_doubts(time.monotonic())
        return self._index

    async def _refresh(self, asked: int) -> None:
        for rule in await self._rules.changed(asked - OVERLAP):
            self._index.put(rule)
        for state in await self._alarms.changed(asked - OVERLAP):
            self._index.know(state)

    async def _load(self) -> None:
        for rule in await self._rules.all():
            self._index.put(rule)
        for state in await self._alarms.not_normal():
            self._index.know(state)


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
