"""The audit log: what it has, how it is searched, how long it is kept."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from libs.common.contracts.auth import ApplicationRef, ApplicationSecret
from libs.common.store.migrations import DAY_SECONDS, MAX_RETENTION_DAYS, set_retention_days
from tests.integration.auth.conftest import ADDRESS, SUPER_ADMIN
from tests.integration.auth.people import add_user, first_user, sign_in

SEARCH = "/audit/search"


async def search(auth: Any, **wanted: Any) -> dict[str, Any]:
    return await auth.done("POST", SEARCH, wanted)


BEGIN = int(time.time()) - 86_400
"""When the log begins (s): recently, as MongoDB removes what is too old when it likes."""


async def put(auth: Any, *entries: dict[str, Any], tenant: str = "t1") -> None:
    """Entries as the log has them; the first is the oldest."""
    await auth.mongo.database["audit"].insert_many(
        {
            "_id": f"{at:032x}",
            "tenant": tenant,
            "at": datetime.fromtimestamp(BEGIN + at, UTC),
            "actor": {"kind": "user", "id": "1", "name": "root@example.com"},
            "action": "updated",
            "object": {"type": "role", "id": str(at), "name": f"role {at}"},
            **entry,
        }
        for at, entry in enumerate(entries)
    )


async def found(auth: Any, **wanted: Any) -> list[int]:
    """Which of the entries that were put fit, in the order of the answer."""
    caller = msgspec.structs.replace(SUPER_ADMIN, tenant="t1")
    page = await auth.done("POST", SEARCH, wanted, caller=caller)
    assert page["total"] == len(page["content"])
    return [int(entry["id"], 16) for entry in page["content"]]


async def test_an_entry_contains_actor_action_object_and_address(auth):
    """It contains the request id, and the values before and after."""
    answer = await auth.ask("POST", "/application", {"name": "meter", "events": True})
    made = answer.json()["data"]
    await auth.done("PUT", f"/application/{made['application_id']}", {"name": "other"})

    page = await search(auth, object_type="application")

    updated, created = page.pop("content")
    assert page == {"page_size": 10, "page_number": 1, "total": 2}
    assert created == {
        "id": created["id"],
        "created_at": created["created_at"],
        "actor": {"kind": "user", "id": "42", "name": "root@example.com"},
        "action": "created",
        "object": {"type": "application", "id": made["application_id"], "name": "meter"},
        "address": ADDRESS,
        "request_id": answer.json()["request_id"],
        "after": {
            "name": "meter",
            "client_id": made["client_id"],
            "events": True,
            "allowed_addresses": [],
        },
    }
    assert updated["object"]["name"] == "other"
    assert (updated["before"], updated["after"]) == ({"name": "meter"}, {"name": "other"})


async def test_the_operator_s_commands_are_recorded(auth):
    """By a name that no user has, without an address."""
    made = await auth.application()
    reference = ApplicationRef(made.application_id)
    await auth.call("rotate_application_secret", reference, ApplicationSecret)

    entry = (await search(auth, object_type="application"))["content"][0]

    assert entry["actor"] == {"kind": "user", "id": "0", "name": "operator"}
    assert (entry["action"], "address" in entry, "before" in entry) == ("rotated", False, False)


async def test_a_failed_change_leaves_no_entry(auth):
    """Neither the entry nor its event is written without the change."""
    await auth.application("same")

    await auth.refused(409, "POST", "/application", {"name": "same"})

    assert (await search(auth, object_type="application"))["total"] == 1
    assert not await auth.mongo.database["outbox"].count_documents({})


async def test_a_search_finds_entries_that_match_all_filters(auth, subtests: pytest.Subtests):
    """Default order is newest first. Keywords are not patterns."""
    await put(
        auth,
        {"requestId": "abc"},
        {"action": "deleted", "actor": {"kind": "user", "id": "2", "name": "ann@example.com"}},
        {"object": {"type": "user", "id": "2", "name": "role 2"}, "address": "2001:db8::1"},
        {},
    )
    await put(auth, *({"_id": f"other {at}"} for at in range(3)), tenant="t2")
    for wanted, expected in [
        ({}, [3, 2, 1, 0]),
        ({"keyword": "ROOT"}, [3, 2, 0]),
        ({"keyword": "role 2"}, [2]),
        ({"keyword": "r.le"}, []),
        ({"keyword": ""}, [3, 2, 1, 0]),
        ({"action": "deleted"}, [1]),
        ({"action": "delete"}, []),
        ({"object_type": "user"}, [2]),
        ({"object_type": "role", "object_id": "3"}, [3]),
        ({"object_type": "role", "object_id": 3}, [3]),
        ({"object_id": 0}, [0]),
        ({"actor_id": "2"}, [1]),
        ({"actor_id": 2}, [1]),
        ({"address": "2001:db8::1"}, [2]),
        ({"request_id": "abc"}, [0]),
        ({"start_timestamp": BEGIN * 1000 + 1000}, [3, 2, 1]),
        ({"end_timestamp": BEGIN * 1000 + 1000}, [1, 0]),
        ({"start_timestamp": BEGIN * 1000 + 1000, "end_timestamp": BEGIN * 1000 + 1000}, [1]),
        ({"start_timestamp": BEGIN * 1000 + 1001, "end_timestamp": BEGIN * 1000 + 2999}, [2]),
        ({"action": "deleted", "actor_id": "1"}, []),
        ({"sorts": [{"property": "created_at", "direction": "ASC"}]}, [0, 1, 2, 3]),
        ({"sorts": [{"property": "actorName", "direction": "asc"}]}, [1, 3, 2, 0]),
    ]:
        with subtests.test(str((wanted, expected))):
            assert await found(auth, **wanted) == expected


async def test_pages_follow_each_other(auth):
    """`total` counts the entries of all pages."""
    await put(auth, *({} for _ in range(5)), tenant="default")
    await auth.mongo.database["audit"].delete_many({"object.type": "tenant"})

    pages = [await search(auth, page_size=2, page_number=number) for number in (1, 2, 3, 4)]

    ids = [[int(entry["id"], 16) for entry in page["content"]] for page in pages]
    assert ids == [[4, 3], [2, 1], [0], []]
    assert {page["total"] for page in pages} == {5}


async def test_a_page_has_a_thousand_entries_at_most(auth):
    """More may be asked for; the answer says how many a page has."""
    await put(auth, *({} for _ in range(1005)), tenant="default")
    await auth.mongo.database["audit"].delete_many({"object.type": "tenant"})

    first = await search(auth, page_size=99999)
    second = await search(auth, page_size=99999, page_number=2)

    assert (first["page_size"], first["total"], len(first["content"])) == (1000, 1005, 1000)
    assert [int(entry["id"], 16) for entry in second["content"]] == [4, 3, 2, 1, 0]


async def test_a_bad_search_is_400(auth, subtests: pytest.Subtests):
    """The field is named."""
    for body, field in [
        ({"start_timestamp": 2, "end_timestamp": 1}, "start_timestamp"),
        ({"start_timestamp": -1}, "start_timestamp"),
        ({"start_timestamp": "soon"}, "start_timestamp"),
        ({"start_timestamp": 1.5}, "start_timestamp"),
        ({"end_timestamp": 253_402_300_800_000}, "end_timestamp"),
        ({"end_timestamp": 2**63}, "end_timestamp"),
        ({"keyword": "x" * 256}, "keyword"),
        ({"keyword": {"$ne": ""}}, "keyword"),
        ({"action": ["created"]}, "action"),
        ({"object_id": {"$gt": ""}}, "object_id"),
        ({"actor_id": -1}, "actor_id"),
        ({"actor_id": True}, "actor_id"),
        ({"page_size": 0}, "page_size"),
        ({"page_number": "first"}, "page_number"),
        ({"sorts": [{"property": "before", "direction": "ASC"}]}, "sorts[0].property"),
        ({"sorts": [{"property": "action", "direction": ""}]}, "sorts[0].direction"),
        ({"sorts": [{"property": "action", "direction": "ASC"}] * 9}, "sorts"),
        ([], ""),
        (None, ""),
    ]:
        with subtests.test(str((body, field))):
            answer = await auth.refused(400, "POST", SEARCH, body)

            assert field in answer.get("detail_message", "") + answer["error_message"]


async def test_nothing_changes_or_removes_an_entry(auth):
    """The log has one operation, and that one reads."""
    paths = [route.path for route in auth.app.routes if route.path.startswith("/audit")]

    assert paths == [SEARCH]
    assert (await auth.ask("DELETE", SEARCH)).status_code == 405


async def retention(auth: Any) -> int | None:
    indexes = await auth.mongo.database["audit"].index_information()
    return indexes.get("retention", {}).get("expireAfterSeconds")


async def test_entries_are_kept_as_long_as_the_setting_says(auth):
    """A year by default; each start makes the setting true, 0 keeps them for ever."""
    kept = [await retention(auth)]
    for days in (30, 30, 0, 0, 1):
        await set_retention_days(auth.mongo.database, "audit", "at", days)
        kept.append(await retention(auth))

    assert kept == [365 * DAY_SECONDS, 30 * DAY_SECONDS, 30 * DAY_SECONDS, None, None, DAY_SECONDS]


async def test_the_longest_retention_fits_into_mongodb(auth):
    """The maximum of the setting is a valid lifetime in MongoDB."""
    await set_retention_days(auth.mongo.database, "audit", "at", MAX_RETENTION_DAYS)

    assert await retention(auth) == MAX_RETENTION_DAYS * DAY_SECONDS


async def test_an_application_that_comes_from_elsewhere_is_recorded(auth):
    """At both doors; not in the name of somebody without the secret."""
    made = await auth.done(
        "POST", "/application", {"name": "meter", "allowed_addresses": ["198.51.100.1"]}
    )
    form = {"grant_type": "client_credentials", "client_id": made["client_id"]}
    right, wrong = {"client_secret": made["client_secret"]}, {"client_secret": "wrong"}

    for secret in (wrong, right):
        await auth.http.post("/oauth/token", data=form | secret, headers={"x-real-ip": ADDRESS})

    entry = await auth.entry(action="refused")
    assert entry["actor"] == {
        "kind": "application",
        "id": made["application_id"],
        "name": "meter",
    }
    assert entry["object"] == {"type": "session", "id": made["application_id"], "name": "meter"}
    assert (entry["address"], entry["after"]) == (ADDRESS, {"reason": "address"})
    assert (await search(auth, action="refused"))["total"] == 1


async def test_a_refused_sign_in_of_an_account_is_recorded(auth):
    """The entry has the reason and the address, and no input of the user."""
    root = await first_user(auth)
    user = await add_user(auth, root)
    await sign_in(auth, "second@example.com", "Wr0ng-one", address="198.51.100.9")

    wrong = await auth.entry(action="refused", object_id=str(user))
    await auth.done("PUT", f"/user/members/{user}/status", {"enabled": False}, caller=root)
    await sign_in(auth, "second@example.com")
    while (disabled := await auth.entry(action="refused"))["id"] == wrong["id"]:
        await asyncio.sleep(0.02)

    assert wrong["object"] == {"type": "session", "id": str(user), "name": "second@example.com"}
    assert (wrong["address"], wrong["after"]) == ("198.51.100.9", {"reason": "wrong_password"})
    assert disabled["after"] == {"reason": "disabled"}


async def test_a_sign_in_under_a_name_that_nobody_has_is_not_recorded(auth):
    """The name may be a password that was typed into the wrong field."""
    await first_user(auth)
    await sign_in(auth, "Passw0rd-of-somebody")
    await sign_in(auth, "First@example.com", "Wr0ng-one")

    await auth.entry(action="refused")

    assert (await search(auth, action="refused"))["total"] == 1


async def test_a_sign_in_is_recorded(auth):
    """As a session that was created, by its user."""
    root = await first_user(auth)

    entry = await auth.entry(object_type="session", action="created")

    assert entry["actor"] == {"kind": "user", "id": root.subject, "name": root.name}
    assert entry["address"] == ADDRESS
