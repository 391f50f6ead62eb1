"""Starts runs at due times; all replicas do. Times are Unix times in ms.

A run is recorded before its timer advances, and a due time starts one run. After a crash in
between, the next replica that claims the timer continues. If no replica was running, one run makes
up for all missed times. A run without room waits with its claimed timer and does not block other
timers.

If a clock change skips the due time, the timer is due later by the length of the change (02:30
becomes 03:30). If a clock change repeats the due time, the timer is due only the first time.

`timers` in MongoDB has one document per deployed flow that starts with a timer: `{_id: flow id,
tenant, flow, settings, anchor, due, claim}`. `flow` is the JSON of `DeployedFlow`, `settings` that
of the timer's settings. `due` is null after the last time. `claim` is `{by, until}`: the replica
that handles the due time. It only avoids duplicate work, because the cause of a run is unique.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, time, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace
from opentelemetry.trace import SpanKind
from pymongo import UpdateOne

from libs.common.clock import from_ms, to_ms
from libs.common.errors import ThingwayError
from libs.common.jobs import wait_for_event
from libs.common.scheduling.turns import IDLE_PERIOD_SECONDS
from libs.common.store.mongo import Database, Session, StoreError, list_ids_in_turns
from libs.common.telemetry.tracing import begin_trace, span_header
from services.workflow.engine.runner import Engine, FlowStart, record_and_execute
from services.workflow.flows.model import DeploymentObserver
from services.workflow.nodes.parameters import convert_parameters
from services.workflow.nodes.triggers import (
    UTC,
    SimpleTimer,
    SimpleTimerParameters,
    TimerRule,
    TimerSettings,
)
from services.workflow.runs.model import Cause, DeployedFlow

CLAIM_VALIDITY_MS = 30_000
"""Validity of a claim in ms."""

_decode_deployed = msgspec.json.Decoder(DeployedFlow).decode


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """The timer of a deployed flow."""

    flow: DeployedFlow
    anchor: int
    """Time in ms when the timer was set; intervals start there."""
    due: int
    """Next due time in ms."""

    @property
    def decoded_settings(self) -> TimerSettings:
        """Return the settings of the timer."""
        return read_timer_settings(self.flow)

    @property
    def entered(self) -> dict[str, object]:
        """Return the output of the entry node for the due time."""
        zone = self.decoded_settings.timezone or UTC
        return {"executionEpochSecond": self.due // 1000, "timezone": zone}

    @property
    def cause(self) -> Cause:
        """Return the cause, which is unique per due time."""
        return Cause(kind="TIMER", key=f"t-{self.due}")


def read_timer_settings(flow: DeployedFlow) -> TimerSettings:
    """Return the validated settings of a flow that starts with a timer."""
    return convert_parameters(SimpleTimerParameters, flow.parameters).timer_settings


class TimerStore:
    """The collection `timers`."""

    def __init__(self, database: Database) -> None:
        self._timers = database["timers"]

    async def get(self, flow_id: int, session: Session) -> tuple[bytes, int, int | None] | None:
        """Return settings as JSON, anchor and due time (ms) of a flow's timer."""
        document = await self._timers.find_one({"_id": flow_id}, session=session)
        return (
            None
            if document is None
            else (document["settings"], document["anchor"], document["due"])
        )

    async def put(self, flow: DeployedFlow, anchor: int, due: int | None, session: Session) -> None:
        """Store the timer of a flow without a claim."""
        fields = {
            "tenant": flow.tenant,
            "flow": msgspec.json.encode(flow),
            "settings": encode_timer_settings(flow),
            "anchor": anchor,
            "due": due,
        }
        key = {"_id": flow.flow_id}
        change = {"$set": fields, "$unset": {"claim": ""}}
        await self._timers.update_one(key, change, upsert=True, session=session)

    async def remove(self, tenant: str, flow_id: int, session: Session) -> None:
        """Delete the timer of a flow."""
        await self._timers.delete_one({"_id": flow_id, "tenant": tenant}, session=session)

    async def claim_due(self, now: int, maximum: int) -> list[Timer]:
        """Claim due timers without a valid claim, fairly by tenant."""
        free = {"due": {"$lte": now}, **_unclaimed_query(now)}
        ids = await list_ids_in_turns(self._timers, free, "due", maximum)
        if not ids:
            return []
        token = uuid4().hex
        claim = {"by": token, "until": now + CLAIM_VALIDITY_MS}
        await self._timers.update_many({"_id": {"$in": ids}, **free}, {"$set": {"claim": claim}})
        claimed = self._timers.find({"_id": {"$in": ids}, "claim.by": token})
        return [
            Timer(flow=_decode_deployed(row["flow"]), anchor=row["anchor"], due=row["due"])
            async for row in claimed
            if row["due"] is not None
        ]

    async def store_next_dues(self, timers: Sequence[tuple[Timer, int | None]]) -> None:
        """Store the given next due times, unless a timer was changed meanwhile."""
        updates = [
            UpdateOne(
                {"_id": timer.flow.flow_id, "due": timer.due, "anchor": timer.anchor},
                {"$set": {"due": due}, "$unset": {"claim": ""}},
            )
            for timer, due in timers
        ]
        await self._timers.bulk_write(updates, ordered=False)

    async def find_next_claim_time(self, now: int) -> int | None:
        """Return the earliest time when a timer may be claimed; None without timers.

        It is then due, and no claim of another replica is valid.
        """
        fields = {"due": 1, "claim.until": 1}
        cursor = self._timers.find({"due": {"$type": "number"}}, fields).sort("due", 1)
        rows = await cursor.to_list(TIMERS_PER_CLAIM)
        claims = [row.get("claim", {}).get("until", 0) for row in rows]
        if len(rows) == TIMERS_PER_CLAIM and min(claims) > now:
            return now + int(QUERY_SECONDS * 1000)  # timers without a claim may follow
        dues = [max(row["due"], claim) for row, claim in zip(rows, claims, strict=True)]
        return min(dues, default=None)


def _unclaimed_query(now: int) -> dict[str, Any]:
    return {"claim.until": {"$not": {"$gt": now}}}


def encode_timer_settings(flow: DeployedFlow) -> bytes:
    """Return the timer settings of a flow as JSON, for comparison."""
    return msgspec.json.encode(read_timer_settings(flow))


_MS_BY_INTERVAL_UNIT = {"MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000}
_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_DAY_OFFSETS = range(-1, 9)
"""Offsets of the days from today in which the next time of every rule is, in any time zone."""
log = logging.getLogger(__name__)

QUERY_SECONDS = 1.0
"""Seconds between two queries while timers are claimed, or the store is unavailable."""
MIN_PAUSE_SECONDS = 0.02
"""Minimum seconds between two queries."""
TIMERS_PER_CLAIM = 50
"""Maximum timers that a replica claims at a time."""


def compute_next_due_ms(settings: TimerSettings, anchor: int, after: int) -> int | None:
    """Return the first due time after `after`, or None; all times are Unix ms.

    `anchor` is the time when the timer was set; intervals start there.
    """
    due = _compute_next_due_unbounded_ms(settings, anchor, after)
    end = settings.expiration_epoch_second
    return None if due is None or (end is not None and due > end * 1000) else due


def _compute_next_due_unbounded_ms(settings: TimerSettings, anchor: int, after: int) -> int | None:
    match settings.type:
        case "ONCE":
            due = (settings.execution_epoch_second or 0) * 1000
            return due if due > after else None
        case "INTERVAL":
            length = _MS_BY_INTERVAL_UNIT[settings.interval_time_unit or "DAYS"] * (
                settings.interval_time or 1
            )
            return anchor + max((after - anchor) // length + 1, 1) * length
        case "SCHEDULE":
            zone = ZoneInfo(settings.timezone or "UTC")
            times = _iterate_scheduled_times(settings.rules or (), zone, after)
            return min((due for due in times if due > after), default=None)


def _iterate_scheduled_times(
    rules: Iterable[TimerRule], zone: ZoneInfo, after: int
) -> Iterator[int]:
    today = from_ms(after).astimezone(zone).date()
    for offset in _DAY_OFFSETS:
        day = today + timedelta(days=offset)
        for rule in rules:
            if not rule.days_of_week or _WEEKDAYS[day.weekday()] in rule.days_of_week:
                yield to_ms(datetime.combine(day, time(rule.hour, rule.minute), zone))


class TimerDeployments(DeploymentObserver):
    """Keeps timers in step with flows."""

    def __init__(self, store: TimerStore, now: Callable[[], int]) -> None:
        """Use `now` as a clock in Unix ms."""
        self._store = store
        self._now = now

    async def write_deployment(
        self, tenant: str, flow_id: int, deployed: DeployedFlow | None, session: Session
    ) -> None:
        """Store the timer of a flow, with the same due time if the settings are unchanged.

        Delete the timer if the flow is undeployed or does not start with a timer.
        """
        if deployed is None or deployed.component != SimpleTimer.name:
            await self._store.remove(tenant, flow_id, session)
            return
        anchor = self._now()
        due = compute_next_due_ms(read_timer_settings(deployed), anchor, anchor)
        stored = await self._store.get(flow_id, session)
        if stored is not None and stored[0] == encode_timer_settings(deployed):
            _, anchor, due = stored
        await self._store.put(deployed, anchor, due, session)


class TimerRunner:
    """Starts runs at due times."""

    def __init__(
        self, store: TimerStore, engine: Engine, now: Callable[[], int], wake: asyncio.Event
    ) -> None:
        """Use `now` as a clock in Unix ms; `wake` is set when flows have changed."""
        self._store = store
        self._engine = engine
        self._now = now
        self._wake = wake

    async def run(self) -> None:
        """Start due runs until cancelled."""
        while True:
            try:
                while (pause := await self._seconds_until_query()) <= 0:
                    await self.start_due_runs()
            except (StoreError, ThingwayError) as error:
                log.warning("due timers were not started; retrying: %s", error)
                pause = QUERY_SECONDS
            await wait_for_event(self._wake, max(pause, MIN_PAUSE_SECONDS))
            self._wake.clear()

    async def start_due_runs(self) -> int:
        """Start due runs; return the number of claimed timers."""
        timers = await self._store.claim_due(self._now(), TIMERS_PER_CLAIM)
        if timers:
            starts = [_build_start(timer) for timer in timers]
            executed = await record_and_execute(self._engine, starts)
            late = {start.flow.flow_id for start in executed.without_room}
            begun = [timer for timer in timers if timer.flow.flow_id not in late]
            now = self._now()
            if begun:
                # Times missed meanwhile are skipped.
                dues = [
                    compute_next_due_ms(each.decoded_settings, each.anchor, max(now, each.due))
                    for each in begun
                ]
                await self._store.store_next_dues(list(zip(begun, dues, strict=True)))
        return len(timers)

    async def _seconds_until_query(self) -> float:
        """Return the seconds until the next query; at most 0 if a timer is due."""
        due = await self._store.find_next_claim_time(self._now())
        return (
            IDLE_PERIOD_SECONDS
            if due is None
            else min((due - self._now()) / 1000, IDLE_PERIOD_SECONDS)
        )


def _build_start(timer: Timer) -> FlowStart:
    """Return the start of a due timer's run, with a new trace."""
    with begin_trace("timer", SpanKind.PRODUCER) as span:
        return FlowStart(timer.flow, timer.entered, replace(timer.cause, trace=span_header(span)))
