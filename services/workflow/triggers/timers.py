"""Makes runs of due times, in every replica at once. Times are ms since 1970.

A run is recorded before its timer moves on, and a due time makes one run: a crash in between
is made good by whoever claims the timer next. What came due while no replica ran is caught up
with by one run, whatever the number of times that were missed. A run for which there is no room
waits with its timer, which keeps its claim so long and holds up no other.

A time of day that a change of clocks leaves out is due as long after the change as it would
have been after the day's last hour before it (02:30 becomes 03:30); one that comes twice is
due the first time only.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from msgspec.structs import replace
from opentelemetry.trace import SpanKind

from libs.common.clock import from_ms, to_ms
from libs.common.errors import ThingwayError
from libs.common.store.mongo import Session, StoreError
from libs.common.telemetry.tracing import door, header_of
from services.workflow.engine.runner import Engine, Start, admitted
from services.workflow.flows.model import Deployments
from services.workflow.nodes.simple_timer import SimpleTimer, TimerRule, TimerSettings
from services.workflow.runs.model import Deployed
from services.workflow.triggers.timer_store import Timer, TimerStore, encoded_settings, settings_of

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
    with door("timer", SpanKind.PRODUCER) as span:
        return Start(timer.flow, timer.entered, replace(timer.cause, trace=header_of(span)))
