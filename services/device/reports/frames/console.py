"""`/device/{device_id}/frames`: the frames of a device, on the console."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import Requester
from libs.common.http.console import post
from libs.common.http.guards import holders
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function
from services.device.reports.frames.schemas import FindFrames, FoundFrames
from services.device.reports.frames.service import FrameService


@post(
    "/{device_id:str}/frames/search",
    guards=[holders(Function.DEVICE_VIEW)],
    example={"page_size": 20},
)
async def find_device_frames(
    principal: Requester,
    frames: NamedDependency[FrameService],
    device_id: PathId,
    data: JSONBody[FindFrames | None] = None,
) -> FoundFrames:
    """Uplinks that a network server handed over, newest first, with what its codec made of each."""
    return await frames.find(principal, device_id, data or FindFrames())


ROUTER = Router("/device", route_handlers=operations_of(globals()), tags=["Devices"])
