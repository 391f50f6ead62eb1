"""What a process with a database runs on."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, NamedTuple, TypeVar

from libs.common.bus import Bus
from libs.common.settings import StoreSettings, load
from libs.common.store.migrations import Migration, migrate
from libs.common.store.mongo import Mongo
from libs.common.telemetry import Telemetry, start_telemetry

S = TypeVar("S", bound=StoreSettings)


class Clients(NamedTuple, Generic[S]):
    """The settings of a process, and its clients."""

    settings: S
    telemetry: Telemetry
    mongo: Mongo
    bus: Bus


@asynccontextmanager
async def connected(
    kind: type[S], service: str, migrations: Sequence[Migration], *, process: str = ""
) -> AsyncIterator[Clients[S]]:
    """Connect and migrate a process of `service`, by default its only one; close in order."""
    settings, process = load(kind), process or service
    async with AsyncExitStack() as stack:
        telemetry = start_telemetry(process)
        stack.callback(telemetry.shutdown)
        mongo = Mongo(settings.mongo_url, settings.mongo_database or f"thingway_{service}")
        stack.push_async_callback(mongo.close)
        bus = await Bus.connect(
            settings.nats_url,
            user=settings.nats_user,
            password=settings.nats_password,
            name=process,
            ca_file=settings.ca_file,
            streams=settings.stream_replicas,
        )
        stack.push_async_callback(bus.drain)
        await migrate(mongo.database, migrations)
        yield Clients(settings, telemetry, mongo, bus)
