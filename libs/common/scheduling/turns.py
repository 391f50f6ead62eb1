"""Endless jobs of a process: with pauses, or for all tenants, which take turns."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial

import msgspec
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from libs.common.errors import ThingwayError
from libs.common.jobs import NamedTasks, wait_for_event
from libs.common.scheduling.scheduler import FairScheduler
from libs.common.store.mongo import StoreError
from libs.common.store.redis import RedisError
from libs.common.telemetry.logs import name_lines

log = logging.getLogger(__name__)

DEADLINE = 900.0
"""Seconds after which a step is cancelled; it must have hung, because all waits in steps end
sooner."""
_END = object()

Steps = AsyncGenerator[None, None]
"""The job of one tenant, which yields wherever other tenants may take a turn."""
AWAY = (StoreError, RedisError, NatsError, APIError, ThingwayError, OSError, msgspec.DecodeError)
"""The errors of a job while a database, the bus or another service does not answer."""


async def repeat(work: Callable[[], Awaitable[None]], seconds: float, late: str) -> None:
    """Run `work` for ever with pauses; `late` begins the log line of a failure."""
    while True:
        try:
            await work()
        except AWAY as error:
            log.warning("%s: %s", late, str(error)[:500] or repr(error))
        await asyncio.sleep(seconds)


async def take_turns(
    name: str,
    workers: int,
    tenants: Callable[[], Awaitable[Iterable[str]]],
    steps: Callable[[str], Steps],
    period: float,
    wake: asyncio.Event | None = None,
) -> None:
    """Run the steps of tenants for ever; each step occupies one of `workers` in fair turns.

    `tenants` lists the tenants with steps to run, every `period` seconds and whenever `wake` is
    set. At most one step of a tenant runs at a time. A tenant whose step fails is retried with the
    next list.
    """
    scheduler, working, wake = FairScheduler(name, workers), NamedTasks(), wake or asyncio.Event()
    again: set[str] = set()

    async def run_tenant(tenant: str) -> None:
        again.add(tenant)
        while tenant in again:
            again.remove(tenant)
            await _run_steps(name, scheduler, tenant, steps)

    try:
        while True:
            woken = wake.is_set()
            wake.clear()
            try:
                for tenant in await tenants():
                    begun = working.start(f"{name} for {tenant}", partial(run_tenant, tenant))
                    if woken and not begun:  # the running steps may have missed the new data
                        again.add(tenant)
            except AWAY as error:
                log.warning("%s waits: %s", name, str(error)[:500] or repr(error))
            await wait_for_event(wake, period)
    finally:
        await working.stop()


async def _run_steps(
    name: str, scheduler: FairScheduler, tenant: str, steps: Callable[[str], Steps]
) -> None:
    """Run the steps of a tenant, each in its own turn."""
    name_lines(tenant=tenant)
    try:
        async with aclosing(steps(tenant)) as each:
            more = True
            while more:
                async with scheduler.slot(tenant), asyncio.timeout(DEADLINE):
                    more = await anext(each, _END) is not _END
    except AWAY as error:
        log.warning("%s for %s waits: %s", name, tenant, str(error)[:500] or repr(error))
