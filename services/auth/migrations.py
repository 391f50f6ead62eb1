"""Migrations of `auth`'s database."""

from collections.abc import Collection
from functools import partial

from msgspec.structs import replace

from libs.common.store.ids import IdAllocator
from libs.common.store.migrations import Migration, build_index_model, create_collections
from libs.common.store.mongo import Database
from services.auth.accounts.roles import INITIAL_MENUS, build_menu_document
from services.auth.accounts.tenants import DEFAULT_TENANT

GROUP_AND_TAG_MENU_CODES = ("device.group_manage", "tag", "entity_tag.view", "entity_tag.manage")
"""Menus of groups and tags, which tenants of older versions lack."""
SETTINGS_MENU_CODES = (
    "dashboard.delete",
    "settings",
    "credentials",
    "credentials.view",
    "credentials.edit",
)
"""Menus of dashboards and settings, which tenants of older versions lack."""
PRODUCT_MENU_CODES = ("product", "product.view", "product.manage")
"""Menus of products, which tenants of older versions lack."""
INDEXES_BY_COLLECTION = {
    "applications": [
        build_index_model("clientId", unique=True),
        build_index_model("tenant", "name", unique=True),
    ],
    "revocations": [build_index_model("at")],
    "outbox": [build_index_model("at")],
    "tenants": [build_index_model("accessChangedAt")],
    "users": [
        build_index_model("tenant", "emailKey", unique=True),
        build_index_model("tenant", "roles"),
    ],
    "roles": [
        build_index_model("tenant", "name", unique=True),
        build_index_model("tenant", "menus"),
    ],
    "menus": [
        build_index_model("tenant", "code", unique=True),
        build_index_model("tenant", "parentId"),
    ],
    "grants": [
        build_index_model("tenant", "role", "type", "id", unique=True),
        build_index_model("tenant", "type", "id"),
    ],
    "audit": [
        build_index_model("tenant", "-at"),
        build_index_model("tenant", "object.type", "object.id", "-at"),
        build_index_model("tenant", "requestId"),
        build_index_model("tenant", "actor.id", "-at"),
    ],
    **dict.fromkeys(
        ("device_credentials", "console_clients", "integration_logins", "counters"), ()
    ),
}
"""The indexes of each collection. Migrations create collections, because transactions cannot."""


async def _add_menus(new_codes: Collection[str], database: Database) -> None:
    """Add the menus with `new_codes` to existing tenants, but to no role."""
    ids = IdAllocator(database, "menus", len(INITIAL_MENUS))
    codes = {menu.id: menu.code for menu in INITIAL_MENUS}
    async for tenant in database["tenants"].find({}, {"_id": 1}):
        menus = database["menus"]
        ids_by_code = {
            menu["code"]: menu["_id"] async for menu in menus.find({"tenant": tenant["_id"]})
        }
        for menu in (
            menu
            for menu in INITIAL_MENUS
            if menu.code in new_codes and menu.code not in ids_by_code
        ):
            parent = None if menu.parent_id is None else ids_by_code.get(codes[menu.parent_id])
            if parent is None and menu.parent_id is not None:
                continue  # the tenant has deleted the page
            first = tenant["_id"] == DEFAULT_TENANT
            ids_by_code[menu.code] = menu.id if first else await ids.allocate()
            added = replace(menu, id=ids_by_code[menu.code], parent_id=parent)
            await menus.insert_one(build_menu_document(tenant["_id"], added))


async def _allow_viewer_commands(database: Database) -> None:
    """Let viewers of existing tenants command devices, as before; set the notice."""
    await database["tenants"].update_many(
        {"viewersMayCommand": {"$exists": False}},
        {"$set": {"viewersMayCommand": True, "commandNotice": True}},
    )


MIGRATIONS = (
    Migration(
        4000,
        "collections and indexes",
        partial(create_collections, collections=INDEXES_BY_COLLECTION),
    ),
    Migration(3, "menus of groups and tags", partial(_add_menus, GROUP_AND_TAG_MENU_CODES)),
    Migration(4, "menus of dashboards and settings", partial(_add_menus, SETTINGS_MENU_CODES)),
    Migration(5, "menus of products", partial(_add_menus, PRODUCT_MENU_CODES)),
    Migration(3151, "viewers of existing tenants may command devices", _allow_viewer_commands),
)
"""Migrations by number. When `INDEXES_BY_COLLECTION` changes, increase the number of the first
migration to run it again."""
