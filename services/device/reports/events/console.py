"""`/device/{device_id}/events`: the events of a device, on the console."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import Requester
from libs.common.http.console import post
from libs.common.http.guards import holders
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function
from services.device.reports.events.schemas import FindEvents, FoundEvents
from services.device.reports.events.service import EventService


@post(
    "/{device_id:str}/events/search",
    guards=[holders(Function.DEVICE_VIEW)],
    example={"page_size": 20},
)
async def find_device_events(
    principal: Requester,
    device_events: NamedDependency[EventService],
    device_id: PathId,
    data: JSONBody[FindEvents | None] = None,
) -> FoundEvents:
    """Events that the device reported, newest first, with their outputs."""
    return await device_events.find(principal, device_id, data or FindEvents())


ROUTER = Router("/device", route_handlers=operations_of(globals()), tags=["Devices"])
