"""`/rps`: the RPS records of a tenant's applications on the console."""

from typing import Annotated

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from libs.common.http import Requester
from libs.common.http.console import Page, PageRequest, delete, post
from libs.common.http.guards import holders
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function
from services.device.products.rps.service import RpsService

Rps = NamedDependency[RpsService]


class FindRecords(PageRequest, kw_only=True):
    """Body of `POST /rps/search`."""

    sn: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """What the SN begins with, in any case."""


class ShownRecord(msgspec.Struct):
    """Where the device of an SN finds its profile, as an application said."""

    sn: str
    profile_url: str
    application_id: str


@post(
    "/search",
    guards=[holders(Function.PRODUCT_VIEW, Function.PRODUCT_MANAGE)],
    example={"sn": "ROOF", "page_size": 50},
)
async def find_rps_records(
    principal: Requester, rps_service: Rps, data: JSONBody[FindRecords | None] = None
) -> Page[ShownRecord]:
    """The records of all applications of the tenant, by SN; always a page."""
    wanted = data or FindRecords()
    found, total = await rps_service.of_tenant(principal, wanted.sn, wanted.number, wanted.size)
    return Page(
        page_size=wanted.size,
        page_number=wanted.number,
        total=total,
        content=[ShownRecord(one.sn, one.profile_url, str(one.application)) for one in found],
    )


@delete("/{sn:str}", guards=[holders(Function.PRODUCT_MANAGE)])
async def remove_rps_record(principal: Requester, rps_service: Rps, sn: FromPath[str]) -> None:
    """Delete the record of an SN, so that the device can be added."""
    await rps_service.delete(principal, sn)


ROUTER = Router("/rps", route_handlers=operations_of(globals()), tags=["Products"])
"""Beside `/device/openapi/v1/rps`, where applications set them."""
