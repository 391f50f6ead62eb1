"""`/dashboard`: dashboards and their widgets."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import HttpRequest, principal_of
from libs.common.http.console import Answer, PathId, answer, delete, get, post, put
from libs.common.http.guards import holders
from libs.common.identity.functions import Function
from services.management.dashboards.schemas import (
    CreateDashboard,
    DashboardRef,
    ShownDashboard,
    UpdateDashboard,
)
from services.management.dashboards.service import DashboardService


@post(
    "/",
    guards=[holders(Function.DASHBOARD_ADD)],
    summary="Create a dashboard",
    example={"name": "Roofs"},
)
async def create_dashboard(
    request: HttpRequest,
    dashboards: NamedDependency[DashboardService],
    data: JSONBody[CreateDashboard],
) -> Answer[DashboardRef]:
    """Create an empty dashboard; every role of its creator sees it."""
    return answer(request, await dashboards.create(principal_of(request), data))


@put("/{dashboard_id:str}", guards=[holders(Function.DASHBOARD_EDIT)], summary="Update a dashboard")
async def update_dashboard(
    request: HttpRequest,
    dashboards: NamedDependency[DashboardService],
    dashboard_id: PathId,
    data: JSONBody[UpdateDashboard],
) -> Answer[dict[str, str]]:
    """Set its name and all its widgets; widgets that are left out are deleted."""
    await dashboards.update(principal_of(request), dashboard_id, data)
    return answer(request, {})


@delete(
    "/{dashboard_id:str}", guards=[holders(Function.DASHBOARD_EDIT)], summary="Delete a dashboard"
)
async def delete_dashboard(
    request: HttpRequest, dashboards: NamedDependency[DashboardService], dashboard_id: PathId
) -> Answer[dict[str, str]]:
    """Delete a dashboard with its widgets and grants."""
    await dashboards.delete(principal_of(request), dashboard_id)
    return answer(request, {})


@get("/dashboards", guards=[holders(Function.DASHBOARD_VIEW)], summary="List dashboards")
async def list_dashboards(
    request: HttpRequest, dashboards: NamedDependency[DashboardService]
) -> Answer[list[ShownDashboard]]:
    """The dashboards that the caller sees, with their widgets, the oldest first."""
    return answer(request, await dashboards.seen_by(principal_of(request)))


ROUTER = Router(
    "/dashboard",
    route_handlers=[create_dashboard, update_dashboard, delete_dashboard, list_dashboards],
    tags=["Dashboards"],
)
