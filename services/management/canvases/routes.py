"""`/canvas`, and `/dashboard/{id}/canvas`: the canvases of a dashboard."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import Requester
from libs.common.http.console import get, post, put
from libs.common.http.guards import holders
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function
from services.management.canvases.schemas import (
    CanvasOfDashboard,
    DeleteCanvases,
    NameCanvas,
    SaveCanvas,
    ShownCanvas,
)
from services.management.canvases.service import CanvasService

Canvases = NamedDependency[CanvasService]


@get("/canvas/{canvas_id:str}", guards=[holders(Function.DASHBOARD_VIEW, Function.DEVICE_VIEW)])
async def get_canvas(principal: Requester, canvases: Canvases, canvas_id: PathId) -> ShownCanvas:
    """The canvas of a dashboard needs `dashboard.view`, that of a device either function."""
    return await canvases.get(principal, canvas_id)


@put(
    "/canvas/{canvas_id:str}",
    guards=[holders(Function.DASHBOARD_EDIT, Function.DEVICE_EDIT)],
    example={"name": "Roof page", "widgets": [{"data": {"type": "text"}}]},
)
async def save_canvas(
    principal: Requester, canvases: Canvases, canvas_id: PathId, data: JSONBody[SaveCanvas]
) -> None:
    """Set all that lies on it: widgets that are left out are deleted.

    The canvas of a dashboard needs `dashboard.edit`, that of a device `device.edit`.
    """
    await canvases.save(principal, canvas_id, data)


@get("/dashboard/{dashboard_id:str}/canvas", guards=[holders(Function.DASHBOARD_VIEW)])
async def list_canvases(
    principal: Requester, canvases: Canvases, dashboard_id: PathId
) -> list[CanvasOfDashboard]:
    """The main one first, then the oldest."""
    return await canvases.of_dashboard(principal, dashboard_id)


@post(
    "/dashboard/{dashboard_id:str}/canvas",
    guards=[holders(Function.DASHBOARD_EDIT)],
    example={"name": "Second page"},
)
async def add_canvas(
    principal: Requester, canvases: Canvases, dashboard_id: PathId, data: JSONBody[NameCanvas]
) -> CanvasOfDashboard:
    """An empty one, besides the main canvas that every dashboard has."""
    return await canvases.add(principal, dashboard_id, data)


@post(
    "/dashboard/{dashboard_id:str}/canvas/batch-delete", guards=[holders(Function.DASHBOARD_EDIT)]
)
async def delete_canvases(
    principal: Requester, canvases: Canvases, dashboard_id: PathId, data: JSONBody[DeleteCanvases]
) -> None:
    """All but the main one can be deleted; unknown ones are passed over."""
    await canvases.remove(principal, dashboard_id, data)


ROUTER = Router("/", route_handlers=operations_of(globals()), tags=["Dashboards"])
