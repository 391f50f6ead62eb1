"""Wiring of dashboards."""

from dataclasses import dataclass

from litestar import Router

from libs.common.bus import BatchConsumer, Bus, RpcClient, RpcServer
from libs.common.contracts.access import ResourceType
from libs.common.contracts.names import DescribeDashboards, GetDeviceCanvas
from libs.common.device_client import DeviceClient
from libs.common.identity.grants import GrantReader, ResourceTypeGrants
from libs.common.limits.tenants import LimitsCache
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Mongo
from services.management.dashboards.canvas_service import CanvasService
from services.management.dashboards.console import DashboardHandlerDependencies, create_router
from services.management.dashboards.events import create_deletion_consumer
from services.management.dashboards.service import DashboardService
from services.management.dashboards.store import CanvasStore, DashboardStore
from services.management.resources import ResourceStore

IDS_PER_ALLOCATION = 100
"""Ids of dashboards, canvases and widgets allocated at a time. A restart skips at most as many."""


@dataclass(frozen=True)
class DashboardComponents:
    """The router and the consumer of dashboards, which the process runs."""

    router: Router
    consumer: BatchConsumer


def wire(
    *,
    mongo: Mongo,
    bus: Bus,
    rpc_client: RpcClient,
    rpc_server: RpcServer,
    grants: GrantReader,
    limits: LimitsCache,
    resources: ResourceStore,
    devices: DeviceClient,
) -> DashboardComponents:
    """Create stores and services, and offer their operations to other services."""
    canvas_store = CanvasStore(mongo, resources)
    store = DashboardStore(mongo, limits, canvas_store, resources)
    next_id = IdAllocator(mongo.database, "dashboards", IDS_PER_ALLOCATION).allocate
    sharing = ResourceTypeGrants(rpc_client, grants, ResourceType.DASHBOARD)
    dashboards = DashboardService(store, sharing, next_id)
    canvases = CanvasService(canvas_store, store, dashboards, grants, devices, next_id)
    rpc_server.offer("describe_dashboards", DescribeDashboards, dashboards.describe)
    rpc_server.offer("canvas_of_device", GetDeviceCanvas, canvases.get_or_create_device_canvas)
    return DashboardComponents(
        router=create_router(DashboardHandlerDependencies(dashboards, canvases)),
        consumer=create_deletion_consumer(bus, store, canvas_store),
    )
