"""`/device/openapi/v1/products` and `/device/openapi/v1/rps`."""

from typing import Annotated

from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from libs.common.http import RequestPrincipal
from libs.common.http.open_api import delete, get, post, put
from libs.common.http.operations import route_operations
from services.device.registry.products.rps import RpsPage, RpsService, SearchProfiles, SetProfile
from services.device.registry.products.service import ProductService
from services.device.things.product_model import Product, ProductPage, ProductWithTsl, PutProduct
from services.device.things.schemas import MAX_PAGE_NUMBER, MAX_PAGE_SIZE

ProductServiceDependency = NamedDependency[ProductService]

_TSL_EXAMPLE = {
    "version": "v1.0",
    "properties": [
        {
            "id": "temperature",
            "name": "Temperature",
            "accessMode": "R",
            "dataSpec": {"dataType": "FLOAT", "unitName": "°C", "fractionDigits": 1},
        },
        {
            "id": "reporting_interval",
            "name": "Reporting interval",
            "accessMode": "RW",
            "dataSpec": {"dataType": "STRUCT"},
        },
        {
            "id": "reporting_interval.time",
            "name": "Time",
            "accessMode": "RW",
            "dataSpec": {
                "dataType": "INT",
                "parentId": "reporting_interval",
                "unitName": "s",
                "validator": {"min": 1, "max": 3600},
            },
        },
    ],
    "events": [
        {
            "id": "alarm",
            "name": "Alarm",
            "type": "WARN",
            "outputs": [
                {"id": "alarm.level", "dataSpec": {"dataType": "INT", "parentId": "alarm"}}
            ],
        }
    ],
    "services": [{"id": "reboot", "name": "Reboot", "callType": "ASYNC"}],
}


@get("/")
async def list_products(
    principal: RequestPrincipal,
    product_service: ProductServiceDependency,
    page_size: Annotated[int, QueryParameter(name="pageSize", ge=1)] = 100,
    page_number: Annotated[int, QueryParameter(name="pageNumber", ge=1, le=MAX_PAGE_NUMBER)] = 1,
) -> ProductPage:
    """List the products of the tenant, without their TSL."""
    return await product_service.list_page(principal, page_number, min(page_size, MAX_PAGE_SIZE))


@get("/{model:str}")
async def get_product(
    principal: RequestPrincipal, product_service: ProductServiceDependency, model: FromPath[str]
) -> ProductWithTsl:
    """Return a product with its current TSL."""
    return await product_service.get(principal, model)


@put(
    "/{model:str}",
    example={"name": "Roof sensor", "snPrefixes": ["ROOF"], "tsl": _TSL_EXAMPLE},
    summary="Create or update product",
)
async def put_product(
    principal: RequestPrincipal,
    product_service: ProductServiceDependency,
    model: FromPath[str],
    data: JSONBody[PutProduct],
) -> Product:
    """Create or replace a product; its TSL becomes the current version.

    Absent optional fields are removed. The codec stays.
    """
    return await product_service.put(principal, model, data)


@delete("/{model:str}")
async def delete_product(
    principal: RequestPrincipal, product_service: ProductServiceDependency, model: FromPath[str]
) -> str:
    """Delete a product without devices; return its model."""
    return await product_service.delete(principal, model)


ROUTER = route_operations(globals(), "/device/openapi/v1/products", tags=["Products"])


RpsServiceDependency = NamedDependency[RpsService]


@post(
    "/profile",
    example={"sn": "ROOF0002", "profileUrl": "https://example.com/profiles/roof.json"},
    summary="Set RPS profile",
)
async def set_rps_profile(
    principal: RequestPrincipal, rps_service: RpsServiceDependency, data: JSONBody[SetProfile]
) -> str:
    """Set the profile URL of an SN that is not a device yet."""
    return await rps_service.set_profile(principal, data)


@post(
    "/search",
    example={
        "pageSize": 50,
        "pageNumber": 1,
        "sorts": [{"property": "sn", "direction": "asc"}],
    },
    summary="Search RPS profiles",
)
async def search_rps_profiles(
    principal: RequestPrincipal, rps_service: RpsServiceDependency, data: JSONBody[SearchProfiles]
) -> RpsPage:
    """List the application's RPS records, sorted and paged."""
    return await rps_service.search(principal, data)


@delete("/{sn:str}", summary="Delete RPS profile")
async def delete_rps_profile(
    principal: RequestPrincipal, rps_service: RpsServiceDependency, sn: FromPath[str]
) -> str:
    """Delete the RPS record of an SN, so that the device can be added."""
    return await rps_service.delete(principal, sn)


RPS_ROUTER = route_operations(globals(), "/device/openapi/v1/rps", tags=["RPS"])
