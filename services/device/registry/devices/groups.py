"""`/device-group`: groups of devices in the management API."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.contracts.names import DescribedGroups, DescribeGroups
from libs.common.http import RequestPrincipal
from libs.common.http.console import Page, delete, get, post, put
from libs.common.http.guards import allow_holders
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.identity import Principal
from libs.common.identity.functions import Function
from libs.common.identity.grants import GrantReader, GrantsClient
from libs.common.scheduling.turns import TenantSteps, take_turns
from services.device.things.device_store import DeviceStore
from services.device.things.groups import (
    FindGroups,
    GroupCount,
    GroupRef,
    GroupResponse,
    GroupStore,
    SaveGroup,
)
from services.device.things.visibility import MATCHES_NOTHING, condition_without_groups

CONCURRENT_TENANTS = 2
"""Tenants whose interrupted deletions are completed concurrently."""
SEARCH_INTERVAL_SECONDS = 60.0
"""Seconds between two searches for interrupted deletions."""


@dataclass(frozen=True)
class GroupService:
    """Lists and deletes groups."""

    store: GroupStore
    devices: DeviceStore
    grants: GrantReader
    grants_rpc: GrantsClient

    async def search(self, principal: Principal, request: FindGroups) -> Page[GroupResponse]:
        """Return a page of groups, with numbers of visible devices if requested."""
        found, total = await self.store.search(principal.tenant, request)
        counts: dict[int, int] = {}
        if request.with_device_count and found:
            counts = await self._count_devices(principal, found.keys())
        rows = [
            GroupResponse(id=str(group), name=name, device_count=counts.get(group))
            for group, name in found.items()
        ]
        return Page(page_size=request.size, page_number=request.number, total=total, content=rows)

    async def _count_devices(self, principal: Principal, groups: Collection[int]) -> dict[int, int]:
        """Return the numbers of devices that a user may see, by group."""
        grants = await self.grants.read(principal)
        whole = groups if grants.everything else grants.resources.groups & set(groups)
        others, rest = set(groups) - set(whole), condition_without_groups(grants)
        parts = [(whole, {}), (others, rest)] if rest != MATCHES_NOTHING else [(whole, {})]
        counts = await asyncio.gather(
            *(
                self.devices.queries.count_by_group(principal.tenant, some, condition)
                for some, condition in parts
                if some
            )
        )
        return {group: number for part in counts for group, number in part.items()}

    async def delete(self, principal: Principal, group_id: int) -> None:
        """Delete a group and its grants; its devices stay; raise `NotFound`.

        The group disappears immediately; `finish_deletions` completes an interrupted deletion.
        """
        await self.store.mark_deleted(principal.tenant, group_id)
        await self._finish_deletion(principal.tenant, group_id)

    async def run(self) -> None:
        """Complete interrupted deletions periodically; run by the lease holder."""
        await take_turns(
            "groups",
            CONCURRENT_TENANTS,
            self.store.list_deleting_tenants,
            self.finish_deletions,
            SEARCH_INTERVAL_SECONDS,
        )

    async def finish_deletions(self, tenant: str) -> TenantSteps:
        """Complete the interrupted deletions of a tenant."""
        for group_id in await self.store.list_deleting(tenant):
            await self._finish_deletion(tenant, group_id)
            yield

    async def describe_groups(self, request: DescribeGroups) -> DescribedGroups:
        """Return those of the requested groups that exist; `auth` then grants them."""
        return DescribedGroups(list(await self.store.find_names(request.tenant, request.ids)))

    async def _finish_deletion(self, tenant: str, group_id: int) -> None:
        await self.grants_rpc.forget_group(tenant, group_id)
        await self.devices.empty_group(tenant, group_id)
        await self.store.delete(group_id)


READERS = allow_holders(Function.DEVICE_VIEW, Function.DASHBOARD_EDIT)
MANAGERS = allow_holders(Function.DEVICE_GROUP_MANAGE)


@post(
    "/search",
    guards=[READERS],
    example={"name": "roof", "with_device_count": True, "page_size": 100, "page_number": 1},
)
async def find_device_groups(
    principal: RequestPrincipal,
    groups: NamedDependency[GroupService],
    data: JSONBody[FindGroups | None] = None,
) -> Page[GroupResponse]:
    """List the groups of the tenant, the newest first.

    Counts include only devices that the caller may see.
    """
    return await groups.search(principal, data or FindGroups())


@get("/number", guards=[READERS])
async def count_device_groups(
    principal: RequestPrincipal, groups: NamedDependency[GroupService]
) -> GroupCount:
    """Return the number of groups; at most 1000."""
    return GroupCount(await groups.store.count(principal.tenant))


@post("/", guards=[MANAGERS], example={"name": "Roof"})
async def create_device_group(
    principal: RequestPrincipal, groups: NamedDependency[GroupService], data: JSONBody[SaveGroup]
) -> GroupRef:
    """Create a group without devices."""
    group_id = await groups.store.add(principal.tenant, data.name.strip())
    return GroupRef(str(group_id))


@put("/{group_id:str}", guards=[MANAGERS])
async def rename_device_group(
    principal: RequestPrincipal,
    groups: NamedDependency[GroupService],
    group_id: PathId,
    data: JSONBody[SaveGroup],
) -> None:
    """Rename a group."""
    await groups.store.rename(principal.tenant, group_id, data.name.strip())


@delete("/{group_id:str}", guards=[MANAGERS])
async def delete_device_group(
    principal: RequestPrincipal, groups: NamedDependency[GroupService], group_id: PathId
) -> None:
    """Delete a group and its grants; its devices stay."""
    await groups.delete(principal, group_id)


ROUTER = route_operations(globals(), "/device-group", tags=["Device groups"])
