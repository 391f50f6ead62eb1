"""`/product/{model}/codec/redecode`: frames of a product are read again, on the console."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from libs.common.http import Requester
from libs.common.http.console import delete, get, post
from libs.common.http.guards import holders
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function
from services.device.reports.redecode.schemas import Redecode, StartRedecode
from services.device.reports.redecode.service import RedecodeService

Redecodes = NamedDependency[RedecodeService]
_READERS = [holders(Function.PRODUCT_VIEW, Function.PRODUCT_MANAGE)]
_MANAGERS = [holders(Function.PRODUCT_MANAGE)]


@post("/{model:str}/codec/redecode", guards=_MANAGERS, example={"dry": True})
async def redecode_frames_of_product(
    principal: Requester, redecodes: Redecodes, model: FromPath[str], data: JSONBody[StartRedecode]
) -> Redecode:
    """In the background: history and latest values become what the codec gives; nobody is told."""
    return await redecodes.begin(principal, model, data)


@get("/{model:str}/codec/redecode", guards=_READERS)
async def get_redecode_of_product(
    principal: Requester, redecodes: Redecodes, model: FromPath[str]
) -> Redecode | None:
    """The last one of the product, with the first differences; null when there was none."""
    return await redecodes.last(principal, model)


@delete("/{model:str}/codec/redecode", guards=_MANAGERS)
async def stop_redecode_of_product(
    principal: Requester, redecodes: Redecodes, model: FromPath[str]
) -> Redecode:
    """Devices that are through stay as they are."""
    return await redecodes.stop(principal, model)


ROUTER = Router("/product", route_handlers=operations_of(globals()), tags=["Products"])
