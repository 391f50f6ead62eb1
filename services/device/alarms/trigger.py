"""Alarm trigger: ingest requests evaluations of rules that values may affect.

It checks values by rules and states in memory, in microseconds; nearly all reports change nothing.
The evaluation decides later by history, in a transaction. Ingest may thus be wrong: a needless
request costs one evaluation, and a missing one is compensated by the second evaluation after each
change (`decision.SETTLING_MS`).

The index is updated when it is used, by rules and states that were written since. A change stream
would be faster, but makes MongoDB read all writes of ingest, once per stream and process: with two
streams ingest lost a third of its throughput. So the index may be `MAX_INDEX_AGE_SECONDS` old.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator

from libs.common.bus import OutgoingMessage
from libs.common.clock import now_ms
from libs.common.telemetry.tracing import trace_header
from services.device.alarms.condition_checks import truncate_for_check
from services.device.alarms.events import EvaluationRequest, build_request_message
from services.device.alarms.rule_index import PossibleChange, ReportSource, RuleIndex
from services.device.alarms.rules import RuleStore
from services.device.alarms.store import AlarmStore
from services.device.telemetry.batch import Batch
from services.device.telemetry.ports import AlarmTrigger
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing

MAX_INDEX_AGE_SECONDS = 0.5
"""Seconds for which the index is considered current."""
REREAD_OVERLAP_MS = 3_000
"""Milliseconds of writes that are read again, because clocks differ and transactions take time."""


class RuleIndexCache:
    """The rule index of this process, updated when it is used."""

    def __init__(self, rules: RuleStore, alarms: AlarmStore) -> None:
        self._index = RuleIndex()
        self._rules = rules
        self._alarms = alarms
        self._updated_ms: int | None = None
        self._valid_until = 0.0
        """Monotonic time at which the index must be updated."""
        self._lock = asyncio.Lock()

    async def get_current(self) -> RuleIndex:
        """Return the current index; raise `StoreError` when it cannot be updated."""
        async with self._lock:
            if time.monotonic() >= self._valid_until:
                now = now_ms()
                await (
                    self._load() if self._updated_ms is None else self._refresh(self._updated_ms)
                )
                self._updated_ms, self._valid_until = now, time.monotonic() + MAX_INDEX_AGE_SECONDS
                self._index.expire_uncertain_states(time.monotonic())
        return self._index

    async def _refresh(self, since: int) -> None:
        for rule in await self._rules.list_changed(since - REREAD_OVERLAP_MS):
            self._index.put(rule)
        for state in await self._alarms.list_changed_states(since - REREAD_OVERLAP_MS):
            self._index.set_state(state)

    async def _load(self) -> None:
        for rule in await self._rules.list_active():
            self._index.put(rule)
        for state in await self._alarms.list_active_states():
            self._index.set_state(state)


UNCERTAIN_SECONDS = 5.0
"""Seconds for which any value of a device matches after a possible change."""


class RuleAlarmTrigger(AlarmTrigger):
    """Requests the evaluation of rules that values may affect."""

    def __init__(self, rule_index: RuleIndexCache) -> None:
        self._rule_index = rule_index

    async def refresh_rules(self) -> None:
        """Update the index, so that it usually is current when a batch is stored."""
        await self._rule_index.get_current()

    async def messages_for_batch(self, batch: Batch) -> list[OutgoingMessage]:
        """Return requests for a stored batch; raise `StoreError`."""
        index = await self._rule_index.get_current()
        has_values = batch.reports or batch.events or batch.confirmed
        return list(_batch_messages(index, batch)) if has_values else []


def _batch_messages(index: RuleIndex, batch: Batch) -> Iterator[OutgoingMessage]:
    for report in (*batch.reports, *batch.confirmed):
        thing = report.thing
        if thing.device and index.has_rules(thing.tenant):
            matches = index.find_changes_by_report(
                _report_source(thing), report.properties, report.ts
            )
            yield from _request_messages(index, report.uplink, thing, report.ts, matches)
    for event in batch.events:
        thing = event.thing
        if thing.device and index.has_rules(thing.tenant):
            matches = index.find_changes_by_event(_report_source(thing), event.event_id, event.ts)
            yield from _request_messages(index, event.uplink, thing, event.ts, matches)


def _report_source(thing: Thing) -> ReportSource:
    return thing.tenant, thing.id, thing.model


def _request_messages(
    index: RuleIndex, uplink: Uplink, thing: Thing, ts: int, matches: Iterable[PossibleChange]
) -> Iterator[OutgoingMessage]:
    if each := list(matches):
        until = time.monotonic() + UNCERTAIN_SECONDS
        request = EvaluationRequest(
            tenant=thing.tenant,
            device_id=thing.id,
            values={match.compiled.rule.id: truncate_for_check(match.value) for match in each},
            ts=ts,
            sequence=uplink.sequence,
            received=uplink.received,
            earliest=min(
                index.mark_uncertain_and_get_earliest(match, thing.id, until, ts) for match in each
            ),
        )
        yield build_request_message(request, uplink.key, trace_header(uplink.trace))
