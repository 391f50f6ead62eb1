"""`/device/openapi/v1/products`."""

from typing import Annotated, Any

from litestar import Request, delete, get, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from libs.common.envelope import Success
from libs.common.http import REFUSALS, ok, principal_of
from services.device.products.schemas import Product, ProductPage, ProductWithTsl, PutProduct
from services.device.products.service import ProductService
from services.device.things.fields import LARGEST_NUMBER, LARGEST_PAGE

_PATH = "/device/openapi/v1/products"
_TAGS = ["Products"]


@get(_PATH, responses=REFUSALS, summary="List products", tags=_TAGS)
async def list_products(
    request: Request[Any, Any, Any],
    product_service: NamedDependency[ProductService],
    page_size: Annotated[int, QueryParameter(name="pageSize", ge=1, le=LARGEST_PAGE)] = 100,
    page_number: Annotated[int, QueryParameter(name="pageNumber", ge=1, le=LARGEST_NUMBER)] = 1,
) -> Success[ProductPage]:
    """The products of the tenant, without their TSL."""
    page = await product_service.page(principal_of(request), page_number, page_size)
    return ok(request, page)


@get(f"{_PATH}/{{model:str}}", responses=REFUSALS, summary="Get a product", tags=_TAGS)
async def get_product(
    request: Request[Any, Any, Any],
    product_service: NamedDependency[ProductService],
    model: FromPath[str],
) -> Success[ProductWithTsl]:
    """A product with its current TSL."""
    return ok(request, await product_service.get(principal_of(request), model))


@put(
    f"{_PATH}/{{model:str}}",
    responses=REFUSALS,
    summary="Create or update a product",
    tags=_TAGS,
)
async def put_product(
    request: Request[Any, Any, Any],
    product_service: NamedDependency[ProductService],
    model: FromPath[str],
    data: JSONBody[PutProduct],
) -> Success[Product]:
    """Create or update a product; its TSL is checked whole and becomes the current version."""
    return ok(request, await product_service.put(principal_of(request), model, data))


@delete(
    f"{_PATH}/{{model:str}}",
    responses=REFUSALS,
    status_code=200,
    summary="Delete a product",
    tags=_TAGS,
)
async def delete_product(
    request: Request[Any, Any, Any],
    product_service: NamedDependency[ProductService],
    model: FromPath[str],
) -> Success[str]:
    """Delete a product that has no devices; answers its model."""
    return ok(request, await product_service.delete(principal_of(request), model))


ROUTES = [list_products, get_product, put_product, delete_product]
