"""The foundation of both processes of the service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from libs.common.process import connect_process
from services.device.clients import Clients
from services.device.commands.store import CommandStore
from services.device.migrations import MIGRATIONS
from services.device.settings import DeviceSettings
from services.device.telemetry.latest_values import LatestValues
from services.device.things.wiring import ThingsPackage, wire_things


@dataclass(frozen=True, kw_only=True)
class Foundation:
    """The clients, the records of things, and two stores that need only clients."""

    clients: Clients
    values: LatestValues
    commands: CommandStore
    things: ThingsPackage


def wire_foundation(clients: Clients) -> Foundation:
    """Construct the foundation."""
    values = LatestValues(clients.mongo.database)
    return Foundation(
        clients=clients,
        values=values,
        commands=CommandStore(clients.mongo, clients.outbox, clients.wakeups),
        things=wire_things(clients, values=values),
    )


@asynccontextmanager
async def start_process(process: str) -> AsyncIterator[Foundation]:
    """Connect and migrate a process of the service; disconnect it at the end."""
    async with connect_process(
        DeviceSettings, "device", MIGRATIONS, process=process
    ) as connections:
        foundation = wire_foundation(Clients(*connections))
        await foundation.things.directory.watch(foundation.clients.bus)
        yield foundation
