"""`/user/roles/{role_id}`: the resources of roles, for super-admins."""

from collections.abc import Mapping
from typing import Any

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.contracts.names import DescribedDashboard
from libs.common.http import HttpRequest
from libs.common.http.console import Page, post
from libs.common.http.guards import super_admins
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.http.request import caller_of
from services.auth.accounts.users import Person
from services.auth.grants.listings import DeviceRow, Listings
from services.auth.grants.resources import resources_of
from services.auth.grants.schemas import (
    CandidateDevice,
    CandidateIntegration,
    ResourceList,
    ResourceSearch,
    RoleDashboard,
    RoleDevice,
    RoleIntegration,
    ShownResource,
)
from services.auth.grants.service import GrantService
from services.auth.roles.routes import SearchBody
from services.auth.roles.schemas import Search

Grants = NamedDependency[GrantService]
Lists = NamedDependency[Listings]


@post("/resources")
async def list_role_resources(
    request: HttpRequest,
    grants: Grants,
    role_id: PathId,
    data: JSONBody[ResourceSearch | None] = None,
) -> list[ShownResource] | Page[ShownResource]:
    """What a role is granted, of one type or of all."""
    wanted = data or ResourceSearch()
    found, total = await grants.search(caller_of(request), role_id, wanted)
    shown = [ShownResource(resource_id=str(each.id), resource_type=each.type) for each in found]
    return wanted.listed(shown, total)


@post("/associate-resource")
async def add_role_resources(
    request: HttpRequest, grants: Grants, role_id: PathId, data: JSONBody[ResourceList]
) -> dict[str, str]:
    """Grant resources to a role."""
    await grants.add(caller_of(request), role_id, resources_of(data.resources))
    return {}


@post("/disassociate-resource")
async def remove_role_resources(
    request: HttpRequest, grants: Grants, role_id: PathId, data: JSONBody[ResourceList]
) -> dict[str, str]:
    """Take resources of exactly these types and ids from a role."""
    await grants.remove(caller_of(request), role_id, resources_of(data.resources))
    return {}


@post("/integrations")
async def list_role_integrations(
    request: HttpRequest, listings: Lists, role_id: PathId, data: SearchBody = None
) -> list[RoleIntegration] | Page[RoleIntegration]:
    """The integrations that a role is granted."""
    wanted = data or Search()
    found = await listings.integrations(caller_of(request), role_id, wanted)
    shown = [
        RoleIntegration(
            integration_id=each.id,
            integration_name=each.name,
            device_num=each.devices,
            entity_num=each.entities,
        )
        for each in found
    ]
    return wanted.cut(shown)


@post("/undistributed-integrations")
async def list_other_integrations(
    request: HttpRequest, listings: Lists, role_id: PathId, data: SearchBody = None
) -> list[CandidateIntegration] | Page[CandidateIntegration]:
    """The integrations that a role is not granted."""
    wanted = data or Search()
    found = await listings.other_integrations(caller_of(request), role_id, wanted)
    shown = [
        CandidateIntegration(integration_id=each.id, integration_name=each.name) for each in found
    ]
    return wanted.cut(shown)


@post("/devices")
async def list_role_devices(
    request: HttpRequest, listings: Lists, role_id: PathId, data: SearchBody = None
) -> list[RoleDevice] | Page[RoleDevice]:
    """The devices that a role shows, by themselves or through their integration."""
    wanted = data or Search()
    rows, total = await listings.devices(caller_of(request), role_id, wanted)
    shown = [RoleDevice(**_device(row), role_integration=row.through_another) for row in rows]
    return wanted.listed(shown, total)


@post("/undistributed-devices")
async def list_other_devices(
    request: HttpRequest, listings: Lists, role_id: PathId, data: SearchBody = None
) -> list[CandidateDevice] | Page[CandidateDevice]:
    """The devices that a role does not show."""
    wanted = data or Search()
    rows, total = await listings.other_devices(caller_of(request), role_id, wanted)
    return wanted.listed([CandidateDevice(**_device(row)) for row in rows], total)


@post("/dashboards")
async def list_role_dashboards(
    request: HttpRequest, listings: Lists, role_id: PathId, data: SearchBody = None
) -> list[RoleDashboard] | Page[RoleDashboard]:
    """The dashboards that a role is granted."""
    wanted = data or Search()
    found, makers = await listings.dashboards(caller_of(request), role_id, wanted)
    return wanted.cut([_dashboard(each, makers) for each in found])


@post("/undistributed-dashboards")
async def list_other_dashboards(
    request: HttpRequest, listings: Lists, role_id: PathId, data: SearchBody = None
) -> list[RoleDashboard] | Page[RoleDashboard]:
    """The dashboards that a role is not granted."""
    wanted = data or Search()
    found, makers = await listings.other_dashboards(caller_of(request), role_id, wanted)
    return wanted.cut([_dashboard(each, makers) for each in found])


def _device(row: DeviceRow) -> dict[str, Any]:
    device = row.device
    return {
        "device_id": str(device.id),
        "device_name": device.name,
        "created_at": str(device.created_at),
        "integration_id": device.integration,
        "integration_name": row.integration_name,
        **_maker(device.user_id, row.person),
    }


def _dashboard(dashboard: DescribedDashboard, makers: Mapping[int, Person]) -> RoleDashboard:
    return RoleDashboard(
        dashboard_id=str(dashboard.id),
        dashboard_name=dashboard.name,
        created_at=str(dashboard.created_at),
        **_maker(dashboard.user_id, makers.get(dashboard.user_id or 0)),
    )


def _maker(user_id: int | None, person: Person | None) -> dict[str, str | None]:
    return {
        "user_id": None if user_id is None else str(user_id),
        "user_email": person.email if person else None,
        "user_nickname": person.nickname if person else None,
    }


ROUTER = Router(
    "/user/roles/{role_id:str}",
    guards=[super_admins],
    route_handlers=operations_of(globals()),
    tags=["Roles"],
)
