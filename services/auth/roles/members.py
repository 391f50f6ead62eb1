"""Adds users to roles and takes them out."""

from collections.abc import Sequence
from typing import Protocol

from libs.common.errors import Conflict
from libs.common.identity import Caller
from services.auth.changes import Change, Changes
from services.auth.roles.schemas import Person, Search
from services.auth.roles.service import RoleService, listed
from services.auth.tenants.seed import SUPER_ADMIN


class People(Protocol):
    """Where it stands which users have a role."""

    async def with_role(
        self, tenant: str, role_id: int, wanted: Search
    ) -> tuple[list[Person], int]:
        """The page of the role's users, and how many there are."""

    async def without_role(
        self, tenant: str, role_id: int, wanted: Search
    ) -> tuple[list[Person], int]:
        """The page of the tenant's users who do not have the role, and how many there are."""

    async def add(self, tenant: str, role_id: int, ids: Sequence[int], change: Change) -> list[int]:
        """Give a role to users; return those of `ids` who had it not and have it now."""

    async def remove(
        self, tenant: str, role_id: int, ids: Sequence[int], change: Change
    ) -> list[int]:
        """Take a role from users; return those of `ids` who had it."""

    async def somebody_has(self, tenant: str, role_id: int, change: Change) -> bool:
        """Tell whether a user who is not disabled has the role."""


class MemberService:
    """The users of the roles of the caller's tenant; each raises `NotFound` without the role."""

    def __init__(self, changes: Changes, roles: RoleService, people: People) -> None:
        self._changes = changes
        self._roles = roles
        self._people = people

    async def members(
        self, caller: Caller, role_id: int, wanted: Search
    ) -> tuple[list[Person], int]:
        """The page of the role's users, and how many match in all."""
        await self._roles.get(caller, role_id)
        return await self._people.with_role(caller.principal.tenant, role_id, wanted)

    async def candidates(
        self, caller: Caller, role_id: int, wanted: Search
    ) -> tuple[list[Person], int]:
        """The page of the users who could be added, and how many match in all."""
        await self._roles.get(caller, role_id)
        return await self._people.without_role(caller.principal.tenant, role_id, wanted)

    async def add(self, caller: Caller, role_id: int, ids: Sequence[int]) -> None:
        """Give a role to users; those who have it or do not exist are passed over."""
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            role = await self._roles.get(caller, role_id, change)
            added = await self._people.add(tenant, role_id, ids, change)
            if added:
                change.record_access(
                    "members_added", role.subject, after={"userIds": listed(added)}
                )

        await self._changes.run(caller, work)

    async def remove(self, caller: Caller, role_id: int, ids: Sequence[int]) -> None:
        """Take a role from users; those who do not have it are passed over.

        Raises `Conflict` when nobody would be left who can administer the tenant.
        """
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            role = await self._roles.get(caller, role_id, change)
            removed = await self._people.remove(tenant, role_id, ids, change)
            if not removed:
                return
            if role.name == SUPER_ADMIN and not await self._people.somebody_has(
                tenant, role_id, change
            ):
                raise Conflict("the last super-admin cannot be taken out", field="user_ids")
            change.record_access(
                "members_removed", role.subject, before={"userIds": listed(removed)}
            )

        await self._changes.run(caller, work)
