"""`/dashboard`: dashboards, their covers, and which one a user begins with."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import Requester
from libs.common.http.console import delete, get, post, put
from libs.common.http.guards import holders, users
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.http.streaming import Streamed
from libs.common.identity.functions import Function
from services.management.dashboards.covers import PRESETS, PresetCover
from services.management.dashboards.schemas import (
    CreateDashboard,
    DeleteDashboards,
    FoundDashboard,
    MainCanvas,
    SearchDashboards,
    ShownDashboard,
    UpdateDashboard,
)
from services.management.dashboards.service import DashboardService

Dashboards = NamedDependency[DashboardService]


@post(
    "/",
    guards=[holders(Function.DASHBOARD_ADD)],
    example={
        "name": "Roofs",
        "cover_type": "DEFAULT_IMAGE",
        "cover_data": "public/cover-purple.svg",
    },
)
async def create_dashboard(
    principal: Requester, dashboards: Dashboards, data: JSONBody[CreateDashboard]
) -> MainCanvas:
    """Create an empty dashboard; every role of its creator sees it."""
    return await dashboards.create(principal, data)


@put("/{dashboard_id:str}", guards=[holders(Function.DASHBOARD_EDIT)])
async def update_dashboard(
    principal: Requester,
    dashboards: Dashboards,
    dashboard_id: PathId,
    data: JSONBody[UpdateDashboard],
) -> dict[str, str]:
    """Set its name, description and cover, or all widgets of its main canvas."""
    await dashboards.update(principal, dashboard_id, data)
    return {}


@delete("/{dashboard_id:str}", guards=[holders(Function.DASHBOARD_EDIT, Function.DASHBOARD_DELETE)])
async def delete_dashboard(
    principal: Requester, dashboards: Dashboards, dashboard_id: PathId
) -> dict[str, str]:
    """Delete a dashboard with its canvases and grants."""
    await dashboards.delete(principal, dashboard_id)
    return {}


@post("/batch-delete", guards=[holders(Function.DASHBOARD_DELETE)])
async def delete_dashboards(
    principal: Requester, dashboards: Dashboards, data: JSONBody[DeleteDashboards]
) -> None:
    """Delete dashboards with their canvases and grants; unknown ones are passed over."""
    await dashboards.delete_all(principal, data)


@get("/dashboards", guards=[holders(Function.DASHBOARD_VIEW)])
async def list_dashboards(
    principal: Requester, dashboards: Dashboards
) -> Streamed[list[ShownDashboard]]:
    """The dashboards that the caller sees, with their widgets, the oldest first."""
    return await dashboards.seen_by(principal)


@post("/search", guards=[holders(Function.DASHBOARD_VIEW)])
async def search_dashboards(
    principal: Requester, dashboards: Dashboards, data: JSONBody[SearchDashboards | None] = None
) -> list[FoundDashboard]:
    """The dashboards that the caller sees: the caller's home first, then the newest."""
    wanted = data or SearchDashboards()
    return await dashboards.search(principal, wanted)


@get("/covers", guards=[users])
async def list_dashboard_covers() -> list[PresetCover]:
    """Pictures that a dashboard can have."""
    return PRESETS


@get("/main-canvas", guards=[holders(Function.DASHBOARD_VIEW)])
async def get_main_canvas(principal: Requester, dashboards: Dashboards) -> MainCanvas:
    """The canvas of the caller's home, else of the newest dashboard; empty without any."""
    return await dashboards.main_canvas(principal)


@post("/{dashboard_id:str}/home", guards=[users])
async def set_home_dashboard(
    principal: Requester, dashboards: Dashboards, dashboard_id: PathId
) -> None:
    """Let the caller begin with it, and with no other one."""
    await dashboards.set_home(principal, dashboard_id)


@post("/{dashboard_id:str}/cancel-home", guards=[users])
async def end_home_dashboard(
    principal: Requester, dashboards: Dashboards, dashboard_id: PathId
) -> None:
    """Let the caller begin with it no more."""
    await dashboards.end_home(principal, dashboard_id)


ROUTER = Router("/dashboard", route_handlers=operations_of(globals()), tags=["Dashboards"])
