"""Products, RPS records and device templates in the management API.

RPS is the remote provisioning service.
"""

from typing import Annotated, Any

import msgspec
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, PathParameter

from libs.common.errors import InvalidInput
from libs.common.http import RequestPrincipal
from libs.common.http.console import Page, PageRequest, ResponseModel, delete, get, post, put
from libs.common.http.guards import allow_holders
from libs.common.http.operations import route_operations
from libs.common.identity.functions import Function
from libs.common.settings import Days
from libs.common.things import GENERIC_MODEL
from libs.common.tsl import Fault, TslDocument
from services.device.registry.products.rps import RpsService
from services.device.registry.products.service import ProductService
from services.device.registry.products.templates import (
    LIBRARY_NOT_READ_CODE,
    BlueprintSource,
    FindTemplates,
    ImportedTemplate,
    ImportTemplates,
    LibraryTemplate,
    SetBlueprintSource,
    TemplateService,
)
from services.device.things.model import DeviceType
from services.device.things.product_model import (
    FrameDays,
    Product,
    ProductFault,
    PutProduct,
    SerialPrefixes,
)
from services.device.things.schemas import MAX_PAGE_SIZE, Name

ProductServiceDependency = NamedDependency[ProductService]

_FORM_READERS = [allow_holders(Function.PRODUCT_VIEW, Function.PRODUCT_MANAGE, Function.DEVICE_ADD)]
"""Guards of products and templates: users who add devices may view them, too."""
_READERS = [allow_holders(Function.PRODUCT_VIEW, Function.PRODUCT_MANAGE)]
_MANAGERS = [allow_holders(Function.PRODUCT_MANAGE)]
_CONSOLE_NAME_BY_FIELD = {
    "snPrefixes": "sn_prefixes",
    "deviceType": "device_type",
    "historyDays": "history_days",
    "frameDays": "frame_days",
    "deviceOfflineTimeout": "device_offline_timeout",
    "locationProperty": "location_property",
}


class FindProducts(PageRequest, kw_only=True):
    """Body of `POST /product/search`; lists the built-in product first, then others by model."""

    largest = MAX_PAGE_SIZE


class SaveProduct(msgspec.Struct, kw_only=True):
    """Body of `PUT /product/{model}`; `tsl` is a document as vendors publish it."""

    name: Name
    tsl: dict[str, Any]
    sn_prefixes: SerialPrefixes = []
    device_type: DeviceType = "COMMON"
    history_days: Days | None = None
    """Days that history of its devices is kept."""
    frame_days: FrameDays | None = None
    """Days that frames of its devices are kept to be decoded again, from their arrival."""
    device_offline_timeout: Annotated[int, msgspec.Meta(ge=1, le=2880)] | None = None
    """Minutes without a message after which a device without a connection is OFFLINE."""
    location_property: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] | None = None
    """A STRUCT of the TSL with the numbers `latitude` and `longitude`."""


class ProductResponse(ResponseModel, kw_only=True):
    """A product; new devices get `current_version`. Times are ms."""

    model: str
    name: str
    sn_prefixes: list[str]
    device_type: DeviceType
    current_version: str
    versions: list[str]
    built_in: bool
    """Whether it belongs to the platform and cannot be changed."""
    history_days: int | None = None
    frame_days: int | None = None
    device_offline_timeout: int | None = None
    location_property: str | None = None
    codec_version: str | None = None
    """The version of its codec, if it has one."""
    created_at: int | None = None
    updated_at: int | None = None


class ProductDetail(ProductResponse, kw_only=True):
    """A product with the document of its current version."""

    tsl: TslDocument


class CheckedProduct(msgspec.Struct):
    """The faults of the body; empty if it is valid. Saving may still conflict with other data."""

    faults: list[ProductFault]


_PRODUCT_EXAMPLE = {
    "name": "Roof sensor",
    "sn_prefixes": ["ROOF"],
    "tsl": {
        "version": "v2.0",
        "properties": [
            {
                "id": "temperature",
                "name": "Temperature",
                "accessMode": "R",
                "dataSpec": {"dataType": "FLOAT"},
            }
        ],
    },
}


@post("/search", guards=_FORM_READERS, example={"page_size": 100})
async def find_products(
    principal: RequestPrincipal,
    product_service: ProductServiceDependency,
    data: JSONBody[FindProducts | None] = None,
) -> Page[ProductResponse]:
    """List the products of the tenant, without their TSL.

    The response is a page even if the request has no page size.
    """
    search = data or FindProducts()
    page = await product_service.list_page(principal, search.number, search.size)
    return Page(
        page_size=search.size,
        page_number=search.number,
        total=page.total,
        content=[ProductResponse(**_response_fields(product)) for product in page.content],
    )


@get("/{model:str}", guards=_FORM_READERS)
async def get_product_detail(
    principal: RequestPrincipal, product_service: ProductServiceDependency, model: FromPath[str]
) -> ProductDetail:
    """Return a product with its current TSL."""
    product = await product_service.get(principal, model)
    return ProductDetail(**_response_fields(product), tsl=product.tsl)


@get("/{model:str}/versions/{version:str}", guards=_FORM_READERS)
async def get_product_version(
    principal: RequestPrincipal,
    product_service: ProductServiceDependency,
    model: FromPath[str],
    version: Annotated[str, PathParameter(description="Version of the TSL, for example `v1.0`.")],
) -> TslDocument:
    """Return the TSL of one version.

    A device keeps its version until `tslVersion` of the device is changed.
    """
    return await product_service.get_version(principal, model, version)


@put("/{model:str}", guards=_MANAGERS, example=_PRODUCT_EXAMPLE)
async def save_product(
    principal: RequestPrincipal,
    product_service: ProductServiceDependency,
    model: FromPath[str],
    data: JSONBody[SaveProduct],
) -> ProductResponse:
    """Create or replace a product; its TSL becomes the current version.

    Absent optional fields are removed. The codec stays.
    """
    try:
        saved = await product_service.put(principal, model, _to_put_product(data))
    except InvalidInput as error:
        if not error.faults:
            raise
        faults = [
            msgspec.structs.replace(fault, path=_console_path(fault.path)) for fault in error.faults
        ]
        raise InvalidInput.from_faults(faults) from error
    return ProductResponse(**_response_fields(saved))


@post("/{model:str}/check", guards=_MANAGERS, example=_PRODUCT_EXAMPLE)
async def check_product(
    principal: RequestPrincipal,
    product_service: ProductServiceDependency,
    model: FromPath[str],
    data: JSONBody[SaveProduct],
) -> CheckedProduct:
    """Validate a product without saving it, and return all faults of the body."""
    faults: list[Fault] = product_service.find_faults(
        principal.tenant, model, _to_put_product(data)
    )
    return CheckedProduct(
        [ProductFault(_console_path(fault.path), fault.reason) for fault in faults]
    )


@delete("/{model:str}", guards=_MANAGERS)
async def remove_product(
    principal: RequestPrincipal, product_service: ProductServiceDependency, model: FromPath[str]
) -> None:
    """Delete a product without devices, with all versions of its TSL."""
    await product_service.delete(principal, model)


def _to_put_product(data: SaveProduct) -> PutProduct:
    return PutProduct(**msgspec.structs.asdict(data))


def _response_fields(product: Product) -> dict[str, Any]:
    """Return the fields of `ProductResponse`."""
    fields = {name: getattr(product, name) for name in Product.__struct_fields__}
    set_fields = {name: value for name, value in fields.items() if value is not msgspec.UNSET}
    return set_fields | {"built_in": product.model == GENERIC_MODEL}


def _console_path(path: str) -> str:
    """Return a path of the open API in the spelling of the management API."""
    first = path.partition("[")[0]
    return (
        _CONSOLE_NAME_BY_FIELD[first] + path[len(first) :]
        if first in _CONSOLE_NAME_BY_FIELD
        else path
    )


ROUTER = route_operations(globals(), "/product", tags=["Products"])
"""Applications use `/device/openapi/v1/products` instead."""


RpsServiceDependency = NamedDependency[RpsService]


class FindRpsRecords(PageRequest, kw_only=True):
    """Body of `POST /rps/search`."""

    sn: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The beginning of the SN, in any case."""


class RpsRecordResponse(msgspec.Struct):
    """The profile URL that an application set for the device of an SN."""

    sn: str
    profile_url: str
    application_id: str


@post(
    "/search",
    guards=_READERS,
    example={"sn": "ROOF", "page_size": 50},
    summary="Search RPS records",
)
async def find_rps_records(
    principal: RequestPrincipal,
    rps_service: RpsServiceDependency,
    data: JSONBody[FindRpsRecords | None] = None,
) -> Page[RpsRecordResponse]:
    """List the RPS records of all applications of the tenant, by SN.

    The response is a page even if the request has no page size.
    """
    search = data or FindRpsRecords()
    rows, total = await rps_service.list_for_tenant(
        principal, search.sn, search.number, search.size
    )
    return Page(
        page_size=search.size,
        page_number=search.number,
        total=total,
        content=[
            RpsRecordResponse(record.sn, record.profile_url, str(record.application))
            for record in rows
        ],
    )


@delete("/{sn:str}", guards=[allow_holders(Function.PRODUCT_MANAGE)], summary="Delete RPS record")
async def remove_rps_record(
    principal: RequestPrincipal, rps_service: RpsServiceDependency, sn: FromPath[str]
) -> None:
    """Delete the RPS record of an SN, so that the device can be added."""
    await rps_service.delete(principal, sn)


RPS_ROUTER = route_operations(globals(), "/rps", tags=["Products"])
"""Applications set records with `/device/openapi/v1/rps`."""


_LIBRARY_SETTING_FUNCTIONS = (Function.CREDENTIALS_EDIT, Function.PRODUCT_MANAGE)
TemplateServiceDependency = NamedDependency[TemplateService]


@get(
    guards=[
        allow_holders(Function.CREDENTIALS_VIEW, Function.PRODUCT_VIEW, *_LIBRARY_SETTING_FUNCTIONS)
    ]
)
async def get_blueprint_source(
    principal: RequestPrincipal, templates: TemplateServiceDependency
) -> BlueprintSource:
    """Return the device template library; `DEFAULT` when none was uploaded."""
    library = await templates.store.find(principal.tenant)
    if library is None:
        return BlueprintSource(current_source_type="DEFAULT", synced_success=True)
    return BlueprintSource.from_fields(
        library,
        current_source_type="UPLOAD",
        synced_success=True,
        type="ZIP",
        update_time=library.updated_at,
    )


@post(
    guards=[allow_holders(*_LIBRARY_SETTING_FUNCTIONS)],
    example={"source_type": "DEFAULT"},
    waits=True,
)
async def set_blueprint_source(
    principal: RequestPrincipal,
    templates: TemplateServiceDependency,
    data: JSONBody[SetBlueprintSource],
) -> None:
    """Use an uploaded ZIP of device templates (5 MB); `DEFAULT` removes the library.

    Products that were created from templates stay unchanged.
    """
    if data.source_type == "DEFAULT":
        await templates.store.delete(principal.tenant)
        return
    if data.type == "GITHUB":
        raise InvalidInput(
            "must be `ZIP`. Libraries are not downloaded", field="type", code=LIBRARY_NOT_READ_CODE
        )
    if not data.url:
        raise InvalidInput("is required", field="url", code=LIBRARY_NOT_READ_CODE)
    await templates.replace_library(principal.tenant, data.url)


TEMPLATE_SOURCE_ROUTER = route_operations(
    globals(), "/blueprint-library-setting", tags=["Settings"]
)


@post("/search", guards=_FORM_READERS, example={"page_size": 100})
async def find_product_templates(
    principal: RequestPrincipal,
    templates: TemplateServiceDependency,
    data: JSONBody[FindTemplates | None] = None,
) -> Page[LibraryTemplate]:
    """List the templates of the library with their faults.

    The response is a page even if the request has no page size.
    """
    search = data or FindTemplates()
    rows, total = await templates.find(principal.tenant, search)
    return Page(page_size=search.size, page_number=search.number, total=total, content=rows)


@post("/import", guards=_MANAGERS, example={"models": ["AM102"]}, waits=True)
async def import_product_templates(
    principal: RequestPrincipal,
    templates: TemplateServiceDependency,
    data: JSONBody[ImportTemplates],
) -> list[ImportedTemplate]:
    """Create or update products with codecs from templates; one result for each.

    The results are in the order of the request. An existing product keeps everything but its TSL
    and codec.
    """
    return await templates.create_products(principal, data.models)


TEMPLATE_ROUTER = route_operations(globals(), "/product-template", tags=["Products"])
