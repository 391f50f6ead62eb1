"""`/device/openapi/v1/products/{model}/codec/redecode`."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from libs.common.http import Requester
from libs.common.http.open_api import delete, get, post
from libs.common.http.operations import operations_of
from services.device.reports.redecode.schemas import Redecode, StartRedecode
from services.device.reports.redecode.service import RedecodeService

Redecodes = NamedDependency[RedecodeService]


@post("/{model:str}/codec/redecode", example={"dry": True})
async def redecode_product_frames(
    principal: Requester, redecodes: Redecodes, model: FromPath[str], data: JSONBody[StartRedecode]
) -> Redecode:
    """In the background: history and latest values become what the codec gives; nobody is told."""
    return await redecodes.begin(principal, model, data)


@get("/{model:str}/codec/redecode")
async def get_product_redecode(
    principal: Requester, redecodes: Redecodes, model: FromPath[str]
) -> Redecode:
    """The last one of the product, with the first differences."""
    return await redecodes.get(principal, model)


@delete("/{model:str}/codec/redecode")
async def stop_product_redecode(
    principal: Requester, redecodes: Redecodes, model: FromPath[str]
) -> Redecode:
    """Devices that are through stay as they are."""
    return await redecodes.stop(principal, model)


ROUTER = Router(
    "/device/openapi/v1/products", route_handlers=operations_of(globals()), tags=["Products"]
)
