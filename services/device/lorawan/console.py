"""Console operations on codecs, frames, gaps and re-decode jobs."""

from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from libs.common.http import RequestPrincipal
from libs.common.http.console import delete, get, post, put
from libs.common.http.guards import allow_holders
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.identity.functions import Function
from services.device.lorawan.codec_service import CodecService
from services.device.lorawan.frame_queries import FrameService
from services.device.lorawan.gaps import GapService
from services.device.lorawan.redecode_service import RedecodeService
from services.device.lorawan.schemas import (
    CODEC_EXAMPLE,
    CODEC_TEST_EXAMPLE,
    HEALING_EXAMPLE,
    CodecTestResult,
    FindFrames,
    FindGaps,
    FoundFrames,
    FoundGaps,
    GapHealingSettings,
    PutCodec,
    RedecodeProgress,
    StartRedecode,
    TestCodec,
)
from services.device.telemetry.history import KeyRangeResolver, post_search
from services.device.things.product_model import ProductCodec, PutGapHealing

RedecodeServiceDependency = NamedDependency[RedecodeService]
_READERS = [allow_holders(Function.PRODUCT_VIEW, Function.PRODUCT_MANAGE)]
_MANAGERS = [allow_holders(Function.PRODUCT_MANAGE)]


@post(
    "/{model:str}/codec/redecode",
    guards=_MANAGERS,
    example={"dry": True},
    summary="Start decoding stored frames again",
)
async def redecode_frames_of_product(
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


@get("/{model:str}/codec/redecode", guards=_READERS, summary="Get progress of decoding again")
async def get_redecode_of_product(
    principal: RequestPrincipal, redecodes: RedecodeServiceDependency, model: FromPath[str]
) -> RedecodeProgress | None:
    """Return the last re-decode job of a product, or null."""
    return await redecodes.find_last(principal, model)


@delete("/{model:str}/codec/redecode", guards=_MANAGERS, summary="Stop decoding frames again")
async def stop_redecode_of_product(
    principal: RequestPrincipal, redecodes: RedecodeServiceDependency, model: FromPath[str]
) -> RedecodeProgress:
    """Stop the re-decode job of a product; finished devices keep their new history."""
    return await redecodes.stop(principal, model)


CodecServiceDependency = NamedDependency[CodecService]


@get("/{model:str}/codec", guards=_READERS)
async def get_codec_of_product(
    principal: RequestPrincipal, codec_service: CodecServiceDependency, model: FromPath[str]
) -> ProductCodec:
    """Return the codec of a product."""
    return await codec_service.get(principal, model)


@put("/{model:str}/codec", guards=_MANAGERS, example=CODEC_EXAMPLE, waits=True)
async def save_codec_of_product(
    principal: RequestPrincipal,
    codec_service: CodecServiceDependency,
    model: FromPath[str],
    data: JSONBody[PutCodec],
) -> ProductCodec:
    """Replace the codec of a product.

    Scripts are parsed and the examples decoded before the codec is stored.
    """
    return await codec_service.put(principal, model, data)


@delete("/{model:str}/codec", guards=_MANAGERS)
async def remove_codec_of_product(
    principal: RequestPrincipal, codec_service: CodecServiceDependency, model: FromPath[str]
) -> None:
    """Remove the codec of a product."""
    await codec_service.delete(principal, model)


@post(
    "/{model:str}/codec/test",
    guards=_MANAGERS,
    example=CODEC_TEST_EXAMPLE,
    waits=True,
    summary="Test codec of product",
)
async def try_codec_of_product(
    principal: RequestPrincipal,
    codec_service: CodecServiceDependency,
    model: FromPath[str],
    data: JSONBody[TestCodec],
) -> CodecTestResult:
    """Decode bytes or encode values; nothing is stored or sent."""
    return await codec_service.test_codec(principal, model, data)


@get(
    "/{model:str}/codec/healing",
    guards=_READERS,
    summary="Get settings for requesting missing readings",
)
async def get_healing_of_product(
    principal: RequestPrincipal, codec_service: CodecServiceDependency, model: FromPath[str]
) -> GapHealingSettings:
    """Return whether and how often devices receive requests for missing readings."""
    return await codec_service.get_healing(principal, model)


@put(
    "/{model:str}/codec/healing",
    guards=_MANAGERS,
    example=HEALING_EXAMPLE,
    summary="Replace settings for requesting missing readings",
)
async def save_healing_of_product(
    principal: RequestPrincipal,
    codec_service: CodecServiceDependency,
    model: FromPath[str],
    data: JSONBody[PutGapHealing],
) -> GapHealingSettings:
    """Set how often devices receive requests for missing readings; off by default."""
    return await codec_service.put_healing(principal, model, data)


CODEC_ROUTER = route_operations(globals(), "/product", tags=["Products"])


@post_search("/{device_id:str}/frames/search")
async def find_device_frames(
    principal: RequestPrincipal,
    frames: NamedDependency[FrameService],
    key_ranges: NamedDependency[KeyRangeResolver],
    device_id: PathId,
    data: JSONBody[FindFrames | None] = None,
) -> FoundFrames:
    """Search uplinks of a device, newest first, with their decoded values."""
    search = data or FindFrames()
    key_range = await key_ranges.resolve_for_user(principal, device_id, search.bounds)
    records, next_key = await frames.list_page(key_range, search.page_size)
    return FoundFrames(content=records, next_key=next_key)


@post_search("/{device_id:str}/gaps/search")
async def find_device_gaps(
    principal: RequestPrincipal,
    gaps: NamedDependency[GapService],
    key_ranges: NamedDependency[KeyRangeResolver],
    device_id: PathId,
    data: JSONBody[FindGaps | None] = None,
) -> FoundGaps:
    """Search gaps in the frame counters of a device, newest first."""
    search = data or FindGaps()
    key_range = await key_ranges.resolve_for_user(principal, device_id, search.bounds)
    records, next_key = await gaps.list_page(key_range, search.page_size)
    return FoundGaps(content=records, next_key=next_key)


DEVICE_ROUTER = route_operations(globals(), "/device", tags=["Devices"])
