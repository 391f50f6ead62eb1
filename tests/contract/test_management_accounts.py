"""Management API: authentication, one's own account, and users, operation by operation."""

from typing import Any
from uuid import uuid4

import pytest

from libs.common.things import DIRECT_INTEGRATION
from tests.contract.console import (
    PASSWORD,
    Console,
    console_accepted,
    console_refused,
    new_email,
    new_tenant,
)
from tests.contract.hall import Hall, add_custom, add_dashboard
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")

WEAK = ["Short1x", "A" * 62 + "a1", "nouppercase1", "NOLOWERCASE1", "NoDigitsHere", "With Space1",
        "Umläuter1", ""]  # fmt: skip
ADDRESSES = ["", " ", "a@b", "nobody", "@example.org", "a b@example.org", "a@example..org",
             "a" * 250 + "@b.org"]  # fmt: skip


def check_tokens(pair: Any) -> None:
    """The fields of a pair of tokens; consoles refresh after 60 minutes."""
    assert set(pair) >= {"access_token", "refresh_token", "token_type", "expires_in"}
    assert pair["token_type"] == "Bearer"
    assert isinstance(pair["expires_in"], int)
    assert pair["expires_in"] > 3660


def check_user(user: Any) -> None:
    """The fields of a user in a list; roles are left out without any."""
    required = {"tenant_id", "user_id", "nickname", "email", "created_at"}
    assert required <= set(user) <= required | {"roles", "enabled"}, user
    assert all(isinstance(user[name], str) for name in required), user
    assert user["user_id"].isdecimal()
    assert int(user["created_at"]) > 1_600_000_000_000
    for role in user.get("roles", []):
        assert set(role) == {"role_id", "role_name"}
        assert role["role_id"].isdecimal()


# Authentication


@pytest.mark.parametrize("prefix", ["", "/api/v1"])
@pytest.mark.parametrize("spelling", ["form", "json"])
async def test_token_by_password(admin: Console, prefix: str, spelling: str) -> None:
    """Form and JSON are taken; the fields stand at top level and in `data`."""
    fields = {
        "grant_type": "password",
        "username": admin.email,
        "password": admin.password,
        "client_id": admin.client_id,
        "client_secret": admin.client_secret,
    }
    body = {"data": fields} if spelling == "form" else {"json": fields}
    answer = await admin.http.post(f"{prefix}/oauth2/token", **body)
    assert answer.status_code == 200, answer.text
    content = answer.json()
    assert (content["status"], len(content["request_id"])) == ("Success", 32)
    check_tokens(content)
    check_tokens(content["data"])
    assert content["access_token"] == content["data"]["access_token"]
    user = await admin.ask("GET", "/user", token=content["access_token"])
    assert console_accepted(user)["email"] == admin.email


async def test_refresh_rotates(admin: Console) -> None:
    """A refresh gives a new pair; the tokens of the old pair are spent."""
    person = await admin.person()
    first = await person.tokens()
    answer = await person.grant(grant_type="refresh_token", refresh_token=first["refresh_token"])
    second = answer.json()["data"]
    check_tokens(second)
    assert second["refresh_token"] != first["refresh_token"]
    assert (await person.ask("GET", "/user", token=second["access_token"])).status_code == 200
    await person.close()


async def test_refresh_token_used_twice_ends_its_family(admin: Console) -> None:
    """A refresh token used again after its successor was used ends its log-in, and no other."""
    person = await admin.person()
    first, other = await person.tokens(), await person.tokens()
    again = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
    second = (await person.grant(**again)).json()["data"]
    assert (await person.grant(**again)).json()["data"]["refresh_token"] == second["refresh_token"]
    assert (await person.grant(**again | {"refresh_token": second["refresh_token"]})).is_success
    refusal = console_refused(await person.grant(**again), 401, "authentication_failed")
    assert refusal["error_message"].startswith("invalid_grant:")
    ended = await person.ask("GET", "/user", token=second["access_token"])
    console_refused(ended, 401, "authentication_failed")
    again["refresh_token"] = second["refresh_token"]
    assert (await person.grant(**again)).status_code == 401
    assert (await person.ask("GET", "/user", token=other["access_token"])).status_code == 200
    await person.close()


async def test_login_does_not_tell_whether_an_account_exists(admin: Console) -> None:
    """An unknown address and a wrong password have the same answer."""
    person = await admin.person()
    answers = [
        await person.grant(grant_type="password", username=name, password="Wrong12345")
        for name in (person.email, new_email())
    ]
    bodies = [console_refused(answer, 401, "authentication_failed") for answer in answers]
    assert bodies[0]["error_message"] == bodies[1]["error_message"]
    assert bodies[0].keys() == bodies[1].keys()
    await person.close()


@pytest.mark.parametrize(
    ("fields", "text", "field"),
    [
        ({"grant_type": "password", "password": "x"}, "invalid_request:username", "username"),
        ({"grant_type": "password", "username": "x"}, "invalid_request:password", "password"),
        ({"grant_type": "refresh_token"}, "invalid_request:refresh_token", "refresh_token"),
        ({"grant_type": "refresh_token", "refresh_token": "x"}, "invalid_grant:", ""),
        ({"grant_type": "client_credentials"}, "unsupported_grant_type:", "grant_type"),
        ({}, "invalid_request:grant_type", "grant_type"),
        ({"client_secret": "wrong", "grant_type": "refresh_token", "refresh_token": "x"},
         "invalid_client:", ""),
        ({"client_id": "nobody", "grant_type": "refresh_token", "refresh_token": "x"},
         "invalid_client:", ""),
    ],
)  # fmt: skip
async def test_token_refusals(
    admin: Console, fields: dict[str, str], text: str, field: str
) -> None:
    """An invalid grant gets 401 with the message `{OAuth code}:{text}`, which names the field."""
    answer = await admin.grant(**fields)
    body = console_refused(answer, 401, "authentication_failed", field)
    assert body["error_message"].startswith(text), body


async def test_tenants_own_client_is_bound(admin: Console, other_admin: Console) -> None:
    """A tenant's console client gives no tokens of another tenant."""
    for headers in ({}, {"TENANT_ID": "default"}):
        answer = await admin.http.post(
            "/oauth2/token",
            data={
                "grant_type": "password",
                "username": admin.email,
                "password": admin.password,
                "client_id": other_admin.client_id,
                "client_secret": other_admin.client_secret,
            },
            headers=headers,
        )
        console_refused(answer, 401, "authentication_failed")


async def test_registration_is_for_the_first_user(platform: Platform, admin: Console) -> None:
    """`init` is false until the first user registers, who is the super-admin; then it is 403."""
    name, client = await new_tenant(platform)
    tenant = {"TENANT_ID": name}

    async def status() -> Any:
        return console_accepted(await admin.http.get("/user/status", headers=tenant))

    first = Console(platform.base_url, client, new_email())
    body = {"email": first.email, "nickname": "First", "password": PASSWORD}
    for field, values in {
        "email": ADDRESSES,
        "password": WEAK,
        "nickname": [" ", "n" * 128],
    }.items():
        for value in values:
            answer = await admin.http.post(
                "/user/register", json=body | {field: value}, headers=tenant
            )
            assert answer.status_code == 400, (field, value, answer.text)
            assert answer.json()["detail_message"] == field, (field, value, answer.text)
    assert await status() == {"init": False}
    answer = await admin.http.post("/user/register", json=body, headers=tenant)
    console_accepted(answer, data=False)
    assert await status() == {"init": True}
    answer = await admin.http.post(
        "/user/register", json=body | {"email": new_email()}, headers=tenant
    )
    console_refused(answer, 403, "forbidden_permission")
    user = await (await first.log_in()).done("GET", "/user")
    assert (user["tenant_id"], user["super_admin"]) == (name, True)
    await first.close()


async def test_status_of_the_first_tenant(admin: Console) -> None:
    """The launcher made the first user; no token is needed to know, and a bad one is not read."""
    for token in ("", "rubbish"):
        answer = await admin.ask("GET", "/user/status", token=token)
        assert console_accepted(answer) == {"init": True}


async def test_current_user(admin: Console) -> None:
    """The current user has its roles, its flags in both spellings, and menus as a tree."""
    user = await admin.done("GET", "/user")
    assert set(user) == {
        *("tenant_id", "user_id", "nickname", "email", "created_at"),
        *("roles", "menus", "super_admin", "is_super_admin", "may_command"),
    }
    assert (user["super_admin"], user["is_super_admin"], user["email"]) == (True, True, admin.email)
    assert [role["role_name"] for role in user["roles"]] == ["super_admin"]


async def test_current_user_has_the_parents_of_granted_functions(admin: Console) -> None:
    """A function opens its page: parents are added to the menus, children are always a list."""
    person = await admin.person("device.view", "entity_data.view")
    user = await person.done("GET", "/user")
    assert (user["super_admin"], user["is_super_admin"]) == (False, False)
    by_code = {menu["code"]: menu for menu in user["menus"]}
    assert set(by_code) == {"device", "entity"}
    assert [menu["code"] for menu in by_code["device"]["children"]] == ["device.view"]
    data = by_code["entity"]["children"]
    assert [menu["code"] for menu in data] == ["entity_data"]
    assert [menu["code"] for menu in data[0]["children"]] == ["entity_data.view"]
    assert data[0]["children"][0]["children"] == []
    await person.close()


async def test_own_password(admin: Console) -> None:
    """The old password is asked for; the new one holds at once and all tokens end."""
    person = await admin.person()
    path, changed = "/user/password", {"old_password": PASSWORD, "new_password": "Changed22"}
    wrong = changed | {"old_password": "Wrong1234"}
    await person.fails(400, "parameter_syntax_error", "PUT", path, wrong, "old_password")
    for weak in WEAK:
        body = changed | {"new_password": weak}
        refusal = await person.ask("PUT", path, body)
        assert (refusal.status_code, refusal.json()["detail_message"]) == (400, "new_password")
    console_accepted(await person.ask("PUT", path, changed), data=False)
    await person.fails(401, "authentication_failed", "GET", "/user")
    answer = await person.grant(grant_type="refresh_token", refresh_token=person.refresh_token)
    assert answer.status_code == 401
    person.password = "Changed22"
    await person.log_in()
    await person.close()


# Users


async def test_user_search(admin: Console) -> None:
    """`keyword` is part of nickname or address in any case; a page only when asked for."""
    mark = uuid4().hex[:10]
    for number in range(3):
        await admin.add_user(f"{mark}-{number}@example.org", f"Nick {number} {mark.upper()}")
    found = await admin.done("POST", "/user/members/search", {"keyword": mark.upper()})
    for user in found:
        check_user(user)
    assert [user["email"][-13] for user in found] == ["2", "1", "0"]
    body = {"keyword": f"nick 1 {mark}", "page_size": 2, "page_number": 1}
    page = await admin.done("POST", "/user/members/search", body)
    assert (page["total"], page["page_size"], page["page_number"]) == (1, 2, 1)
    body = {
        "keyword": mark,
        "page_size": 2,
        "page_number": 2,
        "sorts": [{"direction": "ASC", "property": "createdAt"}],
    }
    page = await admin.done("POST", "/user/members/search", body)
    assert (page["total"], [user["nickname"][:6] for user in page["content"]]) == (3, ["Nick 2"])
    assert await admin.done("POST", "/user/members/search", {"keyword": uuid4().hex}) == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"page_size": 0}, "page_size"),
        ({"page_number": 0}, "page_number"),
        ({"page_size": "many"}, "page_size"),
        ({"keyword": 7}, "keyword"),
        ({"sorts": [{"property": "password_hash", "direction": "ASC"}]}, "sorts[0].property"),
        ({"sorts": [{"property": "email", "direction": "UP"}]}, "sorts[0].direction"),
    ],
)
async def test_bad_search_names_the_field(admin: Console, body: Any, field: str) -> None:
    """A search that cannot be made is a 400 that names what is wrong."""
    answer = await admin.ask("POST", "/user/members/search", body)
    assert answer.status_code == 400, answer.text
    told = answer.json()
    assert field in f"{told['error_message']} {told.get('detail_message')}", told


async def test_add_user(admin: Console) -> None:
    """A user is added without roles and can log in; fields that nobody knows are passed over."""
    email = new_email()
    body = {"email": email, "nickname": "New", "password": PASSWORD, "confirm": PASSWORD}
    console_accepted(await admin.ask("POST", "/user/members", body), data=False)
    found = await admin.done("POST", "/user/members/search", {"keyword": email})
    assert [(user["roles"], user["nickname"]) for user in found] == [([], "New")]
    person = Console(str(admin.http.base_url), (admin.client_id, admin.client_secret), email)
    assert (await (await person.log_in()).done("GET", "/user"))["menus"] == []
    await person.close()
    same = body | {"email": email.upper()}
    await admin.fails(409, "user_register_email_exist", "POST", "/user/members", same, "email")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("email", value) for value in ADDRESSES),
        *(("password", value) for value in WEAK),
        *(("nickname", value) for value in ("", " ", "n" * 128, "a\x00b")),
        *((field, None) for field in ("email", "nickname", "password")),
        *((field, 7) for field in ("email", "nickname", "password")),
    ],
)
async def test_bad_user_names_the_field(admin: Console, field: str, value: Any) -> None:
    """A field that is missing, blank, too long, malformed or weak is a 400 that names it."""
    body = {"email": new_email(), "nickname": "New", "password": PASSWORD, field: value}
    if value is None:
        del body[field]
    answer = await admin.ask("POST", "/user/members", body)
    assert answer.status_code == 400, answer.text
    told = answer.json()
    assert told["error_code"] in {"parameter_syntax_error", "parameter_validation_failed"}
    assert field in f"{told['error_message']} {told.get('detail_message')}", told


async def test_edit_user(admin: Console) -> None:
    """Nickname and address are set; `GET /user` shows them at once; both are required."""
    person, taken = await admin.person(), new_email()
    await admin.add_user(taken)
    path, email = f"/user/members/{person.id}", new_email()
    edited = await admin.ask("PUT", path, {"nickname": "Renamed", "email": email})
    console_accepted(edited, data=False)
    user = await person.done("GET", "/user")
    assert (user["nickname"], user["email"]) == ("Renamed", email)
    body = {"nickname": "Renamed", "email": taken}
    await admin.fails(409, "user_register_email_exist", "PUT", path, body, "email")
    for missing in ("nickname", "email"):
        body = {"nickname": "N", "email": email}
        del body[missing]
        answer = await admin.ask("PUT", path, body)
        assert (answer.status_code, missing in answer.text) == (400, True)
    unknown = {"nickname": "N", "email": new_email()}
    await admin.fails(404, "data_no_found", "PUT", "/user/members/999999999", unknown, "user_id")
    await person.close()


async def test_reset_password(admin: Console) -> None:
    """A super-admin sets a user's password; the user's tokens end at once."""
    person = await admin.person()
    path = f"/user/members/{person.id}/change-password"
    for weak in WEAK:
        answer = await admin.ask("PUT", path, {"password": weak})
        assert (answer.status_code, answer.json()["detail_message"]) == (400, "password")
    console_accepted(await admin.ask("PUT", path, {"password": "Changed33"}), data=False)
    await person.fails(401, "authentication_failed", "GET", "/user")
    person.password = "Changed33"
    await person.log_in()
    path = "/user/members/999999999/change-password"
    await admin.fails(404, "data_no_found", "PUT", path, {"password": PASSWORD}, "user_id")
    await person.close()


async def test_delete_user(admin: Console) -> None:
    """A deleted user is out at once and cannot log in; then there is nobody to delete."""
    person = await admin.person("device.view")
    await admin.does("DELETE", f"/user/members/{person.id}")
    await person.fails(401, "authentication_failed", "GET", "/user")
    answer = await person.grant(
        grant_type="password", username=person.email, password=person.password
    )
    console_refused(answer, 401, "authentication_failed")
    path = f"/user/members/{person.id}"
    await admin.fails(404, "data_no_found", "DELETE", path, field="user_id")
    await person.close()


async def test_a_super_admin_cannot_delete_the_own_user(admin: Console) -> None:
    """Their id in a list of users is ignored."""
    for method, path, body in (
        ("DELETE", f"/user/members/{admin.id}", None),
        ("POST", "/user/batch-delete", {"user_id_list": [admin.id]}),
    ):
        answer = await admin.ask(method, path, body)
        assert answer.status_code == 400, answer.text
    assert (await admin.done("GET", "/user"))["user_id"] == admin.id


async def test_batch_delete(admin: Console) -> None:
    """Ids are strings or numbers, unknown ones are passed over, an empty list is nothing to do."""
    people = [await admin.person(), await admin.person()]
    body = {"user_id_list": [people[0].id, int(people[1].id), "999999999"]}
    await admin.does("POST", "/user/batch-delete", body)
    for person in people:
        await person.fails(401, "authentication_failed", "GET", "/user")
        await person.close()
    await admin.does("POST", "/user/batch-delete", {"user_id_list": []})
    for bad in ({}, {"user_id_list": ["x"]}, {"user_id_list": 7}):
        answer = await admin.ask("POST", "/user/batch-delete", bad)
        assert (answer.status_code, "user_id_list" in answer.text) == (400, True)


async def test_menus_of_a_user(admin: Console) -> None:
    """A flat list; everything for a super-admin, nothing without roles."""
    person, nobody = await admin.person("device.view"), await admin.add_user()
    menus = await person.done("GET", f"/user/members/{person.id}/menus")
    assert {menu["code"] for menu in menus} >= {"device.view"}
    for menu in menus:
        required = {"menu_id", "code", "name", "type"}
        assert required <= set(menu) <= required | {"parent_id"}
        assert menu["type"] in {"MENU", "FUNCTION"}
    assert await admin.done("GET", f"/user/members/{nobody}/menus") == []
    everything = await admin.done("GET", f"/user/members/{admin.id}/menus")
    known = {code for code in await admin.menu_ids() if not code.startswith("product")}
    assert {menu["code"] for menu in everything} == known
    await person.close()


async def _has_what_it_reads(
    admin: Console, hall: Hall, person: Console, role: str, has: Any
) -> None:
    """An entity by itself, by its device and by its integration: true where reading is a 200."""
    entity = hall.entities["led"]
    path, asked = f"/user/members/{person.id}/permission", {"resource_id": entity}
    for kind, one in (
        ("ENTITY", entity),
        ("DEVICE", hall.device),
        ("INTEGRATION", DIRECT_INTEGRATION),
    ):
        wanted = {"resources": [{"id": one, "type": kind}]}
        assert not await has(path, asked | {"resource_type": "ENTITY"})
        await person.fails(404, "data_no_found", "GET", f"/entity/{entity}/children")
        await admin.does("POST", f"/user/roles/{role}/associate-resource", wanted)
        assert await has(path, asked | {"resource_type": "ENTITY"})
        await person.done("GET", f"/entity/{entity}/children")
        await admin.does("POST", f"/user/roles/{role}/disassociate-resource", wanted)
    custom = (await add_custom(admin))["id"]
    assert await has(path, {"resource_id": custom, "resource_type": "ENTITY"})
    await person.done("GET", f"/entity/{custom}/status")


async def test_permission_of_a_user(admin: Console, hall: Hall) -> None:
    """Has what its roles are granted; a super-admin has everything.

    The answer stands at top level, as specified, and in `data`.
    """

    async def has(path: str, asked: dict[str, str]) -> bool:
        answer = await admin.ask("POST", path, asked)
        body = answer.json()
        assert set(body) == {"data", "has_permission", "status", "request_id"}, body
        assert body["data"] == {"has_permission": body["has_permission"]}
        return bool(body["has_permission"])

    person = await admin.person("dashboard.view")
    role = await admin.add_role(users=(person.id,))
    one = await add_dashboard(admin)
    path, wanted = f"/user/members/{person.id}/permission", {"id": one, "type": "DASHBOARD"}
    asked = {"resource_type": "DASHBOARD", "resource_id": one}
    assert not await has(path, asked)
    await admin.does("POST", f"/user/roles/{role}/associate-resource", {"resources": [wanted]})
    assert await has(path, asked)
    assert not await has(path, asked | {"resource_type": "WORKFLOW"})
    path = f"/user/members/{admin.id}/permission"
    assert await has(path, asked)
    await _has_what_it_reads(admin, hall, person, role, has)
    for bad in ({"resource_type": "HOUSE", "resource_id": "1"}, {"resource_type": "DEVICE"}, {}):
        answer = await admin.ask("POST", path, bad)
        assert (answer.status_code, "resource_" in answer.text) == (400, True), answer.text
    await person.close()


@pytest.mark.parametrize(
    "path", ["/user/members/x", "/user/members/-1", "/user/members/99999999999999999999"]
)
async def test_bad_id_in_a_path(admin: Console, path: str) -> None:
    """An id that is none is a 400 that names it, whatever else is wrong."""
    answer = await admin.ask("PUT", path, {"nickname": "N", "email": new_email()})
    assert answer.status_code == 400, answer.text
    assert "user_id" in answer.text
