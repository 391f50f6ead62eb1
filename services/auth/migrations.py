"""Migrations of `auth`'s database."""

from collections.abc import Collection
from functools import partial
from typing import Any

from msgspec.structs import replace

from libs.common.store.ids import IdAllocator
from libs.common.store.migrations import Migration, create_missing
from libs.common.store.mongo import Database
from services.auth.accounts.roles import INITIAL_MENUS, menu_document
from services.auth.accounts.tenants import DEFAULT_TENANT

FLEET = ("device.group_manage", "tag", "entity_tag.view", "entity_tag.manage")
SETTINGS = (
    "dashboard.delete",
    "settings",
    "credentials",
    "credentials.view",
    "credentials.edit",
)
"""Menus that tenants of version 0.1 do not have."""
PRODUCTS = ("product", "product.view", "product.manage")
COLLECTIONS = ("applications", "device_credentials", "revocations", "outbox", "counters")


ACCOUNT_COLLECTIONS = (
    "tenants",
    "console_clients",
    "users",
    "roles",
    "menus",
    "grants",
    "audit",
    "integration_logins",
)


async def _first(database: Database) -> None:
    for name in COLLECTIONS:
        await create_missing(database, name)
    await database["applications"].create_index("clientId", unique=True)
    await _index(database, "applications", "tenant", "name", unique=True)
    await _index(database, "revocations", "at")
    await _index(database, "outbox", "at")


async def _accounts(database: Database) -> None:
    for name in ACCOUNT_COLLECTIONS:
        await create_missing(database, name)
    await database["applications"].update_many(
        {"allowedAddresses": {"$exists": False}}, {"$set": {"allowedAddresses": []}}
    )
    await _index(database, "tenants", "accessChangedAt")
    await _index(database, "users", "tenant", "emailKey", unique=True)
    await _index(database, "users", "tenant", "roles")
    await _index(database, "roles", "tenant", "name", unique=True)
    await _index(database, "roles", "tenant", "menus")
    await _index(database, "menus", "tenant", "code", unique=True)
    await _index(database, "menus", "tenant", "parentId")
    await _index(database, "grants", "tenant", "role", "type", "id", unique=True)
    await _index(database, "grants", "tenant", "type", "id")
    await database["audit"].create_index([("tenant", 1), ("at", -1)])
    await database["audit"].create_index(
        [("tenant", 1), ("object.type", 1), ("object.id", 1), ("at", -1)]
    )
    await _index(database, "audit", "tenant", "requestId")
    await database["audit"].create_index([("tenant", 1), ("actor.id", 1), ("at", -1)])


async def _index(database: Database, collection: str, *names: str, **options: Any) -> None:
    """Create an ascending index of the fields `names`."""
    await database[collection].create_index([(name, 1) for name in names], **options)


async def _add_menus(new_codes: Collection[str], database: Database) -> None:
    """Add new functions to the menus of existing tenants, but to no role."""
    ids = IdAllocator(database, "menus", len(INITIAL_MENUS))
    codes = {menu.id: menu.code for menu in INITIAL_MENUS}
    async for tenant in database["tenants"].find({}, {"_id": 1}):
        menus = database["menus"]
        known = {one["code"]: one["_id"] async for one in menus.find({"tenant": tenant["_id"]})}
        for menu in (
            one for one in INITIAL_MENUS if one.code in new_codes and one.code not in known
        ):
            parent = None if menu.parent_id is None else known.get(codes[menu.parent_id])
            if parent is None and menu.parent_id is not None:
                continue  # the tenant has deleted the page
            first = tenant["_id"] == DEFAULT_TENANT
            known[menu.code] = menu.id if first else await ids.allocate()
            added = replace(menu, id=known[menu.code], parent_id=parent)
            await menus.insert_one(menu_document(tenant["_id"], added))


async def _let_viewers_command(database: Database) -> None:
    """Let viewers of existing tenants keep commanding devices, with a notice."""
    await database["tenants"].update_many(
        {"viewersMayCommand": {"$exists": False}},
        {"$set": {"viewersMayCommand": True, "commandNotice": True}},
    )


MIGRATIONS = (
    Migration(1, "applications, device credentials, revocations, outbox", _first),
    Migration(2, "tenants, users, roles, menus, grants, audit log", _accounts),
    Migration(3, "menus of groups and tags", partial(_add_menus, FLEET)),
    Migration(4, "menus of dashboards and settings", partial(_add_menus, SETTINGS)),
    Migration(5, "menus of products", partial(_add_menus, PRODUCTS)),
    Migration(3151, "viewers of existing tenants may command devices", _let_viewers_command),
)
