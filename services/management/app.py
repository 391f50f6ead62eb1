"""The wiring of `management`, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from litestar import Litestar

from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.clients import connected
from libs.common.contracts.access import ResourceType
from libs.common.contracts.integrations import GetIntegrations, Manifest
from libs.common.contracts.mqtt import WS_PATH
from libs.common.contracts.names import (
    AskCanvas,
    DescribeDashboards,
    DescribeIntegrations,
    ReadResource,
)
from libs.common.http import Service, create_app, serve
from libs.common.http.outgoing import networks_of
from libs.common.identity import HeaderVerifier
from libs.common.identity.grants import GrantReader, Sharing
from libs.common.identity.seal import Seal
from libs.common.integrations import IntegrationHost
from libs.common.jobs import running
from libs.common.limits.tenants import KnownLimits
from libs.common.limits.use import report_use
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Mongo
from libs.common.store.redis import Redis, connect_redis
from libs.common.telemetry import Telemetry
from services.management.builtin.direct import Direct
from services.management.builtin.hosting import Hosting
from services.management.builtin.networks.hooks import PATHS as HOOK_PATHS
from services.management.builtin.networks.hooks import Hooks, take_hook
from services.management.builtin.system import System
from services.management.canvases.messages import ThingsOverRpc as CanvasThings
from services.management.canvases.messages import consumer_of_ends
from services.management.canvases.routes import ROUTER as CANVAS_ROUTES
from services.management.canvases.service import CanvasService
from services.management.canvases.store import CanvasStore
from services.management.dashboards.routes import ROUTER as DASHBOARD_ROUTES
from services.management.dashboards.service import DashboardService
from services.management.dashboards.store import DashboardStore
from services.management.integrations.messages import ThingsOverRpc
from services.management.integrations.registry import Registry
from services.management.integrations.routes import ROUTER as INTEGRATION_ROUTES
from services.management.integrations.service import IntegrationService
from services.management.integrations.store import IntegrationStore
from services.management.live.admission import Admission
from services.management.live.closing import Turns
from services.management.live.exchange import Exchange
from services.management.live.hub import Hub
from services.management.live.messages import change_consumer
from services.management.live.mqtt import mqtt
from services.management.live.numbers import Numbers
from services.management.live.protocol import PatientProtocol
from services.management.live.routes import live
from services.management.live.service import Subscriptions
from services.management.live.store import Credentials, Judge
from services.management.live.watch import Watch
from services.management.migrations import MIGRATIONS
from services.management.pictures import PATHS, picture
from services.management.resources.routes import PATHS as RESOURCE_PATHS
from services.management.resources.routes import ROUTER as RESOURCE_ROUTES
from services.management.resources.service import ResourceService
from services.management.resources.store import ResourceStore
from services.management.settings import ManagementSettings

ID_BLOCK = 100
"""Ids of dashboards, canvases and widgets; a restart wastes at most this many."""


def build_app(
    settings: ManagementSettings, mongo: Mongo, redis: Redis, bus: Bus, telemetry: Telemetry
) -> Litestar:
    """Put the service together on clients that are connected."""
    rpc_client = RpcClient(bus)
    grants = GrantReader(rpc_client)
    limits, seal = KnownLimits(rpc_client), Seal(settings.secrets_key)
    resource_store = ResourceStore(mongo.database, limits)
    resources = ResourceService(resource_store, seal)
    dashboard_store = DashboardStore(mongo, limits, resource_store)
    canvas_store = CanvasStore(mongo, resource_store)
    next_id = IdAllocator(mongo.database, "dashboards", ID_BLOCK).take
    dashboards = DashboardService(
        dashboard_store,
        Sharing(rpc_client, grants, ResourceType.DASHBOARD),
        next_id,
        canvas_store.forget_dashboards,
    )
    canvases = CanvasService(
        canvas_store, dashboard_store, grants, CanvasThings(rpc_client), next_id
    )
    ends = consumer_of_ends(bus, canvas_store.forget_devices, dashboard_store.forget_users)
    registry = Registry(IntegrationStore(mongo.database))
    integrations = IntegrationService(registry, ThingsOverRpc(rpc_client), grants)
    rpc = RpcServer(bus, "management")
    rpc.offer("describe_dashboards", DescribeDashboards, dashboards.describe)
    rpc.offer("canvas_of_device", AskCanvas, canvases.of_device)
    rpc.offer("read_resource", ReadResource, resources.part)
    rpc.offer_each("announce_integration", Manifest, registry.announce)
    rpc.offer("get_integrations", GetIntegrations, registry.known)
    rpc.offer("describe_integrations", DescribeIntegrations, integrations.describe)
    turns = Turns()
    exchange = Exchange(Numbers(rpc_client), turns)
    hub = Hub(exchange)
    credentials, judge = Credentials(redis), Judge(rpc_client, grants)
    admission = Admission(credentials, judge, limits)
    subscriptions = Subscriptions(hub, rpc_client, admission, turns)
    watch = Watch(hub, credentials, judge, subscriptions)
    hosts = [IntegrationHost(bus, one) for one in (System(), Direct())]
    hosting = Hosting(
        mongo.database,
        bus,
        rpc_client,
        seal=seal,
        allowed=networks_of(settings.outgoing_networks),
    )

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await rpc.start()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(rpc.stop)
            for host in hosts:
                await stack.enter_async_context(host)
            await report_use(bus, admission.use)
            stack.push_async_callback(exchange.stop)
            jobs = (change_consumer(bus, hub).run(), watch.run(), ends.run())
            await stack.enter_async_context(running(*jobs, hosting.leader.run()))
            yield

    return create_app(
        Service(
            name="management",
            title="Thingway management",
            routes=[
                DASHBOARD_ROUTES,
                CANVAS_ROUTES,
                RESOURCE_ROUTES,
                INTEGRATION_ROUTES,
                take_hook,
                picture,
                live,
                mqtt,
            ],
            verifier=HeaderVerifier(settings.internal_public_key),
            telemetry=telemetry,
            checks={"mongo": mongo.ping, "nats": bus.check},
            dependencies={
                "dashboards": dashboards,
                "canvases": canvases,
                "resources": resources,
                "integrations": integrations,
                "network_hooks": Hooks(mongo.database, rpc_client),
                "hub": hub,
                "turns": turns,
                "subscriptions": subscriptions,
                "grants": grants,
                "admission": admission,
            },
            open_paths=PATHS | RESOURCE_PATHS | HOOK_PATHS | {WS_PATH},
            lifespan=lifespan,
        )
    )


async def main() -> None:
    """Run the service until it is told to end."""
    clients = connected(ManagementSettings, "management", MIGRATIONS)
    async with (
        clients as (settings, telemetry, mongo, bus),
        connect_redis(settings.redis_url) as redis,
    ):
        app = build_app(settings, mongo, redis, bus, telemetry)
        await serve(app, settings, websocket=PatientProtocol)
