"""Creates, changes, finds and deletes roles, and sets what they let their users do."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from libs.common.errors import Conflict, InvalidInput, MalformedRequest, NotFound
from libs.common.identity import Caller
from services.auth.changes import Change, Changes
from services.auth.menus.schemas import Menu
from services.auth.names import checked_name
from services.auth.roles.schemas import Role, RoleBody, RoleCounts, Search
from services.auth.tenants.seed import SUPER_ADMIN

MAX_NAME = 127
"""Most characters of a role's name."""
MAX_DESCRIPTION = 255
LISTED = 1000
"""Most ids that an audit entry lists; events have to fit into a message of the bus."""


class Store(Protocol):
    """Where roles are kept."""

    async def get(self, tenant: str, role_id: int, change: Change | None = None) -> Role | None:
        """One role of a tenant."""

    async def search(self, tenant: str, wanted: Search) -> tuple[list[Role], int]:
        """The page of the roles whose name contains the keyword, and how many there are."""

    async def counts(self, tenant: str, ids: Sequence[int]) -> dict[int, RoleCounts]:
        """Users and granted integrations of roles."""

    async def has_users(self, tenant: str, role_id: int, change: Change) -> bool:
        """Tell whether any user has the role."""

    async def insert(self, tenant: str, role: Role, change: Change) -> None:
        """Add a role; raise `Conflict` when the tenant has one of that name."""

    async def update(self, tenant: str, role: Role, change: Change) -> None:
        """Set name, description and menus; raise `Conflict` when another one has the name."""

    async def delete(self, tenant: str, role_id: int, change: Change) -> None:
        """Remove a role with its grants."""


class Menus(Protocol):
    """Where menus are kept."""

    async def of_ids(
        self, tenant: str, ids: Sequence[int], change: Change | None = None
    ) -> list[Menu]:
        """The entries of a tenant that have one of `ids`, by rising id."""


class RoleService:
    """The roles of the caller's tenant."""

    def __init__(
        self,
        changes: Changes,
        store: Store,
        menus: Menus,
        next_id: Callable[[], Awaitable[int]],
    ) -> None:
        self._changes = changes
        self._store = store
        self._menus = menus
        self._next_id = next_id

    async def search(
        self, caller: Caller, wanted: Search
    ) -> tuple[list[tuple[Role, RoleCounts]], int]:
        """The page that is wanted, with counts, and how many roles match in all."""
        tenant = caller.principal.tenant
        roles, total = await self._store.search(tenant, wanted)
        counts = await self._store.counts(tenant, [role.id for role in roles])
        return [(role, counts[role.id]) for role in roles], total

    async def get(self, caller: Caller, role_id: int, change: Change | None = None) -> Role:
        """One role; raise `NotFound`."""
        role = await self._store.get(caller.principal.tenant, role_id, change)
        if role is None:
            raise NotFound(
                f"there is no role {role_id}", field="role_id", code="role_does_not_exit"
            )
        return role

    async def create(self, caller: Caller, wanted: RoleBody) -> int:
        """Add a role without users, menus and grants; raise `InvalidInput` or `Conflict`."""
        role = Role(
            id=await self._next_id(),
            name=checked_name(wanted.name, "name", MAX_NAME),
            description=_description(wanted.description or ""),
            created_at=datetime.now(UTC),
        )

        async def work(change: Change) -> None:
            await self._store.insert(caller.principal.tenant, role, change)
            change.record_access("created", role.subject, after=_told(role))

        await self._changes.run(caller, work)
        return role.id

    async def update(self, caller: Caller, role_id: int, wanted: RoleBody) -> None:
        """Rename or describe a role; raise `InvalidInput`, `NotFound` or `Conflict`."""
        name = checked_name(wanted.name, "name", MAX_NAME)
        description = None if wanted.description is None else _description(wanted.description)

        async def work(change: Change) -> None:
            before = await self.get(caller, role_id, change)
            if before.name == SUPER_ADMIN != name:
                raise MalformedRequest("super admin not allowed to rename", field="name")
            after = msgspec.structs.replace(
                before,
                name=name,
                description=before.description if description is None else description,
            )
            await self._store.update(caller.principal.tenant, after, change)
            change.record_access("updated", after.subject, _told(before), _told(after))

        await self._changes.run(caller, work)

    async def delete(self, caller: Caller, role_id: int) -> None:
        """Remove a role with its grants; raise `NotFound`, or `Conflict` while it has users."""
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            role = await self.get(caller, role_id, change)
            if role.name == SUPER_ADMIN:
                raise MalformedRequest("super admin not allowed to delete", field="role_id")
            if await self._store.has_users(tenant, role_id, change):
                raise Conflict(
                    "the role still has users", field="role_id", code="role_still_has_user"
                )
            await self._store.delete(tenant, role_id, change)
            change.record_access("deleted", role.subject, before=_told(role))

        await self._changes.run(caller, work)

    async def menus(self, caller: Caller, role_id: int) -> list[Menu]:
        """The menus that are stored with a role, by rising id; raise `NotFound`."""
        role = await self.get(caller, role_id)
        return await self._menus.of_ids(caller.principal.tenant, role.menus)

    async def set_menus(self, caller: Caller, role_id: int, ids: Sequence[int]) -> None:
        """Replace the menus of a role by those of `ids` that there are; raise `NotFound`."""
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            before = await self.get(caller, role_id, change)
            known = await self._menus.of_ids(tenant, ids, change)
            after = msgspec.structs.replace(before, menus=tuple(menu.id for menu in known))
            await self._store.update(tenant, after, change)
            change.record_access(
                "menus_set",
                after.subject,
                {"menuIds": listed(before.menus)},
                {"menuIds": listed(after.menus)},
            )

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
