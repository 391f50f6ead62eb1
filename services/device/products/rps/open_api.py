"""`/device/openapi/v1/rps` (specification, "RPS endpoints")."""

from typing import Any

from litestar import Request, delete, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from libs.common.envelope import Success
from libs.common.http import REFUSALS, ok, principal_of
from services.device.products.rps.schemas import RpsPage, SearchProfiles, SetProfile
from services.device.products.rps.service import RpsService

_PATH = "/device/openapi/v1/rps"
_TAGS = ["RPS"]


@post(
    f"{_PATH}/profile",
    responses=REFUSALS,
    status_code=200,
    summary="Specify profile URL",
    tags=_TAGS,
)
async def set_profile(
    request: Request[Any, Any, Any],
    rps_service: NamedDependency[RpsService],
    data: JSONBody[SetProfile],
) -> Success[str]:
    """Set the profile URL of an SN that is not a device yet."""
    return ok(request, await rps_service.set_profile(principal_of(request), data))


@post(
    f"{_PATH}/search",
    responses=REFUSALS,
    status_code=200,
    summary="Query profile URL list",
    tags=_TAGS,
)
async def search_profiles(
    request: Request[Any, Any, Any],
    rps_service: NamedDependency[RpsService],
    data: JSONBody[SearchProfiles],
) -> Success[RpsPage]:
    """The application's RPS records, sorted and paged."""
    return ok(request, await rps_service.search(principal_of(request), data))


@delete(
    f"{_PATH}/{{sn:str}}",
    responses=REFUSALS,
    status_code=200,
    summary="Delete RPS record",
    tags=_TAGS,
)
async def delete_profile(
    request: Request[Any, Any, Any], rps_service: NamedDependency[RpsService], sn: FromPath[str]
) -> Success[str]:
    """Delete the RPS record of an SN, so that the device can be added."""
    return ok(request, await rps_service.delete(principal_of(request), sn))


ROUTES = [set_profile, search_profiles, delete_profile]
