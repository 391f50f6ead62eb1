"""The composition of `management`."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from litestar import Litestar

from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.contracts.integrations import GetIntegrations, Manifest
from libs.common.contracts.mqtt import MQTT_WEBSOCKET_PATH
from libs.common.contracts.names import DescribeIntegrations, ReadResource
from libs.common.device_client import DeviceClient
from libs.common.http import ServiceDescription, create_app, serve
from libs.common.http.outgoing import parse_networks
from libs.common.identity import HeaderVerifier
from libs.common.identity.grants import GrantReader
from libs.common.identity.seal import Seal
from libs.common.jobs import run_in_background
from libs.common.limits.tenants import LimitsCache
from libs.common.process import connect_process
from libs.common.store.mongo import Mongo
from libs.common.store.redis import Redis, connect_redis
from libs.common.telemetry import Telemetry
from services.management import integrations as running_integrations
from services.management import resources as uploads
from services.management.builtin import wiring as builtin_wiring
from services.management.dashboards import wiring as dashboards_wiring
from services.management.live import wiring as live_wiring
from services.management.live.sockets import LiveSocketProtocol
from services.management.migrations import MIGRATIONS
from services.management.networks import settings as network_settings
from services.management.pictures import PUBLIC_PATHS, picture
from services.management.settings import ManagementSettings


def build_app(
    settings: ManagementSettings, mongo: Mongo, redis: Redis, bus: Bus, telemetry: Telemetry
) -> Litestar:
    """Return the application on connected clients."""
    rpc_client, rpc_server = RpcClient(bus), RpcServer(bus, "management")
    devices, grants = DeviceClient(rpc_client), GrantReader(rpc_client)
    limits, seal = LimitsCache(rpc_client), Seal(settings.secrets_key)
    resource_store = uploads.ResourceStore(mongo.database, limits)
    resources = uploads.ResourceService(resource_store, seal)
    rpc_server.offer("read_resource", ReadResource, resources.read_part)
    registry = running_integrations.IntegrationRegistry(
        running_integrations.IntegrationStore(mongo.database)
    )
    integrations = running_integrations.IntegrationService(registry, devices, grants)
    rpc_server.offer_each("announce_integration", Manifest, registry.announce)
    rpc_server.offer("get_integrations", GetIntegrations, registry.list_all)
    rpc_server.offer("describe_integrations", DescribeIntegrations, integrations.describe)
    dashboards = dashboards_wiring.wire(
        mongo=mongo,
        bus=bus,
        rpc_client=rpc_client,
        rpc_server=rpc_server,
        grants=grants,
        limits=limits,
        resources=resource_store,
        devices=devices,
    )
    live = live_wiring.wire(
        redis=redis,
        bus=bus,
        rpc_client=rpc_client,
        grants=grants,
        limits=limits,
        devices=devices,
    )
    builtin = builtin_wiring.wire(
        database=mongo.database,
        bus=bus,
        rpc_client=rpc_client,
        registry=registry,
        seal=seal,
        allowed_networks=parse_networks(settings.outgoing_networks),
    )

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await rpc_server.start()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(rpc_server.stop)
            for host in builtin.hosts:
                await stack.enter_async_context(host)
            await stack.enter_async_context(live.running())
            jobs = (dashboards.consumer.run(), builtin.leader.run())
            await stack.enter_async_context(run_in_background(*jobs))
            yield

    return create_app(
        ServiceDescription(
            name="management",
            title="Thingway management",
            routes=[
                dashboards.router,
                uploads.create_router(resources),
                running_integrations.create_router(integrations),
                network_settings.create_router(mongo.database, rpc_client),
                picture,
                live.router,
            ],
            verifier=HeaderVerifier(settings.internal_public_key),
            telemetry=telemetry,
            checks={"mongo": mongo.ping, "nats": bus.check},
            public_paths=PUBLIC_PATHS
            | uploads.PUBLIC_PATHS
            | network_settings.PUBLIC_PATHS
            | {MQTT_WEBSOCKET_PATH},
            lifespan=lifespan,
        )
    )


async def main() -> None:
    """Run the service until SIGTERM."""
    clients = connect_process(ManagementSettings, "management", MIGRATIONS)
    async with (
        clients as (settings, telemetry, mongo, bus),
        connect_redis(settings.redis_url) as redis,
    ):
        app = build_app(settings, mongo, redis, bus, telemetry)
        await serve(app, settings, websocket=LiveSocketProtocol)
