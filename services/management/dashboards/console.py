"""The operations of `/dashboard` and `/canvas`."""

from dataclasses import dataclass

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import RequestPrincipal, build_dependencies
from libs.common.http.console import delete, get, post, put
from libs.common.http.guards import allow_holders, users
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.http.streaming import StreamedAnswer
from libs.common.identity.functions import Function
from services.management.dashboards.canvas_service import CanvasService
from services.management.dashboards.model import PRESET_COVERS, PresetCover
from services.management.dashboards.schemas import (
    CanvasResponse,
    CanvasSummary,
    CreateCanvas,
    CreateDashboard,
    DashboardResponse,
    DashboardTile,
    DeleteCanvases,
    DeleteDashboards,
    MainCanvas,
    SaveCanvas,
    SearchDashboards,
    UpdateDashboard,
)
from services.management.dashboards.service import DashboardService

DashboardServiceDependency = NamedDependency[DashboardService]
CanvasServiceDependency = NamedDependency[CanvasService]


@dataclass(frozen=True)
class DashboardHandlerDependencies:
    """Dependencies of the handlers."""

    dashboards: DashboardService
    canvases: CanvasService


@post(
    "/dashboard",
    guards=[allow_holders(Function.DASHBOARD_ADD)],
    example={
        "name": "Roofs",
        "cover_type": "DEFAULT_IMAGE",
        "cover_data": "public/cover-purple.svg",
    },
)
async def create_dashboard(
    principal: RequestPrincipal,
    dashboards: DashboardServiceDependency,
    data: JSONBody[CreateDashboard],
) -> MainCanvas:
    """Create an empty dashboard, which every role of its creator may see."""
    return await dashboards.create(principal, data)


@put("/dashboard/{dashboard_id:str}", guards=[allow_holders(Function.DASHBOARD_EDIT)])
async def update_dashboard(
    principal: RequestPrincipal,
    dashboards: DashboardServiceDependency,
    dashboard_id: PathId,
    data: JSONBody[UpdateDashboard],
) -> dict[str, str]:
    """Set name, description and cover, or replace the widgets of the main canvas."""
    await dashboards.update(principal, dashboard_id, data)
    return {}


@delete(
    "/dashboard/{dashboard_id:str}",
    guards=[allow_holders(Function.DASHBOARD_EDIT, Function.DASHBOARD_DELETE)],
)
async def delete_dashboard(
    principal: RequestPrincipal, dashboards: DashboardServiceDependency, dashboard_id: PathId
) -> dict[str, str]:
    """Delete a dashboard with its canvases and grants."""
    await dashboards.delete(principal, dashboard_id)
    return {}


@post("/dashboard/batch-delete", guards=[allow_holders(Function.DASHBOARD_DELETE)])
async def delete_dashboards(
    principal: RequestPrincipal,
    dashboards: DashboardServiceDependency,
    data: JSONBody[DeleteDashboards],
) -> None:
    """Delete dashboards with their canvases and grants; unknown ones are ignored."""
    await dashboards.delete_many(principal, data)


@get("/dashboard/dashboards", guards=[allow_holders(Function.DASHBOARD_VIEW)])
async def list_dashboards(
    principal: RequestPrincipal, dashboards: DashboardServiceDependency
) -> StreamedAnswer[list[DashboardResponse]]:
    """List the dashboards that the caller sees, with their widgets, the oldest first."""
    return await dashboards.stream_visible(principal)


@post("/dashboard/search", guards=[allow_holders(Function.DASHBOARD_VIEW)])
async def search_dashboards(
    principal: RequestPrincipal,
    dashboards: DashboardServiceDependency,
    data: JSONBody[SearchDashboards | None] = None,
) -> list[DashboardTile]:
    """List the dashboards that the caller sees: the caller's home first, then the newest."""
    search = data or SearchDashboards()
    return await dashboards.search(principal, search)


@get("/dashboard/covers", guards=[users])
async def list_dashboard_covers() -> list[PresetCover]:
    """List the preset cover pictures of dashboards."""
    return PRESET_COVERS


@get("/dashboard/main-canvas", guards=[allow_holders(Function.DASHBOARD_VIEW)])
async def get_main_canvas(
    principal: RequestPrincipal, dashboards: DashboardServiceDependency
) -> MainCanvas:
    """Return the canvas of the caller's home, else of the newest dashboard; empty without any."""
    return await dashboards.get_main_canvas(principal)


@post("/dashboard/{dashboard_id:str}/home", guards=[users])
async def set_home_dashboard(
    principal: RequestPrincipal, dashboards: DashboardServiceDependency, dashboard_id: PathId
) -> None:
    """Make a dashboard the caller's home, in place of any other."""
    await dashboards.set_home(principal, dashboard_id)


@post("/dashboard/{dashboard_id:str}/cancel-home", guards=[users], summary="Unset home dashboard")
async def end_home_dashboard(
    principal: RequestPrincipal, dashboards: DashboardServiceDependency, dashboard_id: PathId
) -> None:
    """Remove a dashboard as the caller's home."""
    await dashboards.unset_home(principal, dashboard_id)


@get(
    "/canvas/{canvas_id:str}", guards=[allow_holders(Function.DASHBOARD_VIEW, Function.DEVICE_VIEW)]
)
async def get_canvas(
    principal: RequestPrincipal, canvases: CanvasServiceDependency, canvas_id: PathId
) -> CanvasResponse:
    """Return a canvas of a dashboard or a device.

    The canvas of a dashboard requires `dashboard.view`, that of a device `device.view` or
    `dashboard.view`.
    """
    return await canvases.get(principal, canvas_id)


@put(
    "/canvas/{canvas_id:str}",
    guards=[allow_holders(Function.DASHBOARD_EDIT, Function.DEVICE_EDIT)],
    example={"name": "Roof page", "widgets": [{"data": {"type": "text"}}]},
)
async def save_canvas(
    principal: RequestPrincipal,
    canvases: CanvasServiceDependency,
    canvas_id: PathId,
    data: JSONBody[SaveCanvas],
) -> None:
    """Replace the content of a canvas; omitted widgets are deleted.

    The canvas of a dashboard requires `dashboard.edit`, that of a device `device.edit`.
    """
    await canvases.save(principal, canvas_id, data)


@get("/dashboard/{dashboard_id:str}/canvas", guards=[allow_holders(Function.DASHBOARD_VIEW)])
async def list_canvases(
    principal: RequestPrincipal, canvases: CanvasServiceDependency, dashboard_id: PathId
) -> list[CanvasSummary]:
    """List the canvases of a dashboard: the main one first, then the oldest."""
    return await canvases.list_dashboard_canvases(principal, dashboard_id)


@post(
    "/dashboard/{dashboard_id:str}/canvas",
    guards=[allow_holders(Function.DASHBOARD_EDIT)],
    example={"name": "Second page"},
)
async def add_canvas(
    principal: RequestPrincipal,
    canvases: CanvasServiceDependency,
    dashboard_id: PathId,
    data: JSONBody[CreateCanvas],
) -> CanvasSummary:
    """Add an empty canvas to a dashboard, in addition to its main canvas."""
    return await canvases.create(principal, dashboard_id, data)


@post(
    "/dashboard/{dashboard_id:str}/canvas/batch-delete",
    guards=[allow_holders(Function.DASHBOARD_EDIT)],
)
async def delete_canvases(
    principal: RequestPrincipal,
    canvases: CanvasServiceDependency,
    dashboard_id: PathId,
    data: JSONBody[DeleteCanvases],
) -> None:
    """Delete additional canvases of a dashboard; unknown ids are ignored.

    The main canvas cannot be deleted.
    """
    await canvases.delete(principal, dashboard_id, data)


def create_router(handlers: DashboardHandlerDependencies) -> Router:
    """Return the router of the operations, with their dependencies."""
    return route_operations(
        globals(), "/", dependencies=build_dependencies(handlers), tags=["Dashboards"]
    )
