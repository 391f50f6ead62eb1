"""Management API: roles, what is granted to them, and menus, operation by operation."""

from typing import Any
from uuid import uuid4

import pytest

from libs.common.things import DIRECT_INTEGRATION
from tests.contract.client import Api, new_sn
from tests.contract.console import PASSWORD, Console, console_accepted, new_email, new_name
from tests.contract.hall import UNKNOWN, add_custom, add_dashboard

pytestmark = pytest.mark.xdist_group("contract")

UNKNOWN_ROLE = "/user/roles/999999999"
LISTS = [
    *("members", "resources", "integrations", "devices", "dashboards"),
    *(f"undistributed-{what}" for what in ("users", "integrations", "devices", "dashboards")),
]


def check_role(role: Any) -> None:
    """The fields of a role in a list; all of them are strings."""
    required = {"role_id", "name", "created_at", "user_role_count", "role_integration_count"}
    assert required <= set(role) <= required | {"description"}, role
    assert all(isinstance(value, str) for value in role.values()), role
    for number in required - {"name"}:
        assert role[number].isdecimal()


def device(identity: Any) -> dict[str, str]:
    """A resource reference."""
    return {"id": str(identity), "type": "DEVICE"}


async def role_of(admin: Console, identity: str) -> Any:
    """A role as searches show it."""
    roles = await admin.done("POST", "/user/roles/search", {"page_size": 999, "page_number": 1})
    return next(role for role in roles["content"] if role["role_id"] == identity)


async def granted(admin: Console, role: str, kind: str | None = None) -> set[tuple[str, str]]:
    """The resources of a role."""
    body = {} if kind is None else {"resource_type": kind}
    found = await admin.done("POST", f"/user/roles/{role}/resources", body)
    assert all(set(entry) == {"resource_id", "resource_type"} for entry in found)
    return {(entry["resource_id"], entry["resource_type"]) for entry in found}


async def test_create_role(admin: Console) -> None:
    """A role has a name that is free, and perhaps a description."""
    name = new_name()
    made = await admin.done("POST", "/user/roles", {"name": name, "description": "What for"})
    assert set(made) == {"role_id"}
    role = await role_of(admin, made["role_id"])
    check_role(role)
    assert (role["name"], role["description"]) == (name, "What for")
    assert (role["user_role_count"], role["role_integration_count"]) == ("0", "0")
    await admin.fails(409, "name_repeated", "POST", "/user/roles", {"name": name}, "name")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "  "}, "name"),
        ({"name": "n" * 128}, "name"),
        ({"name": 7}, "name"),
        ({"name": new_name(), "description": "d" * 256}, "description"),
    ],
)
async def test_bad_role_names_the_field(admin: Console, body: Any, field: str) -> None:
    """A blank or overlong name or description is a 400 that names it, on both ways in."""
    role = await admin.add_role()
    for method, path in (("POST", "/user/roles"), ("PUT", f"/user/roles/{role}")):
        answer = await admin.ask(method, path, body)
        assert answer.status_code == 400, answer.text
        told = answer.json()
        assert field in f"{told['error_message']} {told.get('detail_message')}", told


async def test_edit_role(admin: Console) -> None:
    """Name and description are set; the name of another role is taken, its own is not."""
    taken, role, name = new_name(), await admin.add_role(), new_name()
    await admin.done("POST", "/user/roles", {"name": taken})
    path = f"/user/roles/{role}"
    for _ in range(2):
        await admin.does("PUT", path, {"name": name, "description": "Changed"})
    found = await role_of(admin, role)
    assert (found["name"], found["description"]) == (name, "Changed")
    await admin.fails(409, "name_repeated", "PUT", path, {"name": taken}, "name")
    await admin.fails(404, "role_does_not_exit", "PUT", UNKNOWN_ROLE, {"name": new_name()})


async def test_super_admin_role_stays(admin: Console) -> None:
    """The role `super_admin` is neither deleted nor renamed."""
    user = await admin.done("GET", "/user")
    path = f"/user/roles/{user['roles'][0]['role_id']}"
    await admin.fails(400, "parameter_syntax_error", "DELETE", path)
    answer = await admin.ask("PUT", path, {"name": new_name()})
    assert answer.status_code == 400, answer.text
    assert (await admin.done("GET", "/user"))["super_admin"] is True


async def test_delete_role(admin: Console) -> None:
    """A role that still has users stays; afterwards it goes with its grants."""
    user = await admin.add_user()
    role = await admin.add_role("device.view", users=(user,))
    path = f"/user/roles/{role}"
    await admin.fails(409, "role_still_has_user", "DELETE", path)
    await admin.does("POST", f"{path}/disassociate-user", {"user_ids": [user]})
    await admin.does("DELETE", path)
    await admin.fails(404, "role_does_not_exit", "DELETE", path)


async def test_role_search(admin: Console) -> None:
    """`keyword` is part of the name in any case; a page only when asked for; sorts work."""
    mark = uuid4().hex[:10]
    for number in range(3):
        await admin.done("POST", "/user/roles", {"name": f"{mark} Role {number}"})
    found = await admin.done("POST", "/user/roles/search", {"keyword": f"{mark} ROLE"})
    for role in found:
        check_role(role)
    assert [role["name"][-1] for role in found] == ["2", "1", "0"]
    body = {
        "keyword": mark,
        "page_size": 2,
        "page_number": 1,
        "sorts": [{"direction": "asc", "property": "name"}],
    }
    page = await admin.done("POST", "/user/roles/search", body)
    assert {name: page[name] for name in ("page_size", "page_number", "total")} == {
        "page_size": 2,
        "page_number": 1,
        "total": 3,
    }
    assert [role["name"][-1] for role in page["content"]] == ["0", "1"]


@pytest.mark.parametrize("what", LISTS)
async def test_lists_of_a_role(admin: Console, what: str) -> None:
    """Every list is bare, or a page when one is asked for; an unknown role is 404."""
    role = await admin.add_role()
    path = f"/user/roles/{role}/{what}"
    assert isinstance(await admin.done("POST", path, {}), list)
    body = {"keyword": uuid4().hex, "page_size": 10, "page_number": 1}
    page = await admin.done("POST", path, body)
    assert (set(page), page["page_size"], page["page_number"]) == (
        {"page_size", "page_number", "total", "content"}, 10, 1,
    )  # fmt: skip
    await admin.fails(404, "role_does_not_exit", "POST", f"{UNKNOWN_ROLE}/{what}", {})
    refused = await admin.ask("POST", path, {"page_size": -1})
    assert (refused.status_code, "page_size" in refused.text) == (400, True)


async def test_second_ways_in(admin: Console) -> None:
    """Searching roles and listing members are also GET, with the search in the query."""
    user, name = await admin.add_user(), new_name()
    role = (await admin.done("POST", "/user/roles", {"name": name}))["role_id"]
    await admin.does("POST", f"/user/roles/{role}/associate-user", {"user_ids": [user]})
    for path, body in (
        ("/user/roles/search", {"keyword": name}),
        (f"/user/roles/{role}/members", {"keyword": "Some", "page_size": 5, "page_number": 1}),
    ):
        found = await admin.done("POST", path, body)
        assert console_accepted(await admin.ask("GET", path, params=body)) == found


async def test_members_of_a_role(admin: Console) -> None:
    """Users are given and taken from a role; unknown ones and doubles are passed over."""
    email = new_email()
    user, other, role = await admin.add_user(email), await admin.add_user(), await admin.add_role()
    path = f"/user/roles/{role}"
    body = {"user_ids": [user, int(other), other, "999999999"]}
    await admin.does("POST", f"{path}/associate-user", body)
    await admin.does("POST", f"{path}/associate-user", body)
    members = await admin.done("POST", f"{path}/members", {})
    assert {member["user_id"] for member in members} == {user, other}
    found = await admin.done("POST", f"{path}/members", {"keyword": email.upper()})
    assert found == [
        {"user_id": user, "user_email": email, "user_nickname": "Some Body", "role_id": role}
    ]
    assert (await role_of(admin, role))["user_role_count"] == "2"
    free = await admin.done("POST", f"{path}/undistributed-users", {"keyword": "Some Body"})
    assert not {user, other} & {one["user_id"] for one in free}
    await admin.does("POST", f"{path}/disassociate-user", {"user_ids": [user, "999999999"]})
    free = await admin.done("POST", f"{path}/undistributed-users", {"keyword": email})
    assert free == [{"email": email, "nickname": "Some Body", "user_id": user}]


async def test_menus_of_a_role(admin: Console) -> None:
    """The set is replaced as a whole: what is left out is taken, unknown ids are passed over."""
    person = await admin.person()
    role, ids = await admin.add_role(users=(person.id,)), await admin.menu_ids()
    path = f"/user/roles/{role}"

    async def menus() -> set[str]:
        found = await admin.done("GET", f"{path}/menus")
        for menu in found:
            required = {"menu_id", "code", "name", "type"}
            assert required <= set(menu) <= required | {"parent_id"}
        return {menu["code"] for menu in found}

    assert await menus() == set()
    body = {"menu_ids": [ids["device"], ids["device.view"], int(ids["workflow.view"]), "999999999"]}
    await admin.does("POST", f"{path}/associate-menu", body)
    assert await menus() == {"device", "device.view", "workflow.view"}
    await admin.does("POST", f"{path}/associate-menu", {"menu_ids": [ids["device.edit"]]})
    assert await menus() == {"device.edit"}
    open_pages = (await person.done("GET", "/user"))["menus"]
    assert [menu["code"] for menu in open_pages] == ["device"]
    await admin.does("POST", f"{path}/associate-menu", {"menu_ids": []})
    assert await menus() == set()
    assert (await person.done("GET", "/user"))["menus"] == []
    await admin.fails(404, "role_does_not_exit", "GET", f"{UNKNOWN_ROLE}/menus")
    await person.close()


async def test_resources_of_a_role(admin: Console) -> None:
    """Grants of every type are given once, listed by type, and taken one by one."""
    role = await admin.add_role()
    path = f"/user/roles/{role}"
    empty = {"name": new_name(), "design_data": '{"nodes":[],"edges":[]}'}
    entity, dashboard = str((await add_custom(admin))["id"]), await add_dashboard(admin)
    flow = str((await admin.done("POST", "/workflow/flows/design", empty))["id"])
    everything = {(entity, "ENTITY"), (dashboard, "DASHBOARD"), (flow, "WORKFLOW")}
    body = {"resources": [{"id": one, "type": kind} for one, kind in sorted(everything)]}
    for _ in range(2):
        await admin.does("POST", f"{path}/associate-resource", body)
    assert await granted(admin, role) == everything
    assert await granted(admin, role, "WORKFLOW") == {(flow, "WORKFLOW")}
    taken = {"resources": [{"id": flow, "type": "ENTITY"}, {"id": int(entity), "type": "ENTITY"}]}
    await admin.does("POST", f"{path}/disassociate-resource", taken)
    assert await granted(admin, role) == everything - {(entity, "ENTITY")}


@pytest.mark.parametrize("verb", ["associate", "disassociate"])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "resources"),
        ({"resources": []}, "resources"),
        ({"resources": [{"id": "1"}]}, "resources"),
        ({"resources": [{"id": "1", "type": "HOUSE"}]}, "resources"),
        ({"resources": [{"id": "x", "type": "DEVICE"}]}, "resources"),
    ],
)
async def test_bad_resources(admin: Console, verb: str, body: Any, field: str) -> None:
    """Nothing to grant, or something that cannot be granted, is a 400 that names it."""
    path = f"/user/roles/{await admin.add_role()}/{verb}-resource"
    answer = await admin.ask("POST", path, body)
    assert answer.status_code == 400, answer.text
    assert field in answer.text


@pytest.mark.parametrize(
    ("kind", "one"),
    [
        ("INTEGRATION", "nowhere"),
        *((kind, UNKNOWN) for kind in ("ENTITY", "DEVICE", "DASHBOARD", "WORKFLOW")),
    ],
)
async def test_unknown_resources_are_not_granted(admin: Console, kind: str, one: str) -> None:
    """Otherwise the grant would apply to a later resource with this id.

    Other entries are not granted either.
    """
    role = await admin.add_role()
    there = {"id": await add_dashboard(admin), "type": "DASHBOARD"}
    body = {"resources": [there, {"id": one, "type": kind}]}
    path = f"/user/roles/{role}/associate-resource"
    answer = await admin.fails(400, "parameter_validation_failed", "POST", path, body, "resources")
    assert f"{kind} {one}" in answer["error_message"]
    assert await granted(admin, role) == set()


async def test_devices_of_a_role(admin: Console, api: Api) -> None:
    """A granted device is listed with its name, and no longer among those that are free."""
    name = new_name("Device")
    identity = str(await api.add(new_sn(), name=name))
    role = await admin.add_role()
    path = f"/user/roles/{role}"
    free = await admin.done("POST", f"{path}/undistributed-devices", {"keyword": name})
    assert [one["device_id"] for one in free] == [identity]
    body = {"resources": [device(identity)]}
    await admin.does("POST", f"{path}/associate-resource", body)
    found = await admin.done("POST", f"{path}/devices", {"keyword": name.upper()})
    assert len(found) == 1
    required = {"device_id", "device_name", "created_at", "role_integration"}
    optional = {"integration_id", "integration_name", "user_id", "user_email", "user_nickname"}
    assert required <= set(found[0]) <= required | optional, found
    assert (found[0]["device_id"], found[0]["device_name"]) == (identity, name)
    assert (found[0]["role_integration"], found[0]["created_at"].isdecimal()) == (False, True)
    assert await admin.done("POST", f"{path}/undistributed-devices", {"keyword": name}) == []
    await admin.does("POST", f"{path}/disassociate-resource", body)
    assert await admin.done("POST", f"{path}/devices", {}) == []


async def test_integrations_of_a_role(admin: Console, api: Api) -> None:
    """An integration stands for its devices: they are listed as coming through it."""
    name = new_name("Direct")
    identity = str(await api.add(new_sn(), name=name))
    role = await admin.add_role()
    path = f"/user/roles/{role}"
    free = await admin.done("POST", f"{path}/undistributed-integrations", {})
    assert all(set(one) == {"integration_id", "integration_name"} for one in free)
    direct = {"id": DIRECT_INTEGRATION, "type": "INTEGRATION"}
    await admin.does("POST", f"{path}/associate-resource", {"resources": [direct]})
    assert (await role_of(admin, role))["role_integration_count"] == "1"
    found = await admin.done("POST", f"{path}/devices", {"keyword": name})
    assert [(entry["device_id"], entry["role_integration"]) for entry in found] == [
        (identity, True)
    ]
    assert await admin.done("POST", f"{path}/undistributed-devices", {"keyword": name}) == []
    integrations = await admin.done("POST", f"{path}/integrations", {})
    fields = {"integration_id", "integration_name", "device_num", "entity_num"}
    assert [(set(integration), integration["integration_id"]) for integration in integrations] == [
        (fields, DIRECT_INTEGRATION)
    ]


async def test_menu_tree(admin: Console) -> None:
    """The tree has the seeded menus under their ids, and a list of children everywhere."""
    tree = await admin.done("GET", "/user/menus")
    flat, pending = {}, list(tree)
    while pending:
        menu = pending.pop()
        required = {"menu_id", "code", "name", "type", "children"}
        assert required <= set(menu) <= required | {"parent_id"}, menu
        assert all(child["parent_id"] == menu["menu_id"] for child in menu["children"])
        flat[menu["code"]] = menu["menu_id"]
        pending += menu["children"]
    seeded = {
        "dashboard": "1000", "dashboard.edit": "1003", "device.delete": "2004", "entity": "7000",
        "entity_custom": "3000", "entity_data.export": "4003", "workflow.delete": "5006",
        "integration.view": "6001",
    }  # fmt: skip
    assert seeded.items() <= flat.items()
    assert all("parent_id" not in root for root in tree)


async def test_menus_are_kept(admin: Console) -> None:
    """A menu is added, renamed and removed; roles lose what is removed."""
    code = f"contract_{uuid4().hex[:8]}"
    page = await admin.done("POST", "/user/menus", {"code": code, "name": "Page", "type": "MENU"})
    assert set(page) == {"menu_id"}
    body = {"code": f"{code}.view", "name": "V", "type": "FUNCTION", "parent_id": page["menu_id"]}
    view = await admin.done("POST", "/user/menus", body)
    role = await admin.add_role(code, f"{code}.view")
    await admin.does(
        "PUT", f"/user/menus/{view['menu_id']}", {"name": "Renamed", "type": "FUNCTION"}
    )
    menus = await admin.done("GET", f"/user/roles/{role}/menus")
    assert {menu["name"] for menu in menus} == {"Page", "Renamed"}
    await admin.does("DELETE", f"/user/menus/{view['menu_id']}")
    assert f"{code}.view" not in await admin.menu_ids()
    menus = await admin.done("GET", f"/user/roles/{role}/menus")
    assert [menu["code"] for menu in menus] == [code]
    await admin.does("DELETE", f"/user/menus/{page['menu_id']}")
    path = f"/user/menus/{page['menu_id']}"
    await admin.fails(404, "data_no_found", "DELETE", path)
    await admin.fails(404, "data_no_found", "PUT", path, {"name": "N", "type": "MENU"})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"code": None}, "code"),
        ({"code": " "}, "code"),
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
        ({"type": None}, "type"),
        ({"type": "PAGE"}, "type"),
        ({"code": "device"}, "code"),
        ({"parent_id": None}, "parent_id"),
        ({"parent_id": "999999999"}, "parent_id"),
        ({"parent_id": "x"}, "parent_id"),
    ],
)
async def test_an_invalid_menu_names_the_field(admin: Console, change: Any, field: str) -> None:
    """A missing, blank, used or unknown value gets a 4xx with the field.

    A function needs a parent.
    """
    menu = {"code": f"x_{uuid4().hex[:8]}", "name": "X", "type": "FUNCTION", "parent_id": "2000"}
    body = {name: value for name, value in (menu | change).items() if value is not None}
    answer = await admin.ask("POST", "/user/menus", body)
    assert answer.status_code in {400, 404, 409}, answer.text
    told = answer.json()
    assert field in f"{told['error_message']} {told.get('detail_message')}", told


async def test_ordinary_users_cannot_manage_accounts(admin: Console) -> None:
    """Users who are no super-admin get 403 from every operation on roles and users."""
    person = await admin.person("device.view")
    role = await admin.add_role()
    for method, path, body in (
        ("POST", "/user/members", {"email": new_email(), "nickname": "N", "password": PASSWORD}),
        ("POST", f"/user/roles/{role}/associate-user", {"user_ids": [person.id]}),
        ("POST", "/user/roles", {"name": new_name()}),
        ("DELETE", f"/user/members/{admin.id}", None),
        ("POST", "/user/menus", {"code": "x", "name": "x", "type": "MENU"}),
    ):
        await person.fails(403, "forbidden_permission", method, path, body)
    await person.close()


async def test_tenants_do_not_meet(admin: Console, other_admin: Console) -> None:
    """By no id in a body does a super-admin reach another tenant's users, roles or menus."""
    person, role = await admin.person(), await other_admin.add_role()
    menu = (await admin.menu_ids())["device.view"]
    path = f"/user/roles/{role}"
    await other_admin.does("POST", f"{path}/associate-user", {"user_ids": [person.id]})
    assert await other_admin.done("POST", f"{path}/members", {}) == []
    await other_admin.does("POST", f"{path}/associate-menu", {"menu_ids": [menu]})
    assert await other_admin.done("GET", f"{path}/menus") == []
    await other_admin.does("POST", "/user/batch-delete", {"user_id_list": [person.id]})
    assert (await person.done("GET", "/user"))["user_id"] == person.id
    found = await other_admin.done("POST", "/user/members/search", {"keyword": person.email})
    assert found == []
    assert role not in {
        one["role_id"] for one in await admin.done("POST", "/user/roles/search", {})
    }
    await person.close()
