"""`/device-group`: groups of devices on the console."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import Requester
from libs.common.http.console import Page, delete, get, post, put
from libs.common.http.guards import holders
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function
from services.device.groups.service import Groups
from services.device.things.groups import (
    FindGroups,
    GroupNumber,
    GroupRef,
    NamedGroup,
    ShownGroup,
)

READERS = holders(Function.DEVICE_VIEW, Function.DASHBOARD_EDIT)
MANAGERS = holders(Function.DEVICE_GROUP_MANAGE)


@post(
    "/search",
    guards=[READERS],
    example={"name": "roof", "with_device_count": True, "page_size": 100, "page_number": 1},
)
async def find_device_groups(
    principal: Requester, groups: NamedDependency[Groups], data: JSONBody[FindGroups | None] = None
) -> Page[ShownGroup]:
    """The groups of the tenant, the newest first; counts are of devices that the caller sees."""
    return await groups.search(principal, data or FindGroups())


@get("/number", guards=[READERS])
async def count_device_groups(principal: Requester, groups: NamedDependency[Groups]) -> GroupNumber:
    """How many groups there are; at most 1000."""
    return GroupNumber(await groups.count(principal))


@post("/", guards=[MANAGERS], example={"name": "Roof"})
async def create_device_group(
    principal: Requester, groups: NamedDependency[Groups], data: JSONBody[NamedGroup]
) -> GroupRef:
    """Make a group without devices."""
    group_id = await groups.create(principal, data.name)
    return GroupRef(str(group_id))


@put("/{group_id:str}", guards=[MANAGERS])
async def rename_device_group(
    principal: Requester,
    groups: NamedDependency[Groups],
    group_id: PathId,
    data: JSONBody[NamedGroup],
) -> None:
    """Give a group another name."""
    await groups.rename(principal, group_id, data.name)


@delete("/{group_id:str}", guards=[MANAGERS])
async def delete_device_group(
    principal: Requester, groups: NamedDependency[Groups], group_id: PathId
) -> None:
    """Delete a group; its devices stay, in no group, and its grants end."""
    await groups.delete(principal, group_id)


ROUTER = Router("/device-group", route_handlers=operations_of(globals()), tags=["Device groups"])
