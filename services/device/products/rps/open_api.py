"""`/device/openapi/v1/rps`."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from libs.common.http import Requester
from libs.common.http.open_api import delete, post
from libs.common.http.operations import operations_of
from services.device.products.rps.schemas import RpsPage, SearchProfiles, SetProfile
from services.device.products.rps.service import RpsService

Rps = NamedDependency[RpsService]


@post(
    "/profile", example={"sn": "ROOF0002", "profileUrl": "https://example.com/profiles/roof.json"}
)
async def set_rps_profile(
    principal: Requester, rps_service: Rps, data: JSONBody[SetProfile]
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
)
async def search_rps_profiles(
    principal: Requester, rps_service: Rps, data: JSONBody[SearchProfiles]
) -> RpsPage:
    """The application's RPS records, sorted and paged."""
    return await rps_service.search(principal, data)


@delete("/{sn:str}")
async def delete_rps_profile(principal: Requester, rps_service: Rps, sn: FromPath[str]) -> str:
    """Delete the RPS record of an SN, so that the device can be added."""
    return await rps_service.delete(principal, sn)


ROUTER = Router("/device/openapi/v1/rps", route_handlers=operations_of(globals()), tags=["RPS"])
