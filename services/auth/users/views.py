"""What is shown of users: their roles by name, and the menus that are open to them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from libs.common.clock import to_ms
from libs.common.store.mongo import Database
from services.auth.menus.schemas import Menu
from services.auth.menus.tree import with_ancestors
from services.auth.tenants.seed import SUPER_ADMIN
from services.auth.users.schemas import ShownRole, ShownUser, StoredUser


class HeldRole(NamedTuple):
    """A role as far as its users are shown."""

    id: int
    name: str
    menus: Sequence[int]


Roles = Mapping[int, HeldRole]
"""Roles by id; a user may have an id whose role was deleted a moment ago."""


class HeldRoles:
    """Reads the collection `roles` for views of users."""

    def __init__(self, database: Database) -> None:
        self._roles = database["roles"]

    async def of(self, tenant: str, users: Iterable[StoredUser]) -> Roles:
        """The roles of some users."""
        ids = {role for user in users for role in user.roles}
        query = {"tenant": tenant, "_id": {"$in": list(ids)}}
        found = self._roles.find(query, {"name": 1, "menus": 1})
        return {
            document["_id"]: HeldRole(document["_id"], document["name"], document["menus"])
            async for document in found
        }


def shown_user(user: StoredUser, roles: Roles) -> ShownUser:
    """A user in a list."""
    return ShownUser(
        tenant_id=user.tenant,
        user_id=str(user.id),
        nickname=user.nickname,
        email=user.email,
        created_at=milliseconds(user),
        enabled=user.enabled,
        roles=shown_roles(user, roles) or None,
    )


def milliseconds(user: StoredUser) -> str:
    """When the user was added, as this API writes it for users."""
    return str(to_ms(user.created_at))


def shown_roles(user: StoredUser, roles: Roles) -> list[ShownRole]:
    """The roles of one user on the wire."""
    return [ShownRole(str(role.id), role.name) for role in _held(user, roles)]


def is_super_admin(user: StoredUser, roles: Roles) -> bool:
    """Tell whether one of the user's roles is `super_admin`."""
    return any(role.name == SUPER_ADMIN for role in _held(user, roles))


def open_menus(user: StoredUser, roles: Roles, menus: Sequence[Menu]) -> Sequence[Menu]:
    """What a user's roles open, with the pages that lead there; all for a super-admin."""
    if is_super_admin(user, roles):
        return menus
    return with_ancestors(menus, [menu for role in _held(user, roles) for menu in role.menus])


def _held(user: StoredUser, roles: Roles) -> list[HeldRole]:
    return [roles[role] for role in user.roles if role in roles]
