"""Roles and menus in MongoDB, and the initial menu tree of a tenant.

`roles`: `{_id, tenant, name, description, menus: [menuId], createdAt, updatedAt}`. `users.roles`
holds which users have a role, `grants` which resources it grants.

`menus`: `{_id, tenant, code, name, type, parentId}`; `parentId` is null at the top of the
tree. The menus of the default tenant have the ids of `INITIAL_MENUS`; other tenants get new ids.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from libs.common.errors import Conflict
from libs.common.http.console import PageRequest
from libs.common.identity.functions import Function
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import (
    BulkFailed,
    Database,
    Document,
    Session,
    build_text_condition,
    find_page,
    raise_on_duplicate,
)
from services.auth.accounts.users import ID_BLOCK_SIZE
from services.auth.audit import AuditTarget


class MenuType(StrEnum):
    """A page of the console, or a function on a page."""

    MENU = "MENU"
    FUNCTION = "FUNCTION"


class Menu(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An entry of a tenant's menu tree."""

    id: int = msgspec.field(name="_id")
    code: str
    name: str
    type: MenuType
    parent_id: int | None = None

    @property
    def audit_target(self) -> AuditTarget:
        """Return the entry as an audit log object."""
        return AuditTarget("menu", str(self.id), self.name)


class MenuStore:
    """The collection `menus`."""

    def __init__(self, database: Database) -> None:
        self._menus = database["menus"]
        self.next_id = IdAllocator(database, "menus", len(INITIAL_MENUS)).allocate

    async def list_all(self, tenant: str, session: Session | None = None) -> list[Menu]:
        """Return all entries of a tenant, sorted by id."""
        return await self._find_sorted({"tenant": tenant}, session)

    async def find(
        self, tenant: str, ids: Iterable[int], session: Session | None = None
    ) -> list[Menu]:
        """Return the tenant's entries with one of `ids`, sorted by id."""
        return await self._find_sorted({"_id": {"$in": list(ids)}, "tenant": tenant}, session)

    async def list_function_codes(
        self, tenant: str, ids: Iterable[int], session: Session
    ) -> frozenset[str]:
        """Return the codes of the FUNCTION entries among `ids`."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant, "type": "FUNCTION"}
        cursor = self._menus.find(query, {"code": 1}, session=session)
        return frozenset([menu["code"] async for menu in cursor])

    async def get(self, tenant: str, menu_id: int, session: Session) -> Menu | None:
        """Return one entry of a tenant, or None."""
        menus = await self.find(tenant, [menu_id], session)
        return menus[0] if menus else None

    async def has_children(self, tenant: str, menu_id: int, session: Session) -> bool:
        """Return whether an entry has children."""
        query = {"tenant": tenant, "parentId": menu_id}
        return await self._menus.find_one(query, {"_id": 1}, session=session) is not None

    async def insert(self, tenant: str, menu: Menu, session: Session) -> None:
        """Add an entry; raise `Conflict` if the tenant has one with that code."""
        try:
            await self.insert_all(tenant, [menu], session)
        except BulkFailed as error:
            raise Conflict(
                "a menu has this code already", field="code", code="parameter_syntax_error"
            ) from error

    async def insert_all(self, tenant: str, menus: Iterable[Menu], session: Session) -> None:
        """Add entries to the menus of a tenant."""
        documents = [build_menu_document(tenant, menu) for menu in menus]
        await self._menus.insert_many(documents, session=session)

    async def update(self, tenant: str, menu: Menu, session: Session) -> None:
        """Replace the stored name and type of an entry."""
        await self._menus.update_one(
            {"_id": menu.id, "tenant": tenant},
            {"$set": {"name": menu.name, "type": menu.type.value}},
            session=session,
        )

    async def delete(self, tenant: str, menu_id: int, session: Session) -> None:
        """Delete an entry."""
        await self._menus.delete_one({"_id": menu_id, "tenant": tenant}, session=session)

    async def _find_sorted(self, query: Document, session: Session | None = None) -> list[Menu]:
        documents = await self._menus.find(query, session=session).sort("_id", 1).to_list(None)
        return msgspec.convert(documents, list[Menu])


def build_menu_document(tenant: str, menu: Menu) -> Document:
    """Return the entry as stored in MongoDB."""
    return {"tenant": tenant, **msgspec.to_builtins(menu)}


_ALL_FUNCTION_CODES = frozenset(Function)


def _initial_menu(identity: int, code: str, parent: int | None = None) -> Menu:
    kind = MenuType.FUNCTION if code in _ALL_FUNCTION_CODES else MenuType.MENU
    return Menu(id=identity, code=code, name=code, type=kind, parent_id=parent)


INITIAL_MENUS = (
    _initial_menu(1000, "dashboard"),
    _initial_menu(1001, "dashboard.view", 1000),
    _initial_menu(1002, "dashboard.add", 1000),
    _initial_menu(1003, "dashboard.edit", 1000),
    _initial_menu(1004, "dashboard.delete", 1000),
    _initial_menu(2000, "device"),
    _initial_menu(2001, "device.view", 2000),
    _initial_menu(2002, "device.add", 2000),
    _initial_menu(2003, "device.edit", 2000),
    _initial_menu(2004, "device.delete", 2000),
    _initial_menu(2005, "device.group_manage", 2000),
    _initial_menu(2100, "product"),
    _initial_menu(2101, "product.view", 2100),
    _initial_menu(2102, "product.manage", 2100),
    _initial_menu(7000, "entity"),
    _initial_menu(3000, "entity_custom", 7000),
    _initial_menu(3001, "entity_custom.view", 3000),
    _initial_menu(3002, "entity_custom.add", 3000),
    _initial_menu(3003, "entity_custom.edit", 3000),
    _initial_menu(3004, "entity_custom.delete", 3000),
    _initial_menu(4000, "entity_data", 7000),
    _initial_menu(4001, "entity_data.view", 4000),
    _initial_menu(4002, "entity_data.edit", 4000),
    _initial_menu(4003, "entity_data.export", 4000),
    _initial_menu(5000, "workflow"),
    _initial_menu(5001, "workflow.view", 5000),
    _initial_menu(5002, "workflow.add", 5000),
    _initial_menu(5004, "workflow.edit", 5000),
    _initial_menu(5006, "workflow.delete", 5000),
    _initial_menu(6000, "integration"),
    _initial_menu(6001, "integration.view", 6000),
    _initial_menu(7900, "settings"),
    _initial_menu(8000, "credentials", 7900),
    _initial_menu(8001, "credentials.view", 8000),
    _initial_menu(8002, "credentials.edit", 8000),
    _initial_menu(9000, "tag"),
    _initial_menu(9001, "entity_tag.view", 9000),
    _initial_menu(9002, "entity_tag.manage", 9000),
)
"""Menus of a new tenant, parents before their children."""


SUPER_ADMIN_ROLE_NAME = "super_admin"
"""Name of the role whose users have all permissions."""
INITIAL_SUPER_ADMIN_ROLE_ID = 1
"""The id of the role `super_admin` in the default tenant."""
SORT_FIELD_BY_COLUMN = {
    "id": "_id",
    "role_id": "_id",
    "name": "name",
    "description": "description",
    "created_at": "createdAt",
}
"""Stored field by the name of a sortable column."""


class Role(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A role of a tenant."""

    id: int = msgspec.field(name="_id")
    name: str
    description: str
    menus: tuple[int, ...] = ()
    created_at: datetime

    @property
    def audit_target(self) -> AuditTarget:
        """Return the role as an audit log object."""
        return AuditTarget("role", str(self.id), self.name)


class RoleStore:
    """The collection `roles`."""

    def __init__(self, database: Database) -> None:
        self._roles = database["roles"]
        self.next_id = IdAllocator(database, "roles", ID_BLOCK_SIZE).allocate

    async def get(self, tenant: str, role_id: int, session: Session | None = None) -> Role | None:
        """Return one role of a tenant, or None."""
        roles = await self.find(tenant, [role_id], session)
        return roles.get(role_id)

    async def find(
        self, tenant: str, ids: Iterable[int], session: Session | None = None
    ) -> dict[int, Role]:
        """Return the tenant's roles with one of `ids`, by id."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant}
        documents = await self._roles.find(query, session=session).to_list(None)
        return {role.id: role for role in msgspec.convert(documents, list[Role])}

    async def find_super_admin_role_id(
        self, tenant: str, session: Session | None = None
    ) -> int | None:
        """Return the id of the role `super_admin`; None if the tenant does not exist."""
        query = {"tenant": tenant, "name": SUPER_ADMIN_ROLE_NAME}
        role = await self._roles.find_one(query, {"_id": 1}, session=session)
        return None if role is None else int(role["_id"])

    async def search(
        self, tenant: str, keyword: str, request: PageRequest
    ) -> tuple[list[Role], int]:
        """Return one page of roles whose name contains `keyword`, and the total number."""
        query: dict[str, Any] = {"tenant": tenant}
        if keyword:
            query["name"] = build_text_condition(keyword)
        rows, total = await find_page(
            self._roles, query, request.order(SORT_FIELD_BY_COLUMN), request.skip, request.limit
        )
        return msgspec.convert(rows, list[Role]), total

    async def insert(self, tenant: str, role: Role, session: Session) -> None:
        """Add a role; raise `Conflict` if the tenant has one with that name."""
        document: Document = msgspec.to_builtins(role, builtin_types=(datetime,))
        document |= {"tenant": tenant, "updatedAt": role.created_at}
        with raise_on_duplicate(_duplicate_name_error()):
            await self._roles.insert_one(document, session=session)

    async def update(self, tenant: str, role: Role, session: Session) -> None:
        """Store name, description and menus; raise `Conflict` for a duplicate name."""
        changes = {
            "name": role.name,
            "description": role.description,
            "menus": list(role.menus),
            "updatedAt": datetime.now(UTC),
        }
        with raise_on_duplicate(_duplicate_name_error()):
            await self._roles.update_one(
                {"_id": role.id, "tenant": tenant}, {"$set": changes}, session=session
            )

    async def delete(self, tenant: str, role_id: int, session: Session) -> None:
        """Delete a role."""
        await self._roles.delete_one({"_id": role_id, "tenant": tenant}, session=session)

    async def remove_menu_from_roles(self, tenant: str, menu_id: int, session: Session) -> None:
        """Remove a menu from all roles of a tenant."""
        await self._roles.update_many(
            {"tenant": tenant, "menus": menu_id}, {"$pull": {"menus": menu_id}}, session=session
        )


def _duplicate_name_error() -> Conflict:
    return Conflict("a role has this name already", field="name", code="name_repeated")
