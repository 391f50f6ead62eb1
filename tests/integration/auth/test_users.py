"""`/user/members`: super-admins add, change and remove users; nothing crosses tenants."""

import asyncio

import pytest

from libs.common.bus import RpcServer
from libs.common.contracts.entities import ResolvedEntities, ResolvedEntity, ResolveEntities
from libs.common.contracts.names import (
    DescribedDevice,
    DescribedDevices,
    DescribeDevices,
)
from libs.common.identity import Principal, PrincipalKind
from tests.integration.auth.people import (
    PASSWORD,
    add_user,
    caller,
    first_user,
    refresh,
    sign_in,
    signed_in,
)
from tests.integration.auth.rights import store_role

SECOND = {"email": "second@example.com", "nickname": "Second"}
UNKNOWN = 4_000_000_000


async def test_users_are_found_by_part_of_nickname_or_address(auth):
    """In any case; signs that mean something to a regular expression mean nothing."""
    admin = await first_user(auth)
    await add_user(auth, admin, "ann.b+c@example.com")
    await add_user(auth, admin, "bob@example.org")

    async def search(keyword: str | None) -> list[str]:
        found = await auth.done("POST", "/user/members/search", {"keyword": keyword}, caller=admin)
        return [user["email"] for user in found]

    assert await search("EXAMPLE.ORG") == ["bob@example.org"]
    assert await search("n.b+C") == ["ann.b+c@example.com"]
    assert await search(".*") == []
    assert await search("first") == ["First@Example.com"]
    assert len(await search("")) == len(await search(None)) == 3


async def test_a_user_of_a_list_has_the_specified_fields(auth):
    """Without roles the list is empty."""
    admin = await first_user(auth)
    user_id = await add_user(auth, admin)

    second, first = await auth.done("POST", "/user/members/search", {}, caller=admin)

    assert second.pop("created_at").isdigit()
    assert second == {
        "tenant_id": "default",
        "user_id": str(user_id),
        "email": "second@example.com",
        "nickname": "second",
        "enabled": True,
        "roles": [],
    }
    assert first["roles"] == [{"role_id": "1", "role_name": "super_admin"}]


async def test_a_search_is_paged_and_sorted(auth):
    """Default order is newest first."""
    admin = await first_user(auth)
    for name in ("c", "a", "b"):
        await add_user(auth, admin, f"{name}@example.com")

    page = await auth.done(
        "POST", "/user/members/search", {"page_size": 2, "page_number": 2}, caller=admin
    )
    by_name = await auth.done(
        "POST",
        "/user/members/search",
        {"sorts": [{"property": "email", "direction": "ASC"}], "page_size": 99999},
        caller=admin,
    )

    assert (page["page_size"], page["page_number"], page["total"]) == (2, 2, 4)
    assert [user["nickname"] for user in page["content"]] == ["c", "First"]
    assert [user["nickname"] for user in by_name["content"]] == ["a", "b", "c", "First"]


async def test_an_edit_changes_address_and_nickname(auth):
    """The new address signs in, the old one does not; tokens go on."""
    admin = await first_user(auth)
    user_id = await add_user(auth, admin)
    tokens = await signed_in(auth, "second@example.com")

    changed = {"email": " New@example.com ", "nickname": " New "}
    await auth.done("PUT", f"/user/members/{user_id}", changed, caller=admin)

    [found] = await auth.done("POST", "/user/members/search", {"keyword": "new"}, caller=admin)
    assert (found["email"], found["nickname"]) == ("New@example.com", "New")
    assert (await sign_in(auth, "new@example.com")).status_code == 200
    assert (await sign_in(auth, "second@example.com")).status_code == 401
    assert await auth.principal(tokens["access_token"]) is not None


async def test_an_address_that_another_user_has_is_a_conflict(auth):
    """In any case, when adding and when editing; nothing changes."""
    admin = await first_user(auth)
    user_id = await add_user(auth, admin)
    taken = {"email": "FIRST@example.com", "nickname": "x", "password": PASSWORD}
    told = {"code": "user_register_email_exist", "field": "email", "caller": admin}

    await auth.refused(409, "POST", "/user/members", taken, **told)
    await auth.refused(409, "PUT", f"/user/members/{user_id}", taken, **told)

    assert len(await auth.done("POST", "/user/members/search", {}, caller=admin)) == 2


async def test_one_of_two_simultaneous_users_with_one_address_is_added(auth):
    """The other request is a conflict."""
    admin = await first_user(auth)
    body = {**SECOND, "password": PASSWORD}

    answers = await asyncio.gather(
        *(auth.ask("POST", "/user/members", body, caller=admin) for _ in range(4))
    )

    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]


async def ended(auth, tokens: dict) -> bool:
    refreshed = await refresh(auth, tokens["refresh_token"])
    return await auth.principal(tokens["access_token"]) is None and refreshed.status_code == 401


async def test_a_new_password_ends_the_users_tokens(auth):
    """The new one opens, the old one does not."""
    admin = await first_user(auth)
    user_id = await add_user(auth, admin)
    tokens = await signed_in(auth, "second@example.com")

    path = f"/user/members/{user_id}/change-password"
    await auth.done("PUT", path, {"password": "An0ther-one"}, caller=admin)

    assert await ended(auth, tokens)
    assert (await sign_in(auth, "second@example.com")).status_code == 401
    assert (await sign_in(auth, "second@example.com", "An0ther-one")).status_code == 200


async def test_a_disabled_user_is_out_until_it_is_enabled(auth):
    """Its tokens end at once and stay ended; doing it twice changes nothing."""
    admin = await first_user(auth)
    user_id = await add_user(auth, admin)
    tokens = await signed_in(auth, "second@example.com")
    path = f"/user/members/{user_id}/status"

    for _ in range(2):
        await auth.done("PUT", path, {"enabled": False}, caller=admin)
    assert await ended(auth, tokens)
    assert (await sign_in(auth, "second@example.com")).status_code == 401

    await auth.done("PUT", path, {"enabled": True}, caller=admin)
    assert await ended(auth, tokens)
    assert (await sign_in(auth, "second@example.com")).status_code == 200


@pytest.mark.parametrize("several", [False, True])
async def test_a_deleted_user_is_out_at_once(auth, several):
    """Unknown ids are ignored, and the address can be used again."""
    admin = await first_user(auth)
    user_id = await add_user(auth, admin)
    tokens = await signed_in(auth, "second@example.com")

    if several:
        body = {"user_id_list": [str(user_id), UNKNOWN, user_id]}
        assert await auth.done("POST", "/user/batch-delete", body, caller=admin) == {}
    else:
        assert await auth.done("DELETE", f"/user/members/{user_id}", {}, caller=admin) == {}

    assert await ended(auth, tokens)
    assert len(await auth.done("POST", "/user/members/search", {}, caller=admin)) == 1
    await add_user(auth, admin)


async def test_an_empty_list_of_deletions_is_fine(auth):
    """Nothing happens."""
    admin = await first_user(auth)

    assert await auth.done("POST", "/user/batch-delete", {"user_id_list": []}, caller=admin) == {}


async def test_users_cannot_delete_or_disable_themselves(auth):
    """This holds for lists of users, too."""
    admin = await first_user(auth)
    await add_user(auth, admin)
    me = admin.subject
    told = {"code": "parameter_syntax_error", "caller": admin}

    await auth.refused(400, "DELETE", f"/user/members/{me}", {}, field="user_id", **told)
    await auth.refused(
        400, "PUT", f"/user/members/{me}/status", {"enabled": False}, field="enabled", **told
    )
    body = {"user_id_list": [me]}
    await auth.refused(400, "POST", "/user/batch-delete", body, field="user_id_list", **told)

    assert (await sign_in(auth)).status_code == 200


@pytest.mark.parametrize("verb", ["delete", "disable"])
async def test_the_last_super_admins_cannot_remove_each_other_at_once(auth, verb):
    """One of two simultaneous removals fails."""
    admin = await first_user(auth)
    other_id = await add_user(auth, admin)
    users = auth.mongo.database["users"]
    await users.update_one({"_id": other_id}, {"$set": {"roles": [1]}})
    other = await caller(auth, await signed_in(auth, "second@example.com"))
    pairs = [(admin, other.subject), (other, admin.subject)]

    async def remove(by: Principal, whom: str) -> int:
        if verb == "delete":
            answer = await auth.ask("DELETE", f"/user/members/{whom}", {}, caller=by)
        else:
            path = f"/user/members/{whom}/status"
            answer = await auth.ask("PUT", path, {"enabled": False}, caller=by)
        return answer.status_code

    statuses = await asyncio.gather(*(remove(by, whom) for by, whom in pairs))

    assert sorted(statuses) == [200, 400]
    assert await users.count_documents({"roles": 1, "enabled": True}) == 1


MEMBER = f"/user/members/{UNKNOWN}"


OF_ONE_USER = [
    ("PUT", MEMBER, SECOND),
    ("PUT", f"{MEMBER}/change-password", {"password": PASSWORD}),
    ("PUT", f"{MEMBER}/status", {"enabled": False}),
    ("DELETE", MEMBER, {}),
    ("GET", f"{MEMBER}/menus", None),
    ("POST", f"{MEMBER}/permission", {"resource_type": "DEVICE", "resource_id": "1"}),
]


async def test_an_unknown_user_is_404_and_one_of_another_tenant_is_unknown(auth):
    """The id is named; the other tenant's user stays as it was."""
    admin = await first_user(auth)
    await auth.tenant("other")
    foreign = await first_user(auth, "other")
    before = await auth.mongo.database["users"].find_one({"tenant": "other"})
    told = {"caller": admin, "code": "data_no_found", "field": "user_id"}

    for method, path, body in OF_ONE_USER:
        await auth.refused(404, method, path, body, **told)
        await auth.refused(404, method, path.replace(str(UNKNOWN), foreign.subject), body, **told)

    assert await auth.mongo.database["users"].find_one({"tenant": "other"}) == before


async def test_lists_and_deletions_stay_in_the_tenant(auth):
    """Another tenant's users are neither shown nor removed."""
    admin = await first_user(auth)
    await auth.tenant("other")
    foreign = await first_user(auth, "other")

    body = {"user_id_list": [foreign.subject]}
    await auth.done("POST", "/user/batch-delete", body, caller=admin)

    [shown] = await auth.done("POST", "/user/members/search", {}, caller=admin)
    assert shown["user_id"] == admin.subject
    assert (await sign_in(auth, tenant="other")).status_code == 200


BAD_INPUT = [
    ("POST", "/user/members", SECOND, "password"),
    ("POST", "/user/members", {**SECOND, "password": "weak"}, "password"),
    ("PUT", "/user/members/7", {"email": "", "nickname": "x"}, "email"),
    ("PUT", "/user/members/7", {"email": "a@b.de", "nickname": " "}, "nickname"),
    ("PUT", "/user/members/abc", SECOND, "user_id"),
    ("PUT", "/user/members/0", SECOND, "user_id"),
    ("PUT", f"/user/members/{10**17}", SECOND, "user_id"),
    ("PUT", "/user/members/7/change-password", {}, "password"),
    ("PUT", "/user/members/7/change-password", {"password": " "}, "password"),
    ("PUT", "/user/members/7/status", {"enabled": "no"}, "enabled"),
    ("PUT", "/user/members/7/status", {}, "enabled"),
    ("DELETE", "/user/members/abc", {}, "user_id"),
    ("POST", "/user/batch-delete", {}, "user_id_list"),
    ("POST", "/user/batch-delete", {"user_id_list": "7"}, "user_id_list"),
    ("POST", "/user/batch-delete", {"user_id_list": ["x"]}, "user_id_list[0]"),
    ("POST", "/user/members/search", {"page_number": 0}, "page_number"),
    ("POST", "/user/members/search", {"page_size": -1}, "page_size"),
    ("POST", "/user/members/search", {"keyword": "x" * 300}, "keyword"),
    ("POST", "/user/members/search", {"keyword": 7}, "keyword"),
    (
        "POST",
        "/user/members/search",
        {"sorts": [{"property": "password_hash"}]},
        "sorts[0].property",
    ),
    (
        "POST",
        "/user/members/7/permission",
        {"resource_type": "DOOR", "resource_id": "1"},
        "resource_type",
    ),
    ("POST", "/user/members/7/permission", {"resource_type": "DEVICE"}, "resource_id"),
]


async def test_bad_input_names_the_field(auth):
    """400 with a code of the notes."""
    admin = await first_user(auth)
    for method, path, body, field in BAD_INPUT:
        content = await auth.refused(400, method, path, body, caller=admin, field=field)

        assert content["error_code"] in {"parameter_syntax_error", "parameter_validation_failed"}


ADMIN_ONLY = [
    ("POST", "/user/members", {**SECOND, "password": PASSWORD}),
    ("PUT", "/user/members/7", SECOND),
    ("PUT", "/user/members/7/change-password", {"password": PASSWORD}),
    ("PUT", "/user/members/7/status", {"enabled": False}),
    ("DELETE", "/user/members/7", {}),
    ("POST", "/user/batch-delete", {"user_id_list": ["7"]}),
]


async def test_changes_are_for_super_admins(auth):
    """Other users and applications get 403."""
    user = Principal(kind=PrincipalKind.USER, tenant="default", subject="9", name="u")
    application = Principal(kind=PrincipalKind.APPLICATION, tenant="default", subject="9", name="a")

    for method, path, body in ADMIN_ONLY:
        for who in (user, application):
            told = {"caller": who, "code": "forbidden_permission"}
            await auth.refused(403, method, path, body, **told)


async def test_a_permission_follows_from_a_grant_of_the_resource_or_its_owner(auth):
    """A super-admin has all permissions, and every user those on custom entities."""
    rpc = RpcServer(auth.bus, "device")

    async def describe(wanted: DescribeDevices) -> DescribedDevices:
        devices = [
            DescribedDevice(id=id_, name="", integration="ping", created_at=0)
            for id_ in wanted.ids or []
            if id_ == 501
        ]
        return DescribedDevices(devices=devices, total=len(devices))

    def entity(one: int, thing: int, integration: str) -> ResolvedEntity:
        about = {"key": "", "member": "", "name": "", "type": "PROPERTY", "value_type": "LONG"}
        device = integration != "system"
        return ResolvedEntity(
            id=one, thing_id=thing, integration=integration, device=device, **about
        )

    async def resolve(wanted: ResolveEntities) -> ResolvedEntities:
        known = {
            1: entity(1, 501, "ping"), 2: entity(2, 7, "other"),
            3: entity(3, 8, "other"), 4: entity(4, 9, "system"),
        }  # fmt: skip
        return ResolvedEntities([known[id_] for id_ in wanted.ids if id_ in known])

    rpc.offer("describe_devices", DescribeDevices, describe)
    rpc.offer("resolve_entities", ResolveEntities, resolve)
    await rpc.start()
    await auth.bus.client.flush()
    admin = await first_user(auth)
    user_id = await add_user(auth, admin)
    database = auth.mongo.database
    await store_role(auth, 77, "reader")
    await database["users"].update_one({"_id": user_id}, {"$set": {"roles": [77]}})
    grants = [("DASHBOARD", 5), ("INTEGRATION", "ping"), ("DEVICE", 7)]
    await database["grants"].insert_many(
        {"tenant": "default", "role": 77, "type": kind, "id": identity} for kind, identity in grants
    )

    async def has(kind: str, identity: str | int, whom: int = user_id) -> bool:
        body = {"resource_type": kind, "resource_id": identity}
        answer = await auth.ask("POST", f"/user/members/{whom}/permission", body, caller=admin)
        assert answer.status_code == 200, answer.text
        content = answer.json()
        assert content["data"] == {"has_permission": content["has_permission"]}
        return content["has_permission"]

    assert await has("DASHBOARD", "5")
    assert await has("DEVICE", 7)
    assert await has("DEVICE", "501")
    assert await has("INTEGRATION", "ping")
    assert await has("WORKFLOW", "1", int(admin.subject))
    assert [await has("ENTITY", one) for one in (1, 2, 3, 4, 5)] == [True, True, False, True, False]
    assert not await has("DASHBOARD", "6")
    assert not await has("DEVICE", "502")
    assert not await has("ENTITY", "7")
    assert not await has("INTEGRATION", "other")
    body = {"resource_type": "ENTITY", "resource_id": "not a number"}
    refused = await auth.ask("POST", f"/user/members/{user_id}/permission", body, caller=admin)
    assert (refused.status_code, refused.json()["detail_message"]) == (400, "resource_id")
    await rpc.stop()


async def test_role_changes_of_added_and_deleted_users_are_published(auth):
    """The first user is a super-admin from the start; a deleted user loses its roles."""
    admin = await first_user(auth)
    user_id = await add_user(auth, admin)
    await auth.done("POST", "/user/roles/1/associate-user", {"user_ids": [user_id]}, caller=admin)
    await auth.done("DELETE", f"/user/members/{user_id}", {}, caller=admin)

    audit = auth.mongo.database["audit"]
    registered = await audit.find_one({"object.id": admin.subject, "action": "created"})
    deleted = await audit.find_one({"object.id": str(user_id), "action": "deleted"})

    assert registered["after"]["roleIds"] == [1]
    assert deleted["before"]["roleIds"] == [1]


async def test_every_change_is_recorded_without_secrets(auth):
    """The audit log has user, action and address, but no password and no hash."""
    admin = await first_user(auth)
    user_id = await add_user(auth, admin)
    path = f"/user/members/{user_id}"
    await auth.done("PUT", path, {"email": "x@y.de", "nickname": "X"}, caller=admin)
    await auth.done("PUT", f"{path}/change-password", {"password": "An0ther-one"}, caller=admin)
    await auth.done("PUT", f"{path}/status", {"enabled": False}, caller=admin)
    await auth.done("PUT", f"{path}/status", {"enabled": True}, caller=admin)
    await auth.done("DELETE", path, {}, caller=admin)

    entries = await auth.mongo.database["audit"].find({"object.id": str(user_id)}).to_list(None)

    assert sorted(entry["action"] for entry in entries) == sorted(
        ["created", "updated", "password_changed", "disabled", "enabled", "deleted"]
    )
    assert {entry["actor"]["id"] for entry in entries} == {admin.subject}
    updated = next(entry for entry in entries if entry["action"] == "updated")
    assert updated["before"] == {"email": "second@example.com", "nickname": "second"}
    assert updated["after"] == {"email": "x@y.de", "nickname": "X"}
    whole = await auth.mongo.database["audit"].find().to_list(None)
    assert "argon2" not in str(whole)
    assert "An0ther" not in str(whole)
    assert ("session", "created") in {(one["object"]["type"], one["action"]) for one in whole}
