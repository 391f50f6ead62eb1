"""Creates, changes, finds and deletes roles, with their menus and users."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from libs.common.errors import Conflict, InvalidInput, MalformedRequest, NotFound
from libs.common.http.console import Ids, PageRequest, ResponseModel, parse_name
from libs.common.identity import Caller
from libs.common.store.mongo import Session
from services.auth.accounts import Accounts
from services.auth.accounts.roles import SUPER_ADMIN_ROLE_NAME, Menu, Role
from services.auth.accounts.users import UserSummary
from services.auth.changes import ChangeRunner, ChangeTransaction
from services.auth.menus import filter_supported_menus

Keyword = Annotated[str, msgspec.Meta(max_length=255)]
"""Part of a name, ignoring case."""


class RoleCounts(msgspec.Struct, frozen=True):
    """The number of users of a role, and of integrations that the role is granted."""

    users: int = 0
    integrations: int = 0


class SaveRole(msgspec.Struct, kw_only=True):
    """Body of `POST /user/roles` and `PUT /user/roles/{role_id}`.

    An update without `description` does not change it.
    """

    name: str
    description: str | None = None


class KeywordSearch(PageRequest, kw_only=True):
    """Body of searches by keyword. An empty keyword matches everything."""

    keyword: Keyword | None = None


class UserIds(msgspec.Struct):
    """Body of `associate-user` and `disassociate-user`."""

    user_ids: Ids
    """Ids of users."""


class MenuIds(msgspec.Struct):
    """All menus of a role, as the body of `associate-menu`."""

    menu_ids: Ids
    """Ids of all menus of the role. Other menus are removed from it."""


class CreatedRole(msgspec.Struct):
    """Response of `POST /user/roles`."""

    role_id: str


class RoleResponse(ResponseModel):
    """A role. Counts are strings; `created_at` is in ms."""

    role_id: str
    name: str
    description: str
    created_at: str
    user_role_count: str
    """Number of users with the role, as text."""
    role_integration_count: str
    """Number of granted integrations, as text."""


class RoleMember(ResponseModel):
    """A user of a role."""

    role_id: str
    user_id: str
    user_nickname: str
    user_email: str


class CandidateUser(ResponseModel):
    """A user who does not have the role."""

    user_id: str
    nickname: str
    email: str


MAX_NAME_CHARACTERS = 127
"""Maximum characters of a role's name."""
MAX_DESCRIPTION_CHARACTERS = 255
MAX_AUDITED_IDS = 1000
"""Maximum ids in an audit entry, because events must fit into a NATS message."""


@dataclass(frozen=True)
class RoleService:
    """The roles of the caller's tenant. Operations on one role raise `NotFound`."""

    changes: ChangeRunner
    accounts: Accounts

    async def search(
        self, caller: Caller, request: KeywordSearch
    ) -> tuple[list[tuple[Role, RoleCounts]], int]:
        """Return one page of matching roles with counts, and the number of all matches."""
        roles, total = await self.accounts.roles.search(
            caller.tenant, request.keyword or "", request
        )
        ids = [role.id for role in roles]
        users = await self.accounts.users.count_by_role(caller.tenant, ids)
        integrations = await self.accounts.grants.count_integrations(caller.tenant, ids)
        return [
            (role, RoleCounts(users.get(role.id, 0), integrations.get(role.id, 0)))
            for role in roles
        ], total

    async def get(self, caller: Caller, role_id: int, session: Session | None = None) -> Role:
        """Return one role."""
        role = await self.accounts.roles.get(caller.tenant, role_id, session)
        if role is None:
            raise NotFound(
                f"role {role_id} does not exist", field="role_id", code="role_does_not_exit"
            )
        return role

    async def create(self, caller: Caller, request: SaveRole) -> int:
        """Add a role without users, menus and grants; return its id.

        Raises `InvalidInput`, `Conflict` or `TooManyRequests`.
        """
        role = Role(
            id=await self.accounts.roles.next_id(),
            name=parse_name(request.name, maximum=MAX_NAME_CHARACTERS),
            description=_validate_description(request.description or ""),
            created_at=datetime.now(UTC),
        )

        async def insert_role(change: ChangeTransaction) -> None:
            await change.reserve("roles")
            await self.accounts.roles.insert(caller.tenant, role, change.session)
            change.record_access_change("created", role.audit_target, after=_audit_fields(role))

        await self.changes.run(caller, insert_role)
        return role.id

    async def update(self, caller: Caller, role_id: int, request: SaveRole) -> None:
        """Change name and description of a role; raise `InvalidInput` or `Conflict`."""
        name = parse_name(request.name, maximum=MAX_NAME_CHARACTERS)
        description = (
            None if request.description is None else _validate_description(request.description)
        )

        async def update_role(change: ChangeTransaction) -> None:
            before = await self.get(caller, role_id, change.session)
            if before.name == SUPER_ADMIN_ROLE_NAME != name:
                raise MalformedRequest("the super-admin role cannot be renamed", field="name")
            after = msgspec.structs.replace(
                before,
                name=name,
                description=before.description if description is None else description,
            )
            await self.accounts.roles.update(caller.tenant, after, change.session)
            change.record_access_change(
                "updated", after.audit_target, _audit_fields(before), _audit_fields(after)
            )

        await self.changes.run(caller, update_role)

    async def delete(self, caller: Caller, role_id: int) -> None:
        """Delete a role and its grants; raise `Conflict` if it has users.

        Raises `MalformedRequest` for the role `super_admin`.
        """

        async def delete_role(change: ChangeTransaction) -> None:
            role = await self.get(caller, role_id, change.session)
            if role.name == SUPER_ADMIN_ROLE_NAME:
                raise MalformedRequest("the super-admin role cannot be deleted", field="role_id")
            if await self.accounts.users.exists(caller.tenant, change.session, roles=role_id):
                raise Conflict(
                    "the role still has users", field="role_id", code="role_still_has_user"
                )
            await self.accounts.roles.delete(caller.tenant, role_id, change.session)
            await self.accounts.grants.delete_all_of_role(caller.tenant, role_id, change.session)
            change.record_access_change("deleted", role.audit_target, before=_audit_fields(role))

        await self.changes.run(caller, delete_role)

    async def list_menus(self, caller: Caller, role_id: int) -> list[Menu]:
        """Return a role's menus that the caller's console supports, sorted by id."""
        role = await self.get(caller, role_id)
        menus = await self.accounts.menus.list_all(caller.tenant)
        return [
            menu
            for menu in filter_supported_menus(caller.principal, menus)
            if menu.id in role.menus
        ]

    async def set_menus(self, caller: Caller, role_id: int, ids: Sequence[int]) -> None:
        """Replace the menus of a role, ignoring unknown ids.

        Menus that the caller's console does not support stay assigned.
        """

        async def replace_menus(change: ChangeTransaction) -> None:
            before = await self.get(caller, role_id, change.session)
            menus = await self.accounts.menus.list_all(caller.tenant, change.session)
            visible = {menu.id for menu in filter_supported_menus(caller.principal, menus)}
            menu_ids = {*ids, *(menu_id for menu_id in before.menus if menu_id not in visible)}
            chosen = tuple(menu.id for menu in menus if menu.id in menu_ids)
            after = msgspec.structs.replace(before, menus=chosen)
            await self.accounts.roles.update(caller.tenant, after, change.session)
            change.record_access_change(
                "menus_set",
                after.audit_target,
                {"menuIds": summarize_ids(before.menus)},
                {"menuIds": summarize_ids(after.menus)},
            )

        await self.changes.run(caller, replace_menus)

    async def list_members(
        self, caller: Caller, role_id: int, request: KeywordSearch, *, having: bool = True
    ) -> tuple[list[UserSummary], int]:
        """Return one page of users with a role, and their total number.

        With `having=False`, return the users without the role.
        """
        await self.get(caller, role_id)
        tenant, keyword = caller.tenant, request.keyword or ""
        return await self.accounts.users.search_by_role(
            tenant, role_id, keyword, request, having=having
        )

    async def add_members(self, caller: Caller, role_id: int, ids: Sequence[int]) -> None:
        """Assign a role to users, ignoring unknown ids."""

        async def add_role(change: ChangeTransaction) -> None:
            role = await self.get(caller, role_id, change.session)
            added = await self.accounts.users.add_role(caller.tenant, role_id, ids, change.session)
            if added:
                after = {"userIds": summarize_ids(added)}
                change.record_access_change("members_added", role.audit_target, after=after)

        await self.changes.run(caller, add_role)

    async def remove_members(self, caller: Caller, role_id: int, ids: Sequence[int]) -> None:
        """Remove a role from users, ignoring users who do not have the role.

        Raises `Conflict` if the tenant would lose its last enabled super-admin.
        """

        async def remove_role(change: ChangeTransaction) -> None:
            role = await self.get(caller, role_id, change.session)
            removed = await self.accounts.users.remove_role(
                caller.tenant, role_id, ids, change.session
            )
            if not removed:
                return
            if role.name == SUPER_ADMIN_ROLE_NAME and not await self.accounts.users.exists(
                caller.tenant, change.session, roles=role_id, enabled=True
            ):
                raise Conflict("the last enabled super-admin must keep the role", field="user_ids")
            before = {"userIds": summarize_ids(removed)}
            change.record_access_change("members_removed", role.audit_target, before=before)

        await self.changes.run(caller, remove_role)


def summarize_ids(ids: Sequence[Any]) -> dict[str, Any]:
    """Return the number of ids and the first ones, as fields of an audit entry."""
    return {"count": len(ids), "first": list(ids[:MAX_AUDITED_IDS])}


def _validate_description(text: str) -> str:
    if len(text) > MAX_DESCRIPTION_CHARACTERS:
        raise InvalidInput(
            f"must have at most {MAX_DESCRIPTION_CHARACTERS} characters", field="description"
        )
    return text


def _audit_fields(role: Role) -> dict[str, Any]:
    return {"name": role.name, "description": role.description}
