"""The wiring of `device`, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from litestar import Litestar, Router

from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.http import Service, create_app, serve
from libs.common.http.guards import applications
from libs.common.identity import HeaderVerifier
from libs.common.jobs import running
from libs.common.limits.meter import MessageMeter
from libs.common.limits.use import report_use
from libs.common.store.ids import IdAllocator
from libs.common.store.lease import Leader
from libs.common.store.lifetime import keep_for
from services.device.commands.delivery import Delivery
from services.device.commands.polling import ROUTER as POLLING_ROUTES
from services.device.commands.polling import CommandPolls
from services.device.commands.provision import CommandProvisioner
from services.device.commands.routes import ROUTER as COMMAND_ROUTES
from services.device.commands.service import CommandService
from services.device.console.wiring import build_console
from services.device.devices.keys import CredentialsOverRpc
from services.device.devices.open_api import ROUTES as DEVICE_ROUTES
from services.device.devices.service import DeviceService
from services.device.entity_values.wiring import Parts, build_values
from services.device.integrations.asking import IntegrationClient
from services.device.integrations.carrying import CommandCarrier
from services.device.products.open_api import ROUTES as PRODUCT_ROUTES
from services.device.products.rps.open_api import ROUTES as RPS_ROUTES
from services.device.products.rps.service import RpsService
from services.device.products.rps.store import RpsStore
from services.device.products.service import ProductService
from services.device.reports.edge.routes import ROUTER as EDGE_ROUTES
from services.device.reports.edge.service import EdgeService
from services.device.reports.history.routes import property_history
from services.device.reports.history.service import HistoryService
from services.device.reports.history.store import HistoryStore
from services.device.reports.presence.connections import SystemAccount
from services.device.reports.presence.http import HttpPresence
from services.device.reports.presence.rpc import offer_connections
from services.device.reports.presence.store import PresenceStore
from services.device.reports.presence.watch import PresenceWatch
from services.device.settings import DeviceSettings
from services.device.things.access import Things
from services.device.wiring import Base, connected

OPEN_API = Router(
    "/",
    guards=[applications],
    route_handlers=[
        *PRODUCT_ROUTES,
        *DEVICE_ROUTES,
        *RPS_ROUTES,
        property_history,
        COMMAND_ROUTES,
    ],
)
"""The device open API: for applications."""


def build_app(base: Base, system: Bus) -> Litestar:
    """Put the service together on clients that are connected; `system` is NATS's own account."""
    settings, mongo, database = base.settings, base.mongo, base.mongo.database
    things = Things(base.devices, base.things)
    client, rpc = RpcClient(base.bus), RpcServer(base.bus, "device")
    products = ProductService(base.products, base.tsls)
    console = build_console(mongo, base.devices, products, client, rpc)
    integrations = IntegrationClient(client)
    carrier = CommandCarrier(base.devices, console.shared.integrations, integrations, base.commands)
    commands = CommandService(
        things=things,
        store=base.commands,
        latest=base.latest,
        ids=IdAllocator(database, "tasks"),
        carrier=carrier,
        life=settings.command_life,
    )
    devices = DeviceService(
        base.devices,
        base.latest,
        IdAllocator(database, "things"),
        products,
        CommandProvisioner(base.things, commands),
        CredentialsOverRpc(client),
    )
    presence = PresenceStore(mongo, base.outbox, base.devices)
    heard = HttpPresence(presence, settings.http_offline_after)
    polls = CommandPolls(base.bus, things, base.commands, heard)
    edge = EdgeService(
        bus=base.bus,
        things=things,
        presence=heard,
        meter=MessageMeter(base.limits),
        retention_days=settings.retention_days,
    )
    pages = HistoryStore(base.devices, base.partitions, base.retention)
    history = HistoryService(pages, settings.retention_days)
    delivery = Delivery(devices=base.devices, bus=base.bus, commands=base.commands, carrier=carrier)
    account = SystemAccount(system)
    watch = PresenceWatch(system=system, store=presence, account=account, wake=base.commands.wake)
    offer_connections(rpc, presence, account)
    values = build_values(
        Parts(
            base=base,
            shared=console.shared,
            client=client,
            rpc=rpc,
            things=things,
            commands=commands,
            products=products,
            presence=heard,
        )
    )

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await rpc.start()
        await polls.start()
        await report_use(base.bus, base.devices.used, "device")
        async with running(
            Leader(database, "outbox", base.outbox.sweep).run(),
            Leader(database, "delivery", delivery.run, life=5.0).run(),
            Leader(database, "presence", watch.run, life=5.0).run(),
        ):
            yield
        await rpc.stop()
        await polls.stop()
        await heard.stop()

    return create_app(
        Service(
            name="device",
            title="Thingway device open API",
            routes=[
                OPEN_API,
                EDGE_ROUTES,
                POLLING_ROUTES,
                *console.routes,
                *values.routes,
            ],
            verifier=HeaderVerifier(settings.internal_public_key),
            telemetry=base.telemetry,
            checks={"mongo": mongo.ping, "nats": base.bus.check, "nats-system": system.check},
            dependencies={
                "product_service": products,
                "device_service": devices,
                "rps_service": RpsService(RpsStore(mongo, base.limits)),
                "things": things,
                "history": history,
                "commands": commands,
                "edge": edge,
                "command_polls": polls,
                **console.dependencies,
                **values.dependencies,
            },
            lifespan=lifespan,
        )
    )


async def connect_system(settings: DeviceSettings) -> Bus:
    """Connect to NATS's system account, which tells of connections and closes them."""
    return await Bus.connect(
        settings.nats_url,
        user=settings.sys_nats_user,
        password=settings.sys_nats_password,
        name="device-presence",
    )


async def main() -> None:
    """Run the service until it is told to end."""
    async with connected("device") as base:
        settings = base.settings
        days = max(settings.command_retention_days, settings.retention_days)
        await keep_for(base.mongo.database, "commands", "finishedAt", days)
        system = await connect_system(settings)
        try:
            await serve(build_app(base, system), settings)
        finally:
            await system.drain()
