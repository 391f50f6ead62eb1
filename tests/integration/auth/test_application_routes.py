"""`/application`: what super-admins do with applications."""

import asyncio
from typing import Any

import msgspec
import nats
import pytest
from nats.errors import Error as NatsError

from libs.common.identity import Principal, PrincipalKind
from tests.integration.auth.conftest import ADDRESS, SUPER_ADMIN

HERE = "192.0.2.0/24"


async def create(auth: Any, name: str = "meter", **more: Any) -> dict[str, Any]:
    return await auth.done("POST", "/application", {"name": name, **more})


async def grant(auth: Any, made: dict[str, Any], address: str = ADDRESS, **more: str) -> Any:
    form = {"grant_type": "client_credentials"}
    form |= {name: made[name] for name in ("client_id", "client_secret")}
    return await auth.http.post(
        "/oauth/token", data={**form, **more}, headers={"x-real-ip": address}
    )


async def tokens(auth: Any, made: dict[str, Any], address: str = ADDRESS) -> dict[str, str]:
    answer = await grant(auth, made, address)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


async def test_an_application_is_created_and_logs_in(auth):
    """Ids are strings, and what clients send besides is passed over."""
    made = await create(auth, " meter ", events=True, description="unknown")

    found = await auth.done("GET", f"/application/{made['application_id']}")

    assert set(made) == {"application_id", "name", "client_id", "client_secret"}
    assert found == {
        "application_id": made["application_id"],
        "tenant_id": "default",
        "name": "meter",
        "client_id": made["client_id"],
        "events": True,
        "allowed_addresses": [],
        "created_at": found["created_at"],
    }
    assert isinstance(found["created_at"], int)
    assert await tokens(auth, made)


async def test_a_search_finds_part_of_a_name_or_client_id(auth):
    """In any case, the newest first; a bare list unless a page is asked for."""
    made = [await create(auth, name) for name in ("Alpha", "beta", "ALPHABET", "a.c", "abc")]

    every = await auth.done("POST", "/application/search", {})
    named = await auth.done("POST", "/application/search", {"keyword": "alpha"})
    dotted = await auth.done("POST", "/application/search", {"keyword": "a.c"})
    by_client = await auth.done(
        "POST", "/application/search", {"keyword": made[1]["client_id"][:13].upper()}
    )

    assert [each["name"] for each in every] == ["abc", "a.c", "ALPHABET", "beta", "Alpha"]
    assert [each["name"] for each in named] == ["ALPHABET", "Alpha"]
    assert [each["name"] for each in dotted] == ["a.c"]
    assert [each["name"] for each in by_client] == ["beta"]


async def test_a_search_answers_the_page_and_the_order_that_are_asked_for(auth):
    """`total` counts all pages."""
    for name in ("c", "a", "b"):
        await create(auth, name)
    wanted = {"page_size": 2, "sorts": [{"direction": "ASC", "property": "name"}]}

    first = await auth.done("POST", "/application/search", {**wanted, "page_number": 1})
    second = await auth.done("POST", "/application/search", {**wanted, "page_number": 2})

    assert [each["name"] for each in first.pop("content")] == ["a", "b"]
    assert first == {"page_size": 2, "page_number": 1, "total": 3}
    assert [each["name"] for each in second["content"]] == ["c"]


async def test_a_renamed_application_keeps_its_other_fields(auth):
    """Its tokens stay valid."""
    made = await create(auth, events=True)
    held = await tokens(auth, made)
    path = f"/application/{made['application_id']}"

    assert await auth.done("PUT", path, {"name": "other"}) is None

    found = await auth.done("GET", path)
    assert (found["name"], found["events"]) == ("other", True)
    assert await auth.principal(held["access_token"])


async def test_a_new_secret_ends_the_old_one_and_every_token(auth):
    """When the answer is there, the next look-up fails."""
    made = await create(auth)
    held = await tokens(auth, made)

    renewed = await auth.done("POST", f"/application/{made['application_id']}/secret")

    assert await auth.principal(held["access_token"]) is None
    assert (await grant(auth, made)).status_code == 401
    assert renewed["client_id"] == made["client_id"]
    assert await tokens(auth, renewed)


async def test_a_deleted_application_is_gone(auth):
    """So are its tokens; deleting it again is 404."""
    made = await create(auth)
    held = await tokens(auth, made)
    path = f"/application/{made['application_id']}"

    await auth.done("DELETE", path)

    assert await auth.principal(held["access_token"]) is None
    assert (await grant(auth, made)).status_code == 401
    await auth.refused(404, "GET", path, field="application_id", code="data_no_found")
    await auth.refused(404, "DELETE", path, field="application_id", code="data_no_found")


async def test_an_allow_list_is_held_where_tokens_are_given(auth):
    """Both grants; a refresh token that was refused elsewhere is not used up."""
    made = await create(auth, allowed_addresses=[HERE])
    held = await tokens(auth, made)
    refresh = {"grant_type": "refresh_token", "refresh_token": held["refresh_token"]}

    elsewhere = await grant(auth, made, "198.51.100.1")
    unknown = await grant(auth, made, "")
    stolen = await grant(auth, made, "198.51.100.1", **refresh)
    own = await grant(auth, made, **refresh)

    assert [each.status_code for each in (elsewhere, unknown, stolen, own)] == [403, 403, 403, 200]
    assert elsewhere.json()["errCode"] == "forbidden_permission"
    assert "198.51.100.1" in elsewhere.json()["errMsg"]


async def test_tokens_carry_the_allow_list_to_the_gateway(auth):
    """A new list ends the tokens of before, so none has an old one."""
    made = await create(auth)
    path = f"/application/{made['application_id']}/allowed-addresses"
    before = await tokens(auth, made)

    answered = await auth.done("PUT", path, {"allowed_addresses": [" 192.0.2.0/255.255.255.0"]})

    assert answered == {"allowed_addresses": [HERE]}
    assert await auth.principal(before["access_token"]) is None
    after = await auth.principal((await tokens(auth, made))["access_token"])
    assert after.networks == (HERE,)


async def test_the_same_allow_list_again_changes_nothing(auth):
    """Tokens live on."""
    made = await create(auth, allowed_addresses=[HERE])
    held = await tokens(auth, made)

    path = f"/application/{made['application_id']}/allowed-addresses"
    await auth.done("PUT", path, {"allowed_addresses": [HERE]})

    assert await auth.principal(held["access_token"])


async def test_an_empty_allow_list_means_any_address(auth):
    """Taking it away ends tokens too."""
    made = await create(auth, allowed_addresses=["198.51.100.1"])
    path = f"/application/{made['application_id']}/allowed-addresses"

    await auth.done("PUT", path, {"allowed_addresses": []})

    assert await tokens(auth, made, "203.0.113.9")


async def test_the_bus_holds_the_allow_list_too(auth):
    """A connection of the application comes in from a listed address only (here: loopback)."""
    made = await create(auth, events=True, allowed_addresses=[HERE])
    login = {"user": made["client_id"], "password": made["client_secret"]}

    with pytest.raises(NatsError, match="Authorization"):
        await nats.connect(auth.door.url, **login, allow_reconnect=False)

    path = f"/application/{made['application_id']}/allowed-addresses"
    await auth.done("PUT", path, {"allowed_addresses": ["127.0.0.1", "::1"]})
    client = await nats.connect(auth.door.url, **login, allow_reconnect=False)
    assert client.is_connected
    await client.close()


async def test_no_simultaneous_change_is_lost(auth):
    """Each change is a transaction, which runs again after a conflict."""
    made = await create(auth)
    path = f"/application/{made['application_id']}"

    await asyncio.gather(
        *(auth.done("POST", f"{path}/secret") for _ in range(5)),
        auth.done("PUT", path, {"name": "other"}),
        auth.done("PUT", f"{path}/allowed-addresses", {"allowed_addresses": [HERE]}),
    )

    stored = await auth.mongo.database["applications"].find_one({})
    assert (stored["generation"], stored["name"], stored["allowedAddresses"]) == (
        7,
        "other",
        [HERE],
    )


ENTRIES = [f"192.0.2.{at}" for at in range(101)]


async def test_a_bad_application_is_400(auth, subtests: pytest.Subtests):
    """The field is named, and nothing is stored."""
    for body, field in [
        ({}, "name"),
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
        ({"name": "  "}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": 7}, "name"),
        ({"name": ["a"]}, "name"),
        ({"name": "a", "events": "yes"}, "events"),
        ({"name": "a", "allowed_addresses": "192.0.2.1"}, "allowed_addresses"),
        ({"name": "a", "allowed_addresses": [1]}, "allowed_addresses"),
        ({"name": "a", "allowed_addresses": ["x" * 65]}, "allowed_addresses"),
        ({"name": "a", "allowed_addresses": ENTRIES}, "allowed_addresses"),
        ({"name": "a", "allowed_addresses": ["192.0.2.1", "nobody"]}, "allowed_addresses[1]"),
        ({"name": "a", "allowed_addresses": ["192.0.2.1/24"]}, "allowed_addresses[0]"),
    ]:
        with subtests.test(str((body, field))):
            answer = await auth.refused(400, "POST", "/application", body)

            assert field in answer.get("detail_message", "") + answer["error_message"]
            assert not await auth.mongo.database["applications"].count_documents({})


async def test_a_bad_allow_list_is_400(auth, subtests: pytest.Subtests):
    """The entry is named, and the list stays as it was."""
    made = await create(auth, allowed_addresses=[HERE])
    path = f"/application/{made['application_id']}"
    for body, field in [
        ({}, "allowed_addresses"),
        ({"allowed_addresses": None}, "allowed_addresses"),
        ({"allowed_addresses": ENTRIES}, "allowed_addresses"),
        ({"allowed_addresses": [HERE, ""]}, "allowed_addresses[1]"),
        ({"allowed_addresses": ["fe80::1%eth0"]}, "allowed_addresses[0]"),
    ]:
        with subtests.test(str((body, field))):
            answer = await auth.refused(400, "PUT", f"{path}/allowed-addresses", body)

            assert field in answer.get("detail_message", "") + answer["error_message"]
            assert (await auth.done("GET", path))["allowed_addresses"] == [HERE]


async def test_a_bad_search_is_400(auth, subtests: pytest.Subtests):
    """Never an error of ours."""
    for body, field in [
        ({"keyword": 7}, "keyword"),
        ({"keyword": "x" * 256}, "keyword"),
        ({"page_size": 0}, "page_size"),
        ({"page_number": 0}, "page_number"),
        ({"sorts": [{"property": "secretHash", "direction": "ASC"}]}, "sorts[0].property"),
        ({"sorts": [{"property": "name", "direction": "UP"}]}, "sorts[0].direction"),
        ([], ""),
        (None, ""),
    ]:
        with subtests.test(str((body, field))):
            answer = await auth.refused(400, "POST", "/application/search", body)

            assert field in answer.get("detail_message", "") + answer["error_message"]


PATHS = [
    ("GET", "/application/{}", None),
    ("PUT", "/application/{}", {"name": "other"}),
    ("DELETE", "/application/{}", None),
    ("POST", "/application/{}/secret", None),
    ("PUT", "/application/{}/allowed-addresses", {"allowed_addresses": [HERE]}),
]


async def test_an_id_that_is_no_number_is_400(auth, subtests: pytest.Subtests):
    """The parameter is named."""
    for wanted in ["abc", "-1", "0", "1.5", "9007199254740992", "%00"]:
        for method, path, body in PATHS:
            with subtests.test(str((wanted, method, path, body))):
                await auth.refused(400, method, path.format(wanted), body, field="application_id")


@pytest.mark.parametrize(("method", "path", "body"), PATHS)
async def test_an_application_of_another_tenant_is_unknown(auth, method, path, body):
    """404 to everybody else's super-admin; it stays as it is, and no list shows it."""
    made = await create(auth)
    await auth.tenant("elsewhere")
    stranger = msgspec.structs.replace(SUPER_ADMIN, tenant="elsewhere")

    await auth.refused(
        404,
        method,
        path.format(made["application_id"]),
        body,
        caller=stranger,
        code="data_no_found",
    )

    assert await auth.done("POST", "/application/search", {}, caller=stranger) == []
    assert await tokens(auth, made)


async def test_only_super_admins_come_in(auth, subtests: pytest.Subtests):
    """All other users get 403, even for unknown applications."""
    code = "forbidden_permission"
    for method, path, body in [
        *PATHS,
        ("POST", "/application", {"name": "a"}),
        ("POST", "/application/search", {}),
        ("POST", "/audit/search", {}),
    ]:
        for caller in [
            Principal(kind=PrincipalKind.USER, tenant="default", subject="1"),
            Principal(kind=PrincipalKind.APPLICATION, tenant="default", subject="1"),
        ]:
            with subtests.test(str((method, path, body, caller))):
                await auth.refused(
                    403, method, path.format(1_000_000), body, caller=caller, code=code
                )


async def test_a_name_is_taken_once(auth):
    """409 for a second one, and for a new name that another has."""
    await create(auth, "first")
    second = await create(auth, "second")
    path = f"/application/{second['application_id']}"
    expected = {"field": "name", "code": "name_repeated"}

    await auth.refused(409, "POST", "/application", {"name": " first "}, **expected)
    await auth.refused(409, "PUT", path, {"name": "first"}, **expected)

    assert (await auth.done("GET", path))["name"] == "second"
