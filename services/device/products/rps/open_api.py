"""`/device/openapi/v1/rps`."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from libs.common.envelope import Success
from libs.common.http import HttpRequest, ok, principal_of
from libs.common.http.open_api import delete, post
from libs.common.http.operations import operations_of
from services.device.products.rps.schemas import RpsPage, SearchProfiles, SetProfile
from services.device.products.rps.service import RpsService


@post(
    "/profile",
    summary="Specify profile URL",
    example={"sn": "ROOF0002", "profileUrl": "https://example.com/profiles/roof.json"},
)
async def set_rps_profile(
    request: HttpRequest, rps_service: NamedDependency[RpsService], data: JSONBody[SetProfile]
) -> Success[str]:
    """Set the profile URL of an SN that is not a device yet."""
    return ok(request, await rps_service.set_profile(principal_of(request), data))


@post(
    "/search",
    summary="Query profile URL list",
    example={
        "pageSize": 50,
        "pageNumber": 1,
        "sorts": [{"property": "sn", "direction": "asc"}],
    },
)
async def search_rps_profiles(
    request: HttpRequest, rps_service: NamedDependency[RpsService], data: JSONBody[SearchProfiles]
) -> Success[RpsPage]:
    """The application's RPS records, sorted and paged."""
    return ok(request, await rps_service.search(principal_of(request), data))


@delete("/{sn:str}", summary="Delete RPS record")
async def delete_rps_profile(
    request: HttpRequest, rps_service: NamedDependency[RpsService], sn: FromPath[str]
) -> Success[str]:
    """Delete the RPS record of an SN, so that the device can be added."""
    return ok(request, await rps_service.delete(principal_of(request), sn))


ROUTER = Router("/device/openapi/v1/rps", route_handlers=operations_of(globals()), tags=["RPS"])
