"""`/canvas`, and `/dashboard/{id}/canvas`: the canvases of a dashboard."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import HttpRequest, principal_of
from libs.common.http.console import Answer, PathId, answer, get, post, put
from libs.common.http.guards import holders
from libs.common.identity.functions import Function
from services.management.canvases.schemas import (
    CanvasOfDashboard,
    DeleteCanvases,
    NameCanvas,
    SaveCanvas,
    ShownCanvas,
)
from services.management.canvases.service import CanvasService


@get(
    "/canvas/{canvas_id:str}",
    guards=[holders(Function.DASHBOARD_VIEW, Function.DEVICE_VIEW)],
    summary="Get a canvas",
)
async def get_canvas(
    request: HttpRequest, canvases: NamedDependency[CanvasService], canvas_id: PathId
) -> Answer[ShownCanvas]:
    """The canvas of a dashboard needs `dashboard.view`, that of a device either function."""
    return answer(request, await canvases.get(principal_of(request), canvas_id))


@put(
    "/canvas/{canvas_id:str}",
    guards=[holders(Function.DASHBOARD_EDIT, Function.DEVICE_EDIT)],
    summary="Save a canvas",
    example={"name": "Roof page", "widgets": [{"data": {"type": "text"}}]},
)
async def save_canvas(
    request: HttpRequest,
    canvases: NamedDependency[CanvasService],
    canvas_id: PathId,
    data: JSONBody[SaveCanvas],
) -> Answer[None]:
    """Set all that lies on it: widgets that are left out are deleted.

    The canvas of a dashboard needs `dashboard.edit`, that of a device `device.edit`.
    """
    await canvases.save(principal_of(request), canvas_id, data)
    return answer(request)


@get(
    "/dashboard/{dashboard_id:str}/canvas",
    guards=[holders(Function.DASHBOARD_VIEW)],
    summary="List the canvases of a dashboard",
)
async def list_canvases(
    request: HttpRequest, canvases: NamedDependency[CanvasService], dashboard_id: PathId
) -> Answer[list[CanvasOfDashboard]]:
    """The main one first, then the oldest."""
    return answer(request, await canvases.of_dashboard(principal_of(request), dashboard_id))


@post(
    "/dashboard/{dashboard_id:str}/canvas",
    guards=[holders(Function.DASHBOARD_EDIT)],
    summary="Add a canvas to a dashboard",
    example={"name": "Second page"},
)
async def add_canvas(
    request: HttpRequest,
    canvases: NamedDependency[CanvasService],
    dashboard_id: PathId,
    data: JSONBody[NameCanvas],
) -> Answer[CanvasOfDashboard]:
    """An empty one, besides the main canvas that every dashboard has."""
    return answer(request, await canvases.add(principal_of(request), dashboard_id, data))


@post(
    "/dashboard/{dashboard_id:str}/canvas/batch-delete",
    guards=[holders(Function.DASHBOARD_EDIT)],
    summary="Delete canvases of a dashboard",
)
async def delete_canvases(
    request: HttpRequest,
    canvases: NamedDependency[CanvasService],
    dashboard_id: PathId,
    data: JSONBody[DeleteCanvases],
) -> Answer[None]:
    """All but the main one can be deleted; unknown ones are passed over."""
    await canvases.remove(principal_of(request), dashboard_id, data)
    return answer(request)


ROUTER = Router(
    "/",
    route_handlers=[get_canvas, save_canvas, list_canvases, add_canvas, delete_canvases],
    tags=["Dashboards"],
)
