"""`/user`: the first user of a tenant, and what people do with their own account."""

import asyncio

import pytest

from libs.common.contracts.auth import (
    CreateUser,
    DescribedUsers,
    DescribeUsers,
    ListUsers,
    UserPassword,
    UserRefByEmail,
    Users,
)
from libs.common.errors import Conflict, InvalidInput, NotFound
from services.auth.accounts.roles import INITIAL_MENUS
from services.auth.passwords import ACCOUNT_FAILURE_BURST, PasswordHasherPool
from tests.integration.auth.people import (
    FIRST,
    PASSWORD,
    add_user,
    caller,
    first_user,
    post,
    refresh,
    register,
    sign_in,
    signed_in,
)
from tests.integration.auth.rights import store_role


async def status(auth, tenant: str = "") -> bool:
    headers = {"TENANT_ID": tenant} if tenant else {}
    answer = await auth.http.get("/user/status", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]["init"]


async def test_registration_is_open_until_the_first_user_exists(auth):
    """That user is super-admin; then 403, for the same address as for another."""
    before = await status(auth)
    first = await register(auth)

    second = await register(auth, email="second@example.com")

    assert (before, await status(auth)) == (False, True)
    assert (first.status_code, sorted(first.json())) == (200, ["request_id", "status"])
    assert (second.status_code, second.json()["error_code"]) == (403, "forbidden_permission")
    assert (await register(auth)).status_code == 403


async def test_one_of_simultaneous_registrations_succeeds(auth, monkeypatch):
    """Ten requests that all found no user create one user."""
    together = asyncio.Barrier(10)

    async def hash_together(*_: object) -> str:
        await together.wait()
        return "a hash"

    monkeypatch.setattr(PasswordHasherPool, "hash", hash_together)
    answers = await asyncio.gather(
        *(register(auth, email=f"user{n}@example.com") for n in range(10))
    )

    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200] + [403] * 9
    assert await auth.mongo.database["users"].count_documents({}) == 1


async def test_every_tenant_has_a_first_user_of_its_own(auth):
    """The header names the tenant; the same address may be in both."""
    await auth.tenant("other")
    await register(auth)

    assert not await status(auth, "other")
    admin = await first_user(auth, "other")

    assert (admin.tenant, admin.super_admin) == ("other", True)
    assert await status(auth, "other")


@pytest.mark.parametrize("path", ["/user/register", "/user/status"])
async def test_an_unknown_tenant_is_404(auth, path):
    """The header is named."""
    method = "POST" if path.endswith("register") else "GET"

    answer = await auth.http.request(method, path, json=FIRST, headers={"TENANT_ID": "nowhere"})

    assert (answer.status_code, answer.json()["error_code"]) == (404, "data_no_found")
    assert answer.json()["detail_message"] == "TENANT_ID"


BAD_REGISTRATIONS = [
    ({"email": " "}, "parameter_syntax_error", "email"),
    ({"email": "a@b"}, "parameter_validation_failed", "email"),
    ({"email": "no address"}, "parameter_validation_failed", "email"),
    ({"email": "two@at@example.com"}, "parameter_validation_failed", "email"),
    ({"email": "a@example..com"}, "parameter_validation_failed", "email"),
    ({"email": f"a@{'b' * 250}.com"}, "parameter_validation_failed", "email"),
    ({"email": 7}, "parameter_validation_failed", "email"),
    ({"email": None}, "parameter_validation_failed", "email"),
    ({"nickname": "\t"}, "parameter_syntax_error", "nickname"),
    ({"nickname": "n" * 128}, "parameter_validation_failed", "nickname"),
    ({"nickname": "a\u0000b"}, "parameter_validation_failed", "nickname"),
    ({"password": ""}, "parameter_syntax_error", "password"),
    ({"password": "Passw0r"}, "parameter_validation_failed", "password"),
    ({"password": "Passw0rd" * 8}, "parameter_validation_failed", "password"),
    ({"password": "passw0rd"}, "parameter_validation_failed", "password"),
    ({"password": "PASSW0RD"}, "parameter_validation_failed", "password"),
    ({"password": "Password"}, "parameter_validation_failed", "password"),
    ({"password": "Pass w0rd"}, "parameter_validation_failed", "password"),
    ({"password": "Päßwort1"}, "parameter_validation_failed", "password"),
]


async def test_a_registration_with_bad_fields_names_the_field(auth):
    """400, and registration stays open."""
    for change, code, field in BAD_REGISTRATIONS:
        answer = await post(auth, "/user/register", json=FIRST | change)

        content = answer.json()
        assert (answer.status_code, content["error_code"]) == (400, code), change
        assert content["detail_message"] == field
    assert not await status(auth)


async def test_a_registration_without_a_field_names_it(auth):
    """All fields are required."""
    for field in FIRST:
        fields = {name: value for name, value in FIRST.items() if name != field}

        answer = await post(auth, "/user/register", json=fields)

        assert (answer.status_code, answer.json()["detail_message"]) == (400, field)


async def test_the_profile_has_the_whole_tree_for_a_super_admin(auth):
    """As specified, with the flag under both names."""
    admin = await first_user(auth)

    profile = await auth.done("GET", "/user", caller=admin)

    menus = profile.pop("menus")
    assert profile.pop("created_at").isdigit()
    assert profile == {
        "tenant_id": "default",
        "user_id": admin.subject,
        "nickname": "First",
        "email": "First@Example.com",
        "roles": [{"role_id": "1", "role_name": "super_admin"}],
        "super_admin": True,
        "is_super_admin": True,
        "may_command": True,
    }
    assert (
        _count(menus) == len(INITIAL_MENUS) - 3
    )  # the page of products, which our console alone has


def _count(menus: list) -> int:
    return sum(1 + _count(menu["children"]) for menu in menus)


async def test_a_users_tree_has_the_pages_that_lead_to_its_functions(auth):
    """Consoles open a page only when its menu is there."""
    admin = await first_user(auth)
    user_id = await add_user(auth, admin)
    await store_role(auth, 77, "reader", [3001, 2001])
    await auth.mongo.database["users"].update_one({"_id": user_id}, {"$set": {"roles": [77]}})
    user = await caller(auth, await signed_in(auth, "second@example.com"))

    profile = await auth.done("GET", "/user", caller=user)
    flat = await auth.done("GET", f"/user/members/{user_id}/menus", caller=user)

    device, entity = profile["menus"]
    assert (profile["is_super_admin"], profile["super_admin"]) == (False, False)
    assert [device["code"], device["children"][0]["code"]] == ["device", "device.view"]
    assert device["children"][0]["children"] == []
    custom = entity["children"][0]
    assert (entity["code"], custom["code"]) == ("entity", "entity_custom")
    assert custom["children"][0] | {"children": []} == {
        "menu_id": "3001",
        "code": "entity_custom.view",
        "name": "entity_custom.view",
        "type": "FUNCTION",
        "parent_id": "3000",
        "children": [],
    }
    assert sorted(menu["code"] for menu in flat) == [
        "device",
        "device.view",
        "entity",
        "entity_custom",
        "entity_custom.view",
    ]


async def test_a_new_password_ends_every_token_at_once(auth):
    """The one it was changed with too; the old password opens nothing more."""
    admin = await first_user(auth)
    tokens = [await signed_in(auth), await signed_in(auth)]

    await auth.done(
        "PUT",
        "/user/password",
        {"old_password": PASSWORD, "new_password": "An0ther-one"},
        caller=admin,
    )

    for pair in tokens:
        assert await auth.principal(pair["access_token"]) is None
        assert (await refresh(auth, pair["refresh_token"])).status_code == 401
    assert (await sign_in(auth)).status_code == 401
    assert (await sign_in(auth, password="An0ther-one")).status_code == 200


BAD_CHANGES = [
    ({"old_password": "Wr0ng-one"}, "parameter_syntax_error", "old_password"),
    ({"old_password": ""}, "parameter_syntax_error", "old_password"),
    ({"new_password": ""}, "parameter_syntax_error", "new_password"),
    ({"new_password": "weak"}, "parameter_validation_failed", "new_password"),
    ({"new_password": 1}, "parameter_validation_failed", "new_password"),
]


async def test_a_bad_change_of_password_changes_nothing(auth):
    """400 that names the field; the old password still opens."""
    admin = await first_user(auth)
    for change, code, field in BAD_CHANGES:
        body = {"old_password": PASSWORD, "new_password": "An0ther-one"} | change
        told = {"code": code, "field": field}
        await auth.refused(400, "PUT", "/user/password", body, caller=admin, **told)

    assert (await sign_in(auth)).status_code == 200


async def test_the_old_password_cannot_be_guessed_with_a_stolen_token(auth):
    """It is throttled as log-ins are."""
    admin = await first_user(auth)
    body = {"old_password": "Wr0ng-one", "new_password": "An0ther-one"}
    for _ in range(ACCOUNT_FAILURE_BURST):
        await auth.refused(400, "PUT", "/user/password", body, caller=admin)

    await auth.refused(
        429, "PUT", "/user/password", body, caller=admin, code="request_too_frequently"
    )


async def test_the_operator_makes_users_and_new_passwords(auth):
    """The password that auth makes satisfies the rule and opens; a reset ends the tokens."""
    wanted = CreateUser(email="admin@example.com", nickname="Admin", super_admin=True)
    made = await auth.call("create_user", wanted, UserPassword)
    tokens = await signed_in(auth, "admin@example.com", made.password)

    reset = await auth.call(
        "reset_user_password", UserRefByEmail("Admin@example.com"), UserPassword
    )

    assert (reset.user_id, reset.email) == (made.user_id, "admin@example.com")
    assert await auth.principal(tokens["access_token"]) is None
    admin = await caller(auth, await signed_in(auth, "admin@example.com", reset.password))
    assert admin.super_admin
    assert (await register(auth)).status_code == 403


async def test_the_operator_lists_users_or_super_admins(auth):
    """Sorted by address, with who may do everything."""
    for email, admin in (("boss@example.com", True), ("ann@example.com", False)):
        wanted = CreateUser(email=email, nickname="x", super_admin=admin)
        await auth.call("create_user", wanted, UserPassword)

    every = await auth.call("list_users", ListUsers(), Users)
    admins = await auth.call("list_users", ListUsers(super_admins=True), Users)

    listed = [(user.email, user.super_admin, user.enabled) for user in every.users]
    assert listed == [("ann@example.com", False, True), ("boss@example.com", True, True)]
    assert admins.users == every.users[1:]
    with pytest.raises(NotFound):
        await auth.call("list_users", ListUsers("none"), Users)


async def test_services_get_the_nicknames_of_users(auth):
    """Unknown users and those of other tenants are omitted."""
    wanted = CreateUser(email="admin@example.com", nickname="Admin")
    made = await auth.call("create_user", wanted, UserPassword)
    for tenant, names in (("default", {str(made.user_id): "Admin"}), ("other", {})):
        asked = DescribeUsers(tenant, [made.user_id, 999])
        assert (await auth.call("describe_users", asked, DescribedUsers)).nicknames == names


AMISS = [
    ("create_user", CreateUser(email="first@example.com", nickname="x"), Conflict),
    ("create_user", CreateUser(email="none", nickname="x"), InvalidInput),
    ("create_user", CreateUser(email="a@b.de", nickname=" "), InvalidInput),
    ("create_user", CreateUser(email="a@b.de", nickname="x", tenant="none"), NotFound),
    ("reset_user_password", UserRefByEmail("nobody@example.com"), NotFound),
]


async def test_invalid_requests_of_the_operator_are_rejected(auth):
    """The command can show the error."""
    await register(auth)

    for operation, wanted, error in AMISS:
        with pytest.raises(error):
            await auth.call(operation, wanted, UserPassword)
