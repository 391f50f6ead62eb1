"""What the two processes of the service share: clients, and what reports and commands need."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from libs.common.bus import Bus, Outbox
from libs.common.settings import load
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from libs.common.telemetry import Telemetry, start_telemetry
from services.device.commands.store import CommandStore
from services.device.history.partitions import Partitions
from services.device.migrations import MIGRATIONS
from services.device.reports.latest import LatestValues
from services.device.reports.ledger import Ledger
from services.device.settings import DeviceSettings
from services.device.things import ThingDirectory

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Base:
    """Clients of one process, and the pieces that both processes use."""

    settings: DeviceSettings
    telemetry: Telemetry
    mongo: Mongo
    bus: Bus
    things: ThingDirectory
    outbox: Outbox
    partitions: Partitions
    latest: LatestValues
    ledger: Ledger
    commands: CommandStore


@asynccontextmanager
async def connected(name: str) -> AsyncIterator[Base]:
    """Connect, migrate, and close in order at the end."""
    settings = load(DeviceSettings)
    telemetry = start_telemetry(name)
    mongo = Mongo(settings.mongo_url, settings.mongo_database or "thingway_device")
    bus = await Bus.connect(
        settings.nats_url,
        user=settings.nats_user,
        password=settings.nats_password,
        name=name,
        streams=True,
    )
    try:
        await migrate(mongo.database, MIGRATIONS)
        things = ThingDirectory(mongo.database)
        await things.watch(bus)
        yield Base(
            settings=settings,
            telemetry=telemetry,
            mongo=mongo,
            bus=bus,
            things=things,
            outbox=Outbox(mongo.database, bus),
            partitions=Partitions(mongo.database),
            latest=LatestValues(mongo.database),
            ledger=Ledger(mongo.database),
            commands=CommandStore(mongo.database),
        )
    finally:
        await bus.drain()
        mongo.close()
        telemetry.shutdown()


@asynccontextmanager
async def running(*jobs: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run endless jobs beside the service; end them with it, and it with one that fails.

    A process that serves and does not work would look ready; one that ends is started again.
    """
    tasks = [asyncio.ensure_future(job) for job in jobs]
    for task in tasks:
        task.add_done_callback(_end_process)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _end_process(job: "asyncio.Task[None]") -> None:
    if not job.cancelled() and job.exception() is not None:
        log.critical("a job failed, the process ends", exc_info=job.exception())
        signal.raise_signal(signal.SIGTERM)
