"""`/device/openapi/v1/rps`."""

from functools import partial

from litestar import delete, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from libs.common.envelope import Success
from libs.common.http import REFUSALS, HttpRequest, ok, principal_of
from services.device.products.rps.schemas import RpsPage, SearchProfiles, SetProfile
from services.device.products.rps.service import RpsService

_PATH = "/device/openapi/v1/rps"
_TAGS = ["RPS"]
_delete = partial(delete, responses=REFUSALS, status_code=200, tags=_TAGS)
_post = partial(post, responses=REFUSALS, status_code=200, tags=_TAGS)


@_post(f"{_PATH}/profile", summary="Specify profile URL")
async def set_profile(
    request: HttpRequest, rps_service: NamedDependency[RpsService], data: JSONBody[SetProfile]
) -> Success[str]:
    """Set the profile URL of an SN that is not a device yet."""
    return ok(request, await rps_service.set_profile(principal_of(request), data))


@_post(f"{_PATH}/search", summary="Query profile URL list")
async def search_profiles(
    request: HttpRequest, rps_service: NamedDependency[RpsService], data: JSONBody[SearchProfiles]
) -> Success[RpsPage]:
    """The application's RPS records, sorted and paged."""
    return ok(request, await rps_service.search(principal_of(request), data))


@_delete(f"{_PATH}/{{sn:str}}", summary="Delete RPS record")
async def delete_profile(
    request: HttpRequest, rps_service: NamedDependency[RpsService], sn: FromPath[str]
) -> Success[str]:
    """Delete the RPS record of an SN, so that the device can be added."""
    return ok(request, await rps_service.delete(principal_of(request), sn))


ROUTES = [set_profile, search_profiles, delete_profile]
