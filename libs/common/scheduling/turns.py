"""Endless jobs: `repeat` runs one with pauses, `take_turns` runs one for all tenants in turn."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
from contextlib import aclosing
from functools import partial

import msgspec
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from libs.common.errors import ThingwayError
from libs.common.jobs import NamedTasks, seconds_to_tick, wait_for_event
from libs.common.scheduling.scheduler import FairScheduler
from libs.common.store.mongo import StoreError
from libs.common.store.redis import RedisError
from libs.common.telemetry.logs import add_log_fields

log = logging.getLogger(__name__)

STEP_TIMEOUT_SECONDS = 900.0
"""Seconds after which a step is cancelled; it must have hung, because all waits in steps end
sooner."""
IDLE_PERIOD_SECONDS = 10.0
"""Seconds between two queries for work of an idle loop, unless an event wakes the loop."""
LINGER_SECONDS = 2.0
"""Seconds for which a woken loop queries often: the transaction that woke it may still be
running."""
_END = object()

TenantSteps = AsyncGenerator[None, None]
"""The job of one tenant, which yields wherever other tenants may take a turn."""
OUTAGE_ERRORS = (
    StoreError,
    RedisError,
    NatsError,
    APIError,
    ThingwayError,
    OSError,
    msgspec.DecodeError,
)
"""The errors of a job while a database, the bus or another service does not answer."""
ListUpcomingWork = Callable[[float], Awaitable[Collection[object]]]
"""Returns the work that is due within the given seconds, or the tenants with such work."""


class _LoopPace:
    """The pauses of a loop: `period` seconds while work is upcoming, else `IDLE_PERIOD_SECONDS`."""

    def __init__(
        self, period: float, wake: asyncio.Event | None, upcoming: ListUpcomingWork | None
    ) -> None:
        self._period, self._upcoming = period, upcoming
        self._wake = wake or asyncio.Event()
        self._is_busy, self._until = True, 0.0
        """`_until` is the monotonic time of the next query."""

    async def is_busy(self, *, woken: bool) -> bool:
        """Return whether work is upcoming; query it every `IDLE_PERIOD_SECONDS`."""
        now = time.monotonic()
        if woken and not self._is_busy:
            self._is_busy, self._until = True, now + LINGER_SECONDS
        elif self._upcoming is not None and now >= self._until:
            self._is_busy = True  # also when the next line raises
            seconds = seconds_to_tick(IDLE_PERIOD_SECONDS)
            self._is_busy = bool(await self._upcoming(seconds))
            self._until = now + seconds
        return self._is_busy

    def is_woken(self) -> bool:
        """Return whether the event was set since the last call."""
        woken = self._wake.is_set()
        self._wake.clear()
        return woken

    async def rest(self) -> None:
        """Wait until the next query; a wakeup ends the wait of an idle loop."""
        if self._upcoming is None:
            await wait_for_event(self._wake, seconds_to_tick(self._period))
        elif self._is_busy:
            await asyncio.sleep(seconds_to_tick(self._period))
        else:
            await wait_for_event(self._wake, self._until - time.monotonic())


async def repeat(
    work: Callable[[], Awaitable[None]],
    seconds: float,
    failure: str,
    wake: asyncio.Event | None = None,
    upcoming: ListUpcomingWork | None = None,
) -> None:
    """Run `work` for ever with pauses; `failure` begins the log line of a failure.

    `wake` ends a pause. With `upcoming`, `work` runs only while `upcoming` returns something, and
    for `LINGER_SECONDS` after `wake`; then `wake` ends a pause only if nothing is upcoming.
    """
    pace = _LoopPace(seconds, wake, upcoming)
    while True:
        try:
            if await pace.is_busy(woken=pace.is_woken()):
                await work()
        except OUTAGE_ERRORS as error:
            log.warning("%s: %s", failure, str(error)[:500] or repr(error))
        await pace.rest()


async def take_turns(
    name: str,
    workers: int,
    tenants: Callable[[], Awaitable[Iterable[str]]],
    steps: Callable[[str], TenantSteps],
    period: float,
    wake: asyncio.Event | None = None,
    upcoming: ListUpcomingWork | None = None,
) -> None:
    """Run the steps of tenants for ever; each step occupies one of `workers` in fair turns.

    `tenants` lists the tenants with steps to run, every `period` seconds and whenever `wake` is
    set; with `upcoming`, only when `repeat` would run. At most one step of a tenant runs at a time.
    A tenant whose step fails is retried with the next list.
    """
    scheduler, working = FairScheduler(name, workers), NamedTasks()
    again, pace = set[str](), _LoopPace(period, wake, upcoming)

    async def run_tenant(tenant: str) -> None:
        again.add(tenant)
        while tenant in again:
            again.remove(tenant)
            await _run_steps(name, scheduler, tenant, steps)

    try:
        while True:
            woken = pace.is_woken()
            try:
                due_tenants = await tenants() if await pace.is_busy(woken=woken) else ()
                for tenant in due_tenants:
                    begun = working.start(f"{name} for {tenant}", partial(run_tenant, tenant))
                    if (
                        woken and not begun
                    ):  # running steps may have read before the new data was written
                        again.add(tenant)
            except OUTAGE_ERRORS as error:
                log.warning("%s waits: %s", name, str(error)[:500] or repr(error))
            await pace.rest()
    finally:
        await working.stop()


async def _run_steps(
    name: str, scheduler: FairScheduler, tenant: str, steps: Callable[[str], TenantSteps]
) -> None:
    """Run the steps of a tenant, each in its own turn."""
    add_log_fields(tenant=tenant)
    try:
        async with aclosing(steps(tenant)) as each:
            more = True
            while more:
                async with scheduler.slot(tenant), asyncio.timeout(STEP_TIMEOUT_SECONDS):
                    more = await anext(each, _END) is not _END
    except OUTAGE_ERRORS as error:
        log.warning("%s for %s waits: %s", name, tenant, str(error)[:500] or repr(error))
