"""`/device/{device_id}/refusals`: what a device said and was refused, on the console."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import Requester
from libs.common.http.console import post
from libs.common.http.guards import holders
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function
from services.device.reports.refusals.schemas import FindRefusals, RefusalPage
from services.device.reports.refusals.service import Refusals


@post(
    "/{device_id:str}/refusals/search",
    guards=[holders(Function.DEVICE_VIEW)],
    example={"page_size": 20},
)
async def find_device_refusals(
    principal: Requester,
    refusals: NamedDependency[Refusals],
    device_id: PathId,
    data: JSONBody[FindRefusals | None] = None,
) -> RefusalPage:
    """What of the device's messages was refused and why, the newest first.

    Messages refused whole are kept for 30 days, values left out of others for 7.
    """
    return await refusals.page(principal, device_id, data or FindRefusals())


ROUTER = Router("/device", route_handlers=operations_of(globals()), tags=["Devices"])
