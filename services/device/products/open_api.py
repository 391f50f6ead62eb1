"""`/device/openapi/v1/products`."""

from functools import partial
from typing import Annotated

from litestar import delete, get, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from libs.common.envelope import Success
from libs.common.http import REFUSALS, HttpRequest, ok, principal_of
from services.device.products.schemas import Product, ProductPage, ProductWithTsl, PutProduct
from services.device.products.service import ProductService
from services.device.things.fields import LARGEST_NUMBER, LARGEST_PAGE

_PATH = "/device/openapi/v1/products"
_TAGS = ["Products"]
_delete = partial(delete, responses=REFUSALS, status_code=200, tags=_TAGS)
_get = partial(get, responses=REFUSALS, tags=_TAGS)
_put = partial(put, responses=REFUSALS, tags=_TAGS)


@_get(_PATH, summary="List products")
async def list_products(
    request: HttpRequest,
    product_service: NamedDependency[ProductService],
    page_size: Annotated[int, QueryParameter(name="pageSize", ge=1, le=LARGEST_PAGE)] = 100,
    page_number: Annotated[int, QueryParameter(name="pageNumber", ge=1, le=LARGEST_NUMBER)] = 1,
) -> Success[ProductPage]:
    """The products of the tenant, without their TSL."""
    page = await product_service.page(principal_of(request), page_number, page_size)
    return ok(request, page)


@_get(f"{_PATH}/{{model:str}}", summary="Get a product")
async def get_product(
    request: HttpRequest, product_service: NamedDependency[ProductService], model: FromPath[str]
) -> Success[ProductWithTsl]:
    """A product with its current TSL."""
    return ok(request, await product_service.get(principal_of(request), model))


@_put(f"{_PATH}/{{model:str}}", summary="Create or update a product")
async def put_product(
    request: HttpRequest,
    product_service: NamedDependency[ProductService],
    model: FromPath[str],
    data: JSONBody[PutProduct],
) -> Success[Product]:
    """Create or update a product; its TSL is checked whole and becomes the current version."""
    return ok(request, await product_service.put(principal_of(request), model, data))


@_delete(f"{_PATH}/{{model:str}}", summary="Delete a product")
async def delete_product(
    request: HttpRequest, product_service: NamedDependency[ProductService], model: FromPath[str]
) -> Success[str]:
    """Delete a product that has no devices; answers its model."""
    return ok(request, await product_service.delete(principal_of(request), model))


ROUTES = [list_products, get_product, put_product, delete_product]
