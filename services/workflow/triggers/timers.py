"""Makes runs of due times, in every replica at once. Times are ms since 1970.

A run is recorded before its timer moves on, and a due time makes one run: a crash in between
is made good by whoever claims the timer next. What came due while no replica ran is caught up
with by one run, whatever the number of times that were missed. A run for which there is no room
waits with its timer, which keeps its claim so long and holds up no other.

A time of day that a change of clocks leaves out is due as long after the change as it would
have been after the day's last hour before it (02:30 becomes 03:30); one that comes twice is
due the first time only.

Timers in MongoDB: `timers`, one for each flow that runs and begins with one.

`{_id: flow id, tenant, flow, settings, anchor, due, claim}`: `flow` is the JSON of `Deployed`,
`settings` that of the timer's settings, times are ms. `due` is null when the timer has ended.
`claim` is `{by, until}`, the replica that takes care of what is due; it is only there so that
replicas do not do the same work: what keeps a due time from making two runs is the run's cause.
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
from libs.common.store.mongo import Database, Session, StoreError, ids_in_turns
from libs.common.telemetry.tracing import begin_trace, span_header
from services.workflow.engine.runner import Engine, Start, admitted
from services.workflow.flows.model import Deployments
from services.workflow.nodes.parameters import read
from services.workflow.nodes.simple_timer import (
    UTC,
    SimpleTimer,
    SimpleTimerParameters,
    TimerRule,
    TimerSettings,
)
from services.workflow.runs.model import Cause, Deployed

CLAIMED_MS = 30_000
"""How long a claim holds when its replica does not come back to it."""

_decode = msgspec.json.Decoder(Deployed).decode


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """The timer of a flow that runs."""

    flow: Deployed
    anchor: int
    """When it was set, ms: intervals count from it."""
    due: int
    """When its next run is due, ms."""

    @property
    def settings(self) -> TimerSettings:
        """What it was set to."""
        return settings_of(self.flow)

    @property
    def entered(self) -> dict[str, object]:
        """What the flow is entered with."""
        zone = self.settings.timezone or UTC
        return {"executionEpochSecond": self.due // 1000, "timezone": zone}

    @property
    def cause(self) -> Cause:
        """A due time makes one run, however many replicas and attempts there are."""
        return Cause(kind="TIMER", key=f"t-{self.due}")


def settings_of(flow: Deployed) -> TimerSettings:
    """The settings of a flow that begins with a timer; they were checked."""
    return read(SimpleTimerParameters, flow.parameters).timer_settings


class TimerStore:
    """Reads and writes timers."""

    def __init__(self, database: Database) -> None:
        self._timers = database["timers"]

    async def get(self, flow_id: int, session: Session) -> tuple[bytes, int, int | None] | None:
        """Settings, anchor and due time of a flow's timer."""
        found = await self._timers.find_one({"_id": flow_id}, session=session)
        return None if found is None else (found["settings"], found["anchor"], found["due"])

    async def put(self, flow: Deployed, anchor: int, due: int | None, session: Session) -> None:
        """Set the timer of a flow."""
        fields = {
            "tenant": flow.tenant,
            "flow": msgspec.json.encode(flow),
            "settings": encoded_settings(flow),
            "anchor": anchor,
            "due": due,
        }
        key = {"_id": flow.flow_id}
        change = {"$set": fields, "$unset": {"claim": ""}}
        await self._timers.update_one(key, change, upsert=True, session=session)

    async def remove(self, tenant: str, flow_id: int, session: Session) -> None:
        """Drop the timer of a flow."""
        await self._timers.delete_one({"_id": flow_id, "tenant": tenant}, session=session)

    async def claim(self, now: int, most: int) -> list[Timer]:
        """Timers that are due and that no other replica takes care of now, tenants in turn."""
        free = {"due": {"$lte": now}, **_free(now)}
        ids = await ids_in_turns(self._timers, free, "due", most)
        if not ids:
            return []
        token = uuid4().hex
        claim = {"by": token, "until": now + CLAIMED_MS}
        await self._timers.update_many({"_id": {"$in": ids}, **free}, {"$set": {"claim": claim}})
        mine = self._timers.find({"_id": {"$in": ids}, "claim.by": token})
        return [
            Timer(flow=_decode(row["flow"]), anchor=row["anchor"], due=row["due"])
            async for row in mine
            if row["due"] is not None
        ]

    async def advance(self, timers: Sequence[tuple[Timer, int | None]]) -> None:
        """Set when timers are due next, unless they were set anew meanwhile."""
        updates = [
            UpdateOne(
                {"_id": timer.flow.flow_id, "due": timer.due, "anchor": timer.anchor},
                {"$set": {"due": due}, "$unset": {"claim": ""}},
            )
            for timer, due in timers
        ]
        await self._timers.bulk_write(updates, ordered=False)

    async def next_due(self, now: int) -> int | None:
        """When the next timer is due that no replica takes care of now."""
        query = {"due": {"$type": "number"}, **_free(now)}
        found = self._timers.find(query, {"due": 1}).sort("due", 1)
        rows = await found.to_list(1)
        return rows[0]["due"] if rows else None


def _free(now: int) -> dict[str, Any]:
    return {"claim.until": {"$not": {"$gt": now}}}


def encoded_settings(flow: Deployed) -> bytes:
    """The settings, to be compared."""
    return msgspec.json.encode(settings_of(flow))


async def create_indexes(database: Database) -> None:
    """Make what the queries above need."""
    await database["timers"].create_index("due")


_UNITS = {"MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000}
_DAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_AROUND = range(-1, 9)
"""Days from now that hold the next time of every rule, in whatever zone."""
log = logging.getLogger(__name__)

PERIOD = 1.0
"""Most seconds between two looks at what is due: timers are set by other replicas, too."""
LEAST = 0.02
"""Fewest."""
AT_ONCE = 50
"""Timers that a replica claims at a time; others take the next ones."""


def next_due(settings: TimerSettings, anchor: int, after: int) -> int | None:
    """The first time after `after`; None when there is none any more.

    `anchor` is when the timer was set: intervals count from it.
    """
    due = _next(settings, anchor, after)
    end = settings.expiration_epoch_second
    return None if due is None or (end is not None and due > end * 1000) else due


def _next(settings: TimerSettings, anchor: int, after: int) -> int | None:
    match settings.type:
        case "ONCE":
            due = (settings.execution_epoch_second or 0) * 1000
            return due if due > after else None
        case "INTERVAL":
            length = _UNITS[settings.interval_time_unit or "DAYS"] * (settings.interval_time or 1)
            return anchor + max((after - anchor) // length + 1, 1) * length
        case "SCHEDULE":
            zone = ZoneInfo(settings.timezone or "UTC")
            times = _scheduled(settings.rules or (), zone, after)
            return min((one for one in times if one > after), default=None)


def _scheduled(rules: Iterable[TimerRule], zone: ZoneInfo, after: int) -> Iterator[int]:
    today = from_ms(after).astimezone(zone).date()
    for offset in _AROUND:
        day = today + timedelta(days=offset)
        for rule in rules:
            if not rule.days_of_week or _DAYS[day.weekday()] in rule.days_of_week:
                yield to_ms(datetime.combine(day, time(rule.hour, rule.minute), zone))


class TimerDeployments(Deployments):
    """Keeps timers in step with flows."""

    def __init__(self, store: TimerStore, now: Callable[[], int]) -> None:
        """`now` gives ms since 1970."""
        self._store = store
        self._now = now

    async def apply(
        self, tenant: str, flow_id: int, deployed: Deployed | None, session: Session
    ) -> None:
        """Set the timer of a flow that runs; one with the same settings goes on as it was."""
        if deployed is None or deployed.component != SimpleTimer.name:
            await self._store.remove(tenant, flow_id, session)
            return
        anchor = self._now()
        due = next_due(settings_of(deployed), anchor, anchor)
        known = await self._store.get(flow_id, session)
        if known is not None and known[0] == encoded_settings(deployed):
            _, anchor, due = known
        await self._store.put(deployed, anchor, due, session)


class TimerRunner:
    """Makes runs of what is due."""

    def __init__(self, store: TimerStore, engine: Engine, now: Callable[[], int]) -> None:
        """`now` gives ms since 1970."""
        self._store = store
        self._engine = engine
        self._now = now

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            try:
                while (pause := await self._pause()) <= 0:
                    await self.fire()
            except (StoreError, ThingwayError) as error:
                log.warning("timers have to wait: %s", error)
                pause = PERIOD
            await asyncio.sleep(max(pause, LEAST))

    async def fire(self) -> int:
        """Begin some of the runs that are due; how many timers they were of."""
        timers = await self._store.claim(self._now(), AT_ONCE)
        if timers:
            starts = [_start(timer) for timer in timers]
            late = {start.flow.flow_id for start in await admitted(self._engine, starts)}
            begun = [timer for timer in timers if timer.flow.flow_id not in late]
            now = self._now()
            if begun:
                # Times that were missed meanwhile are passed over.
                dues = [next_due(one.settings, one.anchor, max(now, one.due)) for one in begun]
                await self._store.advance(list(zip(begun, dues, strict=True)))
        return len(timers)

    async def _pause(self) -> float:
        """Seconds until the next look; none are left when a timer is due."""
        due = await self._store.next_due(self._now())
        return PERIOD if due is None else min((due - self._now()) / 1000, PERIOD)


def _start(timer: Timer) -> Start:
    """A run of what is due, with which a trace may begin."""
    with begin_trace("timer", SpanKind.PRODUCER) as span:
        return Start(timer.flow, timer.entered, replace(timer.cause, trace=span_header(span)))
