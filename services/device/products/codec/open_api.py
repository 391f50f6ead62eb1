"""`/device/openapi/v1/products/{model}/codec`."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from libs.common.http import Requester
from libs.common.http.open_api import delete, get, post, put
from libs.common.http.operations import operations_of
from services.device.products.codec.schemas import (
    EXAMPLE,
    HEALING,
    TRIAL,
    Healing,
    PutCodec,
    TriedCodec,
    TryCodec,
)
from services.device.products.codec.service import CodecService
from services.device.things.product_model import ProductCodec, PutHealing

Codecs = NamedDependency[CodecService]


@get("/{model:str}/codec")
async def get_product_codec(
    principal: Requester, codec_service: Codecs, model: FromPath[str]
) -> ProductCodec:
    """The scripts that decode what its devices send, and encode what they are sent."""
    return await codec_service.get(principal, model)


@put("/{model:str}/codec", example=EXAMPLE, waits=True)
async def put_product_codec(
    principal: Requester, codec_service: Codecs, model: FromPath[str], data: JSONBody[PutCodec]
) -> ProductCodec:
    """Scripts are read, their functions looked for and the examples decoded before it is kept."""
    return await codec_service.put(principal, model, data)


@delete("/{model:str}/codec")
async def delete_product_codec(
    principal: Requester, codec_service: Codecs, model: FromPath[str]
) -> str:
    """Take the codec from a product; answers its model."""
    return await codec_service.delete(principal, model)


@post("/{model:str}/codec/test", example=TRIAL, waits=True)
async def try_product_codec(
    principal: Requester, codec_service: Codecs, model: FromPath[str], data: JSONBody[TryCodec]
) -> TriedCodec:
    """Decode bytes or encode values; nothing is stored and nothing is sent."""
    return await codec_service.tried(principal, model, data)


@get("/{model:str}/codec/healing")
async def get_product_healing(
    principal: Requester, codec_service: Codecs, model: FromPath[str]
) -> Healing:
    """Whether its devices are asked for what never arrived, how often, and by which service."""
    return await codec_service.healing(principal, model)


@put("/{model:str}/codec/healing", example=HEALING)
async def put_product_healing(
    principal: Requester, codec_service: Codecs, model: FromPath[str], data: JSONBody[PutHealing]
) -> Healing:
    """Ask devices for what they remember of gaps, so often a device; off by default."""
    return await codec_service.put_healing(principal, model, data)


ROUTER = Router(
    "/device/openapi/v1/products", route_handlers=operations_of(globals()), tags=["Products"]
)
