"""Tenants: what each begins with, and that they are made once."""

import asyncio
from typing import Any

import pytest

from libs.common.contracts.access import Access, UserRef
from libs.common.contracts.auth import CreatedTenant, CreateTenant, ListTenants, Tenants
from libs.common.errors import Conflict, InvalidInput
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.functions import Function
from services.auth.accounts.roles import INITIAL_MENUS
from services.auth.client_secrets import matches_secret_hash
from services.auth.migrations import GROUP_AND_TAG_MENU_CODES, MIGRATIONS, SETTINGS_MENU_CODES


async def create(auth: Any, name: str) -> CreatedTenant:
    return await auth.call("create_tenant", CreateTenant(name), CreatedTenant)


async def menus_of(auth: Any, tenant: str) -> dict[str, dict[str, Any]]:
    found = auth.mongo.database["menus"].find({"tenant": tenant})
    return {menu["code"]: menu async for menu in found}


async def test_the_default_tenant_is_there_with_the_seeds_of_the_field(auth):
    """Role 1 is super_admin, and the menus have the ids that consoles know."""
    role = await auth.mongo.database["roles"].find_one({"tenant": "default"})
    menus = await menus_of(auth, "default")

    assert (role["_id"], role["name"]) == (1, "super_admin")
    assert len(menus) == len(INITIAL_MENUS)
    assert {code: menus[code]["_id"] for code in ("dashboard", "workflow.delete", "entity")} == {
        "dashboard": 1000,
        "workflow.delete": 5006,
        "entity": 7000,
    }
    assert menus["entity_custom"]["parentId"] == 7000
    assert menus["entity_custom"]["type"] == "MENU"
    assert menus["entity_custom.view"]["type"] == "FUNCTION"


async def test_a_new_tenant_has_a_tree_and_a_role_of_its_own(auth):
    """The same codes under other ids, whose parents are its own too."""
    await create(auth, "acme")
    first, second = await menus_of(auth, "default"), await menus_of(auth, "acme")
    ids = {menu["_id"] for menu in second.values()}

    assert first.keys() == second.keys()
    assert not ids & {menu["_id"] for menu in first.values()}
    assert {menu["parentId"] for menu in second.values()} - {None} <= ids
    assert second["device.view"]["parentId"] == second["device"]["_id"]
    role = await auth.mongo.database["roles"].find_one({"tenant": "acme"})
    assert role["name"] == "super_admin"
    assert role["_id"] != 1


async def test_a_new_tenant_has_a_console_client_of_its_own(auth):
    """Its secret is answered once and stored as a hash."""
    made = await create(auth, "acme")
    stored = await auth.mongo.database["console_clients"].find_one({"_id": made.client_id})

    assert stored["tenant"] == "acme"
    assert matches_secret_hash(made.client_secret, stored["secretHash"])
    assert made.client_secret not in str(stored)


async def test_tenants_are_listed_by_name(auth):
    """With how many users each has."""
    await create(auth, "acme")
    await auth.mongo.database["users"].insert_one({"tenant": "acme", "emailKey": "a@b.cd"})

    listed = await auth.call("list_tenants", ListTenants(), Tenants)

    assert [(each.name, each.users) for each in listed.tenants] == [("acme", 1), ("default", 0)]


async def test_a_bad_name_is_refused(auth):
    """A tenant is one token of a subject; 400 names the field."""
    for name in ("", "a b", "a.b", "é", "*", ">", "x" * 65, "a\n"):
        with pytest.raises(InvalidInput, match="name"):
            await create(auth, name)


async def test_a_tenant_is_created_once(auth):
    """One of ten simultaneous requests succeeds, and the others leave nothing behind."""
    outcomes = await asyncio.gather(
        *(create(auth, "acme") for _ in range(10)), return_exceptions=True
    )

    refused = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
    assert len(refused) == 9
    assert len(await menus_of(auth, "acme")) == len(INITIAL_MENUS)
    assert await auth.mongo.database["roles"].count_documents({"tenant": "acme"}) == 1
    assert await auth.mongo.database["console_clients"].count_documents({"tenant": "acme"}) == 1


@pytest.mark.parametrize(
    ("number", "codes", "page", "below"),
    [
        (3, GROUP_AND_TAG_MENU_CODES, "device", "device.group_manage"),
        (4, SETTINGS_MENU_CODES, "dashboard", "dashboard.delete"),
    ],
)
async def test_a_tenant_of_before_gets_the_menus_of_now(auth, number, codes, page, below):
    """Below its own pages and under ids of its own, once; not below a page that it has removed."""
    await create(auth, "acme")
    menus = auth.mongo.database["menus"]
    whole = {tenant: await menus_of(auth, tenant) for tenant in ("default", "acme")}
    await menus.delete_many({"code": {"$in": list(codes)}})
    await menus.delete_one({"tenant": "default", "code": page})
    (step,) = [one for one in MIGRATIONS if one.number == number]
    for _ in range(2):
        await step.run(auth.mongo.database)

    acme, default = await menus_of(auth, "acme"), await menus_of(auth, "default")
    assert acme.keys() == whole["acme"].keys()
    assert acme[below]["parentId"] == acme[page]["_id"]
    for last, parent in (("entity_tag.manage", "tag"), ("credentials.edit", "credentials")):
        assert acme[last]["parentId"] == acme[parent]["_id"]
    ids = [menu["_id"] for menu in acme.values()]
    assert len(set(ids)) == len(ids)
    assert default.keys() == whole["default"].keys() - {page, below}
    for code in ("tag", "settings"):
        assert default[code] == whole["default"][code]


SETTINGS_PATH = "/tenant/settings"


async def test_viewers_of_a_new_tenant_may_not_command(auth):
    """The setting is off, without a notice."""
    off = {"viewers_may_command": False, "notice": False}
    assert await auth.done("GET", SETTINGS_PATH) == off
    await create(auth, "acme")
    assert (await auth.mongo.database["tenants"].find_one("acme"))["viewersMayCommand"] is False


@pytest.mark.parametrize("migrated", [True, False])
async def test_viewers_of_an_older_tenant_may_command_until_it_is_turned_off(auth, migrated):
    """An upgrade and a tenant that moves in keep what viewers could do, with a notice."""
    tenants, users = auth.mongo.database["tenants"], auth.mongo.database["users"]
    await tenants.update_one({"_id": "default"}, {"$unset": {"viewersMayCommand": ""}})
    if migrated:
        (step,) = [one for one in MIGRATIONS if one.number == 3151]
        for _ in range(2):
            await step.run(auth.mongo.database)
    await users.insert_one({"_id": 7, "tenant": "default", "enabled": True, "roles": []})
    asked = UserRef("default", 7)
    before = await auth.call("get_access", asked, Access)
    assert before.viewers_may_command
    assert await auth.done("GET", SETTINGS_PATH) == {"viewers_may_command": True, "notice": True}

    off = {"viewers_may_command": False}
    changed = await auth.done("PUT", SETTINGS_PATH, off)

    assert changed == await auth.done("GET", SETTINGS_PATH) == {**off, "notice": False}
    after = await auth.call("get_access", asked, Access)
    assert not after.viewers_may_command
    assert after.version > before.version
    entry = await auth.entry(object_type="tenant", action="updated")
    assert (entry["before"], entry["after"]) == ({"viewers_may_command": True}, off)


async def test_only_super_admins_change_settings(auth):
    """Every function together does not suffice."""
    caller = Principal(PrincipalKind.USER, "default", "7", functions=frozenset(Function))
    body = {"viewers_may_command": True}
    await auth.refused(403, "PUT", SETTINGS_PATH, body, caller=caller)
    await auth.refused(403, "GET", SETTINGS_PATH, caller=caller)
    await auth.refused(400, "PUT", SETTINGS_PATH, {}, field="viewers_may_command")


async def test_making_a_tenant_is_audited(auth):
    """By the operator, in the tenant's own log."""
    await create(auth, "acme")
    entry = await auth.mongo.database["audit"].find_one({"tenant": "acme"})

    assert (entry["action"], entry["object"]) == (
        "created",
        {"type": "tenant", "id": "acme", "name": "acme"},
    )
    assert entry["actor"]["name"] == "operator"
