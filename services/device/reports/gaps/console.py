"""`/device/{device_id}/gaps`: what never arrived of a device, on the console."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import Requester
from libs.common.http.console import post
from libs.common.http.guards import holders
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function
from services.device.reports.gaps.schemas import FindGaps, FoundGaps
from services.device.reports.gaps.service import GapService


@post(
    "/{device_id:str}/gaps/search",
    guards=[holders(Function.DEVICE_VIEW)],
    example={"page_size": 20},
)
async def find_device_gaps(
    principal: Requester,
    gaps: NamedDependency[GapService],
    device_id: PathId,
    data: JSONBody[FindGaps | None] = None,
) -> FoundGaps:
    """Frame counters that never arrived, newest first, and what became of them."""
    return await gaps.find(principal, device_id, data or FindGaps())


ROUTER = Router("/device", route_handlers=operations_of(globals()), tags=["Devices"])
