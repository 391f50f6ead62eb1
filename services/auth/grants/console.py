"""`/user/roles/{role_id}`: the resources of roles, for super-admins."""

from dataclasses import dataclass

from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import RequestCaller
from libs.common.http.console import Page, post
from libs.common.http.guards import super_admins
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from services.auth.grants.listings import RoleListings
from services.auth.grants.schemas import (
    CandidateDevice,
    CandidateIntegration,
    GrantedResource,
    ResourceList,
    ResourceSearch,
    RoleDashboard,
    RoleDevice,
    RoleIntegration,
    parse_resources,
)
from services.auth.grants.service import GrantService
from services.auth.roles.console import SearchBody
from services.auth.roles.service import KeywordSearch

GrantServiceDependency = NamedDependency[GrantService]
RoleListingsDependency = NamedDependency[RoleListings]


@dataclass(frozen=True)
class GrantHandlerDependencies:
    """Dependencies of the operations on the resources of roles."""

    grants: GrantService
    listings: RoleListings


@post("/resources")
async def list_role_resources(
    caller: RequestCaller,
    grants: GrantServiceDependency,
    role_id: PathId,
    data: JSONBody[ResourceSearch | None] = None,
) -> list[GrantedResource] | Page[GrantedResource]:
    """List the resources that a role is granted, of one type or of all."""
    search = data or ResourceSearch()
    found, total = await grants.search(caller, role_id, search)
    rows = [GrantedResource(resource_id=str(each.id), resource_type=each.type) for each in found]
    return search.listed(rows, total)


@post("/associate-resource")
async def add_role_resources(
    caller: RequestCaller,
    grants: GrantServiceDependency,
    role_id: PathId,
    data: JSONBody[ResourceList],
) -> dict[str, str]:
    """Grant resources to a role."""
    await grants.add(caller, role_id, parse_resources(data.resources))
    return {}


@post("/disassociate-resource")
async def remove_role_resources(
    caller: RequestCaller,
    grants: GrantServiceDependency,
    role_id: PathId,
    data: JSONBody[ResourceList],
) -> dict[str, str]:
    """Revoke resources of a role by type and id."""
    await grants.remove(caller, role_id, parse_resources(data.resources))
    return {}


@post("/integrations")
async def list_role_integrations(
    caller: RequestCaller,
    listings: RoleListingsDependency,
    role_id: PathId,
    data: SearchBody = None,
) -> list[RoleIntegration] | Page[RoleIntegration]:
    """List the integrations that a role is granted."""
    search = data or KeywordSearch()
    integrations = await listings.list_integrations(caller, role_id, search, granted=True)
    rows = [
        RoleIntegration(
            integration_id=each.id,
            integration_name=each.name,
            device_num=each.devices,
            entity_num=each.entities,
        )
        for each in integrations
    ]
    return search.select_page(rows)


@post("/undistributed-integrations")
async def list_other_integrations(
    caller: RequestCaller,
    listings: RoleListingsDependency,
    role_id: PathId,
    data: SearchBody = None,
) -> list[CandidateIntegration] | Page[CandidateIntegration]:
    """List the integrations that a role is not granted."""
    search = data or KeywordSearch()
    integrations = await listings.list_integrations(caller, role_id, search, granted=False)
    rows = [
        CandidateIntegration(integration_id=each.id, integration_name=each.name)
        for each in integrations
    ]
    return search.select_page(rows)


@post("/devices")
async def list_role_devices(
    caller: RequestCaller,
    listings: RoleListingsDependency,
    role_id: PathId,
    data: SearchBody = None,
) -> list[RoleDevice] | Page[RoleDevice]:
    """List the devices that a role can see, directly, by group or by integration."""
    search = data or KeywordSearch()
    return search.listed(*await listings.list_devices(caller, role_id, search))


@post("/undistributed-devices")
async def list_other_devices(
    caller: RequestCaller,
    listings: RoleListingsDependency,
    role_id: PathId,
    data: SearchBody = None,
) -> list[CandidateDevice] | Page[CandidateDevice]:
    """List the devices that a role cannot see."""
    search = data or KeywordSearch()
    return search.listed(*await listings.list_other_devices(caller, role_id, search))


@post("/dashboards")
async def list_role_dashboards(
    caller: RequestCaller,
    listings: RoleListingsDependency,
    role_id: PathId,
    data: SearchBody = None,
) -> list[RoleDashboard] | Page[RoleDashboard]:
    """List the dashboards that a role is granted."""
    search = data or KeywordSearch()
    dashboards = await listings.list_dashboards(caller, role_id, search, granted=True)
    return search.select_page(dashboards)


@post("/undistributed-dashboards")
async def list_other_dashboards(
    caller: RequestCaller,
    listings: RoleListingsDependency,
    role_id: PathId,
    data: SearchBody = None,
) -> list[RoleDashboard] | Page[RoleDashboard]:
    """List the dashboards that a role is not granted."""
    search = data or KeywordSearch()
    dashboards = await listings.list_dashboards(caller, role_id, search, granted=False)
    return search.select_page(dashboards)


ROUTER = route_operations(
    globals(), "/user/roles/{role_id:str}", guards=[super_admins], tags=["Roles"]
)
