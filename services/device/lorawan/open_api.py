"""Device API operations on codecs, frames, gaps and re-decode jobs."""

from typing import Annotated

from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from libs.common.http import RequestPrincipal
from libs.common.http.ids import PathId
from libs.common.http.open_api import delete, get, post, put
from libs.common.http.operations import route_operations
from services.device.lorawan.codec_service import CodecService
from services.device.lorawan.frame_queries import FrameService
from services.device.lorawan.gaps import GapService
from services.device.lorawan.redecode_service import RedecodeService
from services.device.lorawan.schemas import (
    CODEC_EXAMPLE,
    CODEC_TEST_EXAMPLE,
    HEALING_EXAMPLE,
    MAX_PAGE_SIZE,
    CodecTestResult,
    FramePage,
    GapHealingSettings,
    GapPage,
    PutCodec,
    RedecodeProgress,
    StartRedecode,
    TestCodec,
)
from services.device.telemetry.history import EndTime, KeyRangeResolver, PageKey, StartTime
from services.device.things.product_model import ProductCodec, PutGapHealing

CodecServiceDependency = NamedDependency[CodecService]


@get("/{model:str}/codec")
async def get_product_codec(
    principal: RequestPrincipal, codec_service: CodecServiceDependency, model: FromPath[str]
) -> ProductCodec:
    """Return the codec of a product."""
    return await codec_service.get(principal, model)


@put("/{model:str}/codec", example=CODEC_EXAMPLE, waits=True, summary="Replace codec of product")
async def put_product_codec(
    principal: RequestPrincipal,
    codec_service: CodecServiceDependency,
    model: FromPath[str],
    data: JSONBody[PutCodec],
) -> ProductCodec:
    """Replace the codec of a product.

    Scripts are parsed and the examples decoded before the codec is stored.
    """
    return await codec_service.put(principal, model, data)


@delete("/{model:str}/codec")
async def delete_product_codec(
    principal: RequestPrincipal, codec_service: CodecServiceDependency, model: FromPath[str]
) -> str:
    """Remove the codec of a product; return the model."""
    return await codec_service.delete(principal, model)


@post(
    "/{model:str}/codec/test",
    example=CODEC_TEST_EXAMPLE,
    waits=True,
    summary="Test codec of product",
)
async def try_product_codec(
    principal: RequestPrincipal,
    codec_service: CodecServiceDependency,
    model: FromPath[str],
    data: JSONBody[TestCodec],
) -> CodecTestResult:
    """Decode bytes or encode values; nothing is stored or sent."""
    return await codec_service.test_codec(principal, model, data)


@get("/{model:str}/codec/healing", summary="Get settings for requesting missing readings")
async def get_product_healing(
    principal: RequestPrincipal, codec_service: CodecServiceDependency, model: FromPath[str]
) -> GapHealingSettings:
    """Return whether and how often devices receive requests for missing readings."""
    return await codec_service.get_healing(principal, model)


@put(
    "/{model:str}/codec/healing",
    example=HEALING_EXAMPLE,
    summary="Replace settings for requesting missing readings",
)
async def put_product_healing(
    principal: RequestPrincipal,
    codec_service: CodecServiceDependency,
    model: FromPath[str],
    data: JSONBody[PutGapHealing],
) -> GapHealingSettings:
    """Set how often devices receive requests for missing readings; off by default."""
    return await codec_service.put_healing(principal, model, data)


RedecodeServiceDependency = NamedDependency[RedecodeService]


@post(
    "/{model:str}/codec/redecode",
    example={"dry": True},
    summary="Start decoding stored frames again",
)
async def redecode_product_frames(
    principal: RequestPrincipal,
    redecodes: RedecodeServiceDependency,
    model: FromPath[str],
    data: JSONBody[StartRedecode],
) -> RedecodeProgress:
    """Start decoding stored frames of a product again, in the background.

    Unless `dry` is set, history and latest values are replaced. Events are published only with
    `tell`.
    """
    return await redecodes.begin(principal, model, data)


@get("/{model:str}/codec/redecode", summary="Get progress of decoding again")
async def get_product_redecode(
    principal: RequestPrincipal, redecodes: RedecodeServiceDependency, model: FromPath[str]
) -> RedecodeProgress:
    """Return the last re-decode job of a product."""
    return await redecodes.get(principal, model)


@delete("/{model:str}/codec/redecode", summary="Stop decoding frames again")
async def stop_product_redecode(
    principal: RequestPrincipal, redecodes: RedecodeServiceDependency, model: FromPath[str]
) -> RedecodeProgress:
    """Stop the re-decode job of a product; finished devices keep their new history."""
    return await redecodes.stop(principal, model)


CODEC_ROUTER = route_operations(globals(), "/device/openapi/v1/products", tags=["Products"])


@get("/device/openapi/v1/devices/{device_id:str}/frames", tags=["Devices"])
async def list_device_frames(
    principal: RequestPrincipal,
    frames: NamedDependency[FrameService],
    key_ranges: NamedDependency[KeyRangeResolver],
    device_id: PathId,
    start_time: StartTime = None,
    end_time: EndTime = None,
    page_size: Annotated[int, QueryParameter(name="pageSize", ge=1, le=MAX_PAGE_SIZE)] = 20,
    page_key: PageKey = None,
) -> FramePage:
    """List uplinks of a device, newest first, with their decoded values."""
    key_range = await key_ranges.resolve_for_application(
        principal, device_id, (start_time, end_time, page_key)
    )
    records, next_key = await frames.list_page(key_range, page_size)
    return FramePage(list=records, page_size=page_size, next_page_key=next_key)


@get("/device/openapi/v1/devices/{device_id:str}/gaps", tags=["Devices"])
async def list_device_gaps(
    principal: RequestPrincipal,
    gaps: NamedDependency[GapService],
    key_ranges: NamedDependency[KeyRangeResolver],
    device_id: PathId,
    start_time: StartTime = None,
    end_time: EndTime = None,
    page_size: Annotated[int, QueryParameter(name="pageSize", ge=1, le=MAX_PAGE_SIZE)] = 20,
    page_key: PageKey = None,
) -> GapPage:
    """List gaps in the frame counters of a device, newest first."""
    key_range = await key_ranges.resolve_for_application(
        principal, device_id, (start_time, end_time, page_key)
    )
    records, next_key = await gaps.list_page(key_range, page_size)
    return GapPage(list=records, page_size=page_size, next_page_key=next_key)
