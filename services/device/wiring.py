"""What the two processes of the service share: clients, and what reports and commands need."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from libs.common.bus import Bus, Outbox, RpcClient
from libs.common.clients import connected
from libs.common.limits.tenants import KnownLimits
from libs.common.store.mongo import Mongo
from libs.common.telemetry import Telemetry
from services.device.commands.store import CommandStore
from services.device.migrations import MIGRATIONS
from services.device.products.store import ProductStore
from services.device.reports.frames.store import FrameStore
from services.device.reports.history.partitions import Partitions
from services.device.reports.retention.days import Retention
from services.device.settings import DeviceSettings
from services.device.things import ThingDirectory
from services.device.things.latest import LatestValues
from services.device.things.store import DeviceStore
from services.device.things.tsls import Tsls


@dataclass(frozen=True)
class Base:
    """Clients of one process, and the pieces that both processes use."""

    settings: DeviceSettings
    telemetry: Telemetry
    mongo: Mongo
    bus: Bus
    devices: DeviceStore
    tsls: Tsls
    things: ThingDirectory
    products: ProductStore
    outbox: Outbox
    partitions: Partitions
    latest: LatestValues
    commands: CommandStore
    frames: FrameStore
    rpc: RpcClient
    limits: KnownLimits
    retention: Retention


def base_of(settings: DeviceSettings, telemetry: Telemetry, mongo: Mongo, bus: Bus) -> Base:
    """Make the pieces on clients that are connected."""
    database, rpc = mongo.database, RpcClient(bus)
    outbox, limits, latest = Outbox(database, bus), KnownLimits(rpc), LatestValues(database)
    devices, tsls = DeviceStore(mongo, outbox, limits, latest), Tsls(database)
    products = ProductStore(mongo, devices, tsls, limits)
    return Base(
        settings=settings,
        telemetry=telemetry,
        mongo=mongo,
        bus=bus,
        devices=devices,
        tsls=tsls,
        things=ThingDirectory(database, devices, tsls),
        products=products,
        outbox=outbox,
        partitions=Partitions(database),
        latest=latest,
        commands=CommandStore(mongo, outbox),
        frames=FrameStore(mongo),
        rpc=rpc,
        limits=limits,
        retention=Retention(products, limits, settings.retention_days),
    )


@asynccontextmanager
async def started(process: str) -> AsyncIterator[Base]:
    """A process of the service with what it runs on."""
    async with connected(DeviceSettings, "device", MIGRATIONS, process=process) as clients:
        base = base_of(*clients)
        await base.things.watch(base.bus)
        yield base
