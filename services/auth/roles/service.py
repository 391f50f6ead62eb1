"""Creates, changes, finds and deletes roles: what they let their users do, and who has them."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from libs.common.errors import Conflict, InvalidInput, MalformedRequest, NotFound
from libs.common.http.console import name_of
from libs.common.identity import Caller
from libs.common.store.mongo import Session
from services.auth.accounts import Accounts
from services.auth.accounts.menus import Menu
from services.auth.accounts.roles import SUPER_ADMIN, Role
from services.auth.accounts.users import Person
from services.auth.changes import Change, Changes
from services.auth.menus.service import visible_to
from services.auth.roles.schemas import RoleBody, RoleCounts, Search

MAX_NAME = 127
"""Most characters of a role's name."""
MAX_DESCRIPTION = 255
LISTED = 1000
"""Most ids that an audit entry lists; events have to fit into a message of the bus."""


class RoleService:
    """The roles of the caller's tenant; what names a role raises `NotFound` without it."""

    def __init__(
        self, changes: Changes, accounts: Accounts, next_id: Callable[[], Awaitable[int]]
    ) -> None:
        self._changes = changes
        self._roles = accounts.roles
        self._users = accounts.users
        self._menus = accounts.menus
        self._grants = accounts.grants
        self._next_id = next_id

    async def search(
        self, caller: Caller, wanted: Search
    ) -> tuple[list[tuple[Role, RoleCounts]], int]:
        """The page that is wanted, with counts, and how many roles match in all."""
        tenant = caller.principal.tenant
        roles, total = await self._roles.search(tenant, wanted.keyword or "", wanted)
        ids = [role.id for role in roles]
        users = await self._users.count_by_role(tenant, ids)
        integrations = await self._grants.count_integrations(tenant, ids)
        return [
            (role, RoleCounts(users.get(role.id, 0), integrations.get(role.id, 0)))
            for role in roles
        ], total

    async def get(self, caller: Caller, role_id: int, session: Session | None = None) -> Role:
        """One role."""
        role = await self._roles.get(caller.principal.tenant, role_id, session)
        if role is None:
            raise NotFound(
                f"there is no role {role_id}", field="role_id", code="role_does_not_exit"
            )
        return role

    async def create(self, caller: Caller, wanted: RoleBody) -> int:
        """Add a role without users, menus and grants; raise `InvalidInput` or `Conflict`."""
        role = Role(
            id=await self._next_id(),
            name=name_of(wanted.name, most=MAX_NAME),
            description=_description(wanted.description or ""),
            created_at=datetime.now(UTC),
        )

        async def work(change: Change) -> None:
            await change.reserve("roles")
            await self._roles.insert(caller.principal.tenant, role, change.session)
            change.record_access("created", role.subject, after=_told(role))

        await self._changes.run(caller, work)
        return role.id

    async def update(self, caller: Caller, role_id: int, wanted: RoleBody) -> None:
        """Rename or describe a role; raise `InvalidInput` or `Conflict`."""
        name = name_of(wanted.name, most=MAX_NAME)
        description = None if wanted.description is None else _description(wanted.description)

        async def work(change: Change) -> None:
            before = await self.get(caller, role_id, change.session)
            if before.name == SUPER_ADMIN != name:
                raise MalformedRequest("super admin not allowed to rename", field="name")
            after = msgspec.structs.replace(
                before,
                name=name,
                description=before.description if description is None else description,
            )
            await self._roles.update(caller.principal.tenant, after, change.session)
            change.record_access("updated", after.subject, _told(before), _told(after))

        await self._changes.run(caller, work)

    async def delete(self, caller: Caller, role_id: int) -> None:
        """Remove a role with its grants; raise `Conflict` while it has users."""
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            role = await self.get(caller, role_id, change.session)
            if role.name == SUPER_ADMIN:
                raise MalformedRequest("super admin not allowed to delete", field="role_id")
            if await self._users.anybody_has(tenant, role_id, change.session):
                raise Conflict(
                    "the role still has users", field="role_id", code="role_still_has_user"
                )
            await self._roles.delete(tenant, role_id, change.session)
            await self._grants.delete_role(tenant, role_id, change.session)
            change.record_access("deleted", role.subject, before=_told(role))

        await self._changes.run(caller, work)

    async def menus(self, caller: Caller, role_id: int) -> list[Menu]:
        """The menus that are stored with a role and known to the caller's console, by rising id."""
        role = await self.get(caller, role_id)
        menus = await self._menus.all(caller.principal.tenant)
        return [menu for menu in visible_to(caller.principal, menus) if menu.id in role.menus]

    async def set_menus(self, caller: Caller, role_id: int, ids: Sequence[int]) -> None:
        """Replace the menus of a role by those of `ids` that exist.

        Menus that the caller's console does not know stay with the role.
        """
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            before = await self.get(caller, role_id, change.session)
            menus = await self._menus.all(tenant, change.session)
            visible = {menu.id for menu in visible_to(caller.principal, menus)}
            kept = {*ids, *(menu_id for menu_id in before.menus if menu_id not in visible)}
            chosen = tuple(menu.id for menu in menus if menu.id in kept)
            after = msgspec.structs.replace(before, menus=chosen)
            await self._roles.update(tenant, after, change.session)
            change.record_access(
                "menus_set",
                after.subject,
                {"menuIds": listed(before.menus)},
                {"menuIds": listed(after.menus)},
            )

        await self._changes.run(caller, work)

    async def members(
        self, caller: Caller, role_id: int, wanted: Search, *, having: bool = True
    ) -> tuple[list[Person], int]:
        """The page of the users who have a role, or could get it, and how many match in all."""
        await self.get(caller, role_id)
        tenant, keyword = caller.principal.tenant, wanted.keyword or ""
        return await self._users.search_people(tenant, role_id, keyword, wanted, having=having)

    async def add_members(self, caller: Caller, role_id: int, ids: Sequence[int]) -> None:
        """Give a role to users; those who have it or do not exist are passed over."""
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            role = await self.get(caller, role_id, change.session)
            added = await self._users.add_role(tenant, role_id, ids, change.session)
            if added:
                told = {"userIds": listed(added)}
                change.record_access("members_added", role.subject, after=told)

        await self._changes.run(caller, work)

    async def remove_members(self, caller: Caller, role_id: int, ids: Sequence[int]) -> None:
        """Take a role from users; those who do not have it are passed over.

        Raises `Conflict` when nobody would be left who can administer the tenant.
        """
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            role = await self.get(caller, role_id, change.session)
            removed = await self._users.remove_role(tenant, role_id, ids, change.session)
            if not removed:
                return
            if role.name == SUPER_ADMIN and not await self._users.anybody_has(
                tenant, role_id, change.session, enabled=True
            ):
                raise Conflict("the last super-admin cannot be taken out", field="user_ids")
            told = {"userIds": listed(removed)}
            change.record_access("members_removed", role.subject, before=told)

        await self._changes.run(caller, work)


def listed(ids: Sequence[Any]) -> dict[str, Any]:
    """Ids as the audit log has them: how many, and the first of them."""
    return {"count": len(ids), "first": list(ids[:LISTED])}


def _description(text: str) -> str:
    if len(text) > MAX_DESCRIPTION:
        raise InvalidInput(f"must have at most {MAX_DESCRIPTION} characters", field="description")
    return text


def _told(role: Role) -> dict[str, Any]:
    return {"name": role.name, "description": role.description}
