"""`/device/openapi/v1/products`."""

from typing import Annotated

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from libs.common.envelope import Success
from libs.common.http import HttpRequest, ok, principal_of
from libs.common.http.open_api import delete, get, put
from libs.common.http.operations import operations_of
from services.device.products.schemas import Product, ProductPage, ProductWithTsl, PutProduct
from services.device.products.service import ProductService
from services.device.things.fields import LARGEST_NUMBER, LARGEST_PAGE

_TSL = {
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
            "dataSpec": {"dataType": "INT", "unitName": "min", "validator": {"min": 1}},
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


@get("/", summary="List products")
async def list_products(
    request: HttpRequest,
    product_service: NamedDependency[ProductService],
    page_size: Annotated[int, QueryParameter(name="pageSize", ge=1)] = 100,
    page_number: Annotated[int, QueryParameter(name="pageNumber", ge=1, le=LARGEST_NUMBER)] = 1,
) -> Success[ProductPage]:
    """The products of the tenant, without their TSL."""
    page = await product_service.page(
        principal_of(request), page_number, min(page_size, LARGEST_PAGE)
    )
    return ok(request, page)


@get("/{model:str}", summary="Get a product")
async def get_product(
    request: HttpRequest, product_service: NamedDependency[ProductService], model: FromPath[str]
) -> Success[ProductWithTsl]:
    """A product with its current TSL."""
    return ok(request, await product_service.get(principal_of(request), model))


@put(
    "/{model:str}",
    summary="Create or update a product",
    example={"name": "Roof sensor", "snPrefixes": ["ROOF"], "tsl": _TSL},
)
async def put_product(
    request: HttpRequest,
    product_service: NamedDependency[ProductService],
    model: FromPath[str],
    data: JSONBody[PutProduct],
) -> Success[Product]:
    """Create or update a product; its TSL is checked whole and becomes the current version."""
    return ok(request, await product_service.put(principal_of(request), model, data))


@delete("/{model:str}", summary="Delete a product")
async def delete_product(
    request: HttpRequest, product_service: NamedDependency[ProductService], model: FromPath[str]
) -> Success[str]:
    """Delete a product that has no devices; answers its model."""
    return ok(request, await product_service.delete(principal_of(request), model))


ROUTER = Router(
    "/device/openapi/v1/products", route_handlers=operations_of(globals()), tags=["Products"]
)
