"""The versions of `auth`'s database."""

from collections.abc import Collection
from functools import partial

from msgspec.structs import replace

from libs.common.store.ids import IdAllocator
from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database, create_missing
from services.auth.accounts.menus import INITIAL_MENUS, menu_document
from services.auth.accounts.tenants import DEFAULT_TENANT

FLEET = ("device.group_manage", "tag", "entity_tag.view", "entity_tag.manage")
SETTINGS = (
    "dashboard.delete",
    "settings",
    "credentials",
    "credentials.view",
    "credentials.edit",
)
"""Menus that tenants of version 0.1 have not."""
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
    await database["applications"].create_index([("tenant", 1), ("name", 1)], unique=True)
    await database["revocations"].create_index("at")
    await database["outbox"].create_index("at")


async def _accounts(database: Database) -> None:
    for name in ACCOUNT_COLLECTIONS:
        await create_missing(database, name)
    await database["applications"].update_many(
        {"allowedAddresses": {"$exists": False}}, {"$set": {"allowedAddresses": []}}
    )
    await database["tenants"].create_index("accessChangedAt")
    await database["users"].create_index([("tenant", 1), ("emailKey", 1)], unique=True)
    await database["users"].create_index([("tenant", 1), ("roles", 1)])
    await database["roles"].create_index([("tenant", 1), ("name", 1)], unique=True)
    await database["roles"].create_index([("tenant", 1), ("menus", 1)])
    await database["menus"].create_index([("tenant", 1), ("code", 1)], unique=True)
    await database["menus"].create_index([("tenant", 1), ("parentId", 1)])
    await database["grants"].create_index(
        [("tenant", 1), ("role", 1), ("type", 1), ("id", 1)], unique=True
    )
    await database["grants"].create_index([("tenant", 1), ("type", 1), ("id", 1)])
    await database["audit"].create_index([("tenant", 1), ("at", -1)])
    await database["audit"].create_index(
        [("tenant", 1), ("object.type", 1), ("object.id", 1), ("at", -1)]
    )
    await database["audit"].create_index([("tenant", 1), ("requestId", 1)])
    await database["audit"].create_index([("tenant", 1), ("actor.id", 1), ("at", -1)])


async def _add_menus(wanted: Collection[str], database: Database) -> None:
    """Functions that have come since tenants were made; no role has them until it is given them."""
    ids = IdAllocator(database, "menus", len(INITIAL_MENUS))
    codes = {menu.id: menu.code for menu in INITIAL_MENUS}
    async for tenant in database["tenants"].find({}, {"_id": 1}):
        menus = database["menus"]
        known = {one["code"]: one["_id"] async for one in menus.find({"tenant": tenant["_id"]})}
        for menu in (one for one in INITIAL_MENUS if one.code in wanted and one.code not in known):
            parent = None if menu.parent_id is None else known.get(codes[menu.parent_id])
            if parent is None and menu.parent_id is not None:
                continue  # the tenant has removed the page
            first = tenant["_id"] == DEFAULT_TENANT
            known[menu.code] = menu.id if first else await ids.take()
            added = replace(menu, id=known[menu.code], parent_id=parent)
            await menus.insert_one(menu_document(tenant["_id"], added))


async def _let_viewers_command(database: Database) -> None:
    """Keep what viewers of existing tenants could do, with a notice to their super-admins."""
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
