"""`/device-group`: groups of devices on the console."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.contracts.names import DescribedGroups, DescribeGroups
from libs.common.http import RequestPrincipal
from libs.common.http.console import Page, delete, get, post, put
from libs.common.http.guards import holders
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.identity import Principal
from libs.common.identity.functions import Function
from libs.common.identity.grants import GrantReader, GrantsClient
from libs.common.scheduling.turns import Steps, take_turns
from services.device.things.device_store import DeviceStore
from services.device.things.groups import (
    FindGroups,
    GroupNumber,
    GroupRef,
    GroupStore,
    NamedGroup,
    ShownGroup,
)
from services.device.things.visibility import NOTHING, without_groups

WORKERS = 2
"""Tenants that have a turn at a time."""
PERIOD = 60.0
"""Seconds between two looks for deletions that broke off."""


@dataclass(frozen=True)
class Groups:
    """Makes, lists and ends groups."""

    store: GroupStore
    devices: DeviceStore
    grants: GrantReader
    grants_rpc: GrantsClient

    async def search(self, principal: Principal, wanted: FindGroups) -> Page[ShownGroup]:
        """A page of the groups, with the number of the devices that a user sees if asked for."""
        found, total = await self.store.search(principal.tenant, wanted)
        counts: dict[int, int] = {}
        if wanted.with_device_count and found:
            counts = await self._counts(principal, found.keys())
        rows = [
            ShownGroup(id=str(group), name=name, device_count=counts.get(group))
            for group, name in found.items()
        ]
        return Page(page_size=wanted.size, page_number=wanted.number, total=total, content=rows)

    async def _counts(self, principal: Principal, groups: Collection[int]) -> dict[int, int]:
        """How many devices of groups a user sees: all of one that is granted, of others some."""
        grants = await self.grants.read(principal)
        whole = groups if grants.everything else grants.resources.groups & set(groups)
        others, rest = set(groups) - set(whole), without_groups(grants)
        parts = [(whole, {}), (others, rest)] if rest != NOTHING else [(whole, {})]
        counts = await asyncio.gather(
            *(
                self.devices.queries.count_groups(principal.tenant, some, condition)
                for some, condition in parts
                if some
            )
        )
        return {group: number for part in counts for group, number in part.items()}

    async def count(self, principal: Principal) -> int:
        """How many there are."""
        return await self.store.count(principal.tenant)

    async def create(self, principal: Principal, name: str) -> int:
        """Make a group; raise `InvalidInput` when there is one of the name, or too many."""
        return await self.store.add(principal.tenant, name.strip())

    async def rename(self, principal: Principal, group_id: int, name: str) -> None:
        """Give a group another name; raise `NotFound` or `InvalidInput`."""
        await self.store.rename(principal.tenant, group_id, name.strip())

    async def delete(self, principal: Principal, group_id: int) -> None:
        """Delete a group: its devices are in none, and its grants end; raise `NotFound`.

        The group ends at once; should the rest break off, `finish` does it.
        """
        await self.store.mark_deleted(principal.tenant, group_id)
        await self._end(principal.tenant, group_id)

    async def run(self) -> None:
        """Finish deletions that broke off, for ever; run by the lease holder."""
        await take_turns("groups", WORKERS, self.store.list_deleting_tenants, self.finish, PERIOD)

    async def finish(self, tenant: str) -> Steps:
        """Finish the deletions of a tenant that broke off."""
        for group_id in await self.store.list_deleting(tenant):
            await self._end(tenant, group_id)
            yield

    async def describe(self, wanted: DescribeGroups) -> DescribedGroups:
        """Answer `auth`, which grants groups."""
        return DescribedGroups(list(await self.store.names(wanted.tenant, wanted.ids)))

    async def _end(self, tenant: str, group_id: int) -> None:
        await self.grants_rpc.forget_group(tenant, group_id)
        await self.devices.ungroup(tenant, group_id)
        await self.store.delete(group_id)


READERS = holders(Function.DEVICE_VIEW, Function.DASHBOARD_EDIT)
MANAGERS = holders(Function.DEVICE_GROUP_MANAGE)


@post(
    "/search",
    guards=[READERS],
    example={"name": "roof", "with_device_count": True, "page_size": 100, "page_number": 1},
)
async def find_device_groups(
    principal: RequestPrincipal,
    groups: NamedDependency[Groups],
    data: JSONBody[FindGroups | None] = None,
) -> Page[ShownGroup]:
    """The groups of the tenant, the newest first; counts are of devices that the caller sees."""
    return await groups.search(principal, data or FindGroups())


@get("/number", guards=[READERS])
async def count_device_groups(
    principal: RequestPrincipal, groups: NamedDependency[Groups]
) -> GroupNumber:
    """How many groups there are; at most 1000."""
    return GroupNumber(await groups.count(principal))


@post("/", guards=[MANAGERS], example={"name": "Roof"})
async def create_device_group(
    principal: RequestPrincipal, groups: NamedDependency[Groups], data: JSONBody[NamedGroup]
) -> GroupRef:
    """Make a group without devices."""
    group_id = await groups.create(principal, data.name)
    return GroupRef(str(group_id))


@put("/{group_id:str}", guards=[MANAGERS])
async def rename_device_group(
    principal: RequestPrincipal,
    groups: NamedDependency[Groups],
    group_id: PathId,
    data: JSONBody[NamedGroup],
) -> None:
    """Give a group another name."""
    await groups.rename(principal, group_id, data.name)


@delete("/{group_id:str}", guards=[MANAGERS])
async def delete_device_group(
    principal: RequestPrincipal, groups: NamedDependency[Groups], group_id: PathId
) -> None:
    """Delete a group; its devices stay, in no group, and its grants end."""
    await groups.delete(principal, group_id)


ROUTER = Router("/device-group", route_handlers=operations_of(globals()), tags=["Device groups"])
