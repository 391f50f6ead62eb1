"""`/user/roles`: creating, changing, finding and deleting roles, and their menus."""

import asyncio
from typing import Any

import msgspec

from tests.integration.auth.conftest import CONSOLE_CLIENT_ID, SUPER_ADMIN
from tests.integration.auth.rights import (
    STRANGER,
    SUPER_ADMIN_ROLE,
    access_of,
    audited,
    create_role,
    store_user,
)

OPERATIONS = (
    ("PUT", "", {"name": "x"}),
    ("DELETE", "", {}),
    ("POST", "/members", {}),
    ("GET", "/members", None),
    ("GET", "/menus", None),
    ("POST", "/resources", {}),
    ("POST", "/integrations", {}),
    ("POST", "/devices", {}),
    ("POST", "/dashboards", {}),
    ("POST", "/undistributed-users", {}),
    ("POST", "/undistributed-integrations", {}),
    ("POST", "/undistributed-devices", {}),
    ("POST", "/undistributed-dashboards", {}),
    ("POST", "/associate-user", {"user_ids": []}),
    ("POST", "/disassociate-user", {"user_ids": []}),
    ("POST", "/associate-resource", {"resources": [{"id": 5, "type": "DEVICE"}]}),
    ("POST", "/disassociate-resource", {"resources": [{"id": 5, "type": "DEVICE"}]}),
    ("POST", "/associate-menu", {"menu_ids": []}),
)


async def search(auth: Any, **body: Any) -> Any:
    return await auth.done("POST", "/user/roles/search", body)


async def names(auth: Any, **body: Any) -> list[str]:
    return [role["name"] for role in await search(auth, **body)]


async def test_a_role_is_created_and_listed_with_its_counts(auth):
    """Counts are strings, the newest role comes first, the description is shown."""
    made = await auth.done("POST", "/user/roles", {"name": " ops ", "description": "they run it"})
    await store_user(auth, 7, int(made["role_id"]))
    await auth.done(
        "POST",
        f"/user/roles/{made['role_id']}/associate-resource",
        {"resources": [{"id": "ping", "type": "INTEGRATION"}, {"id": "5", "type": "DEVICE"}]},
    )

    listed = await search(auth)

    created_at = listed[0].pop("created_at")
    assert int(created_at) > 1_700_000_000_000
    assert listed[0] == {
        "role_id": made["role_id"],
        "name": "ops",
        "description": "they run it",
        "user_role_count": "1",
        "role_integration_count": "1",
    }
    assert [role["role_id"] for role in listed] == [made["role_id"], "1"]


async def test_unknown_fields_are_passed_over(auth):
    """Existing consoles send more than is specified."""
    await auth.done("POST", "/user/roles", {"name": "ops", "extra": 1})


async def test_roles_are_searched_by_name(auth):
    """In part and in any case; signs are no patterns; an empty keyword counts as none."""
    for name in ("Operators", "Guests", "a.c"):
        await create_role(auth, name)

    assert await names(auth, keyword="OPER") == ["Operators"]
    assert await names(auth, keyword="a.c") == ["a.c"]
    assert await names(auth, keyword=".*") == []
    assert len(await names(auth, keyword="")) == 4


async def test_roles_are_sorted_and_paged(auth):
    """By any column; a page says how many there are in all."""
    for name in ("b", "c", "a"):
        await create_role(auth, name)
    sorts = [{"direction": "ASC", "property": "name"}]

    page = await search(auth, sorts=sorts, page_size=2, page_number=2)

    assert [role["name"] for role in page["content"]] == ["c", "super_admin"]
    assert (page["page_size"], page["page_number"], page["total"]) == (2, 2, 4)
    assert await names(auth, sorts=[{"direction": "desc", "property": "createdAt"}]) == [
        "a",
        "c",
        "b",
        "super_admin",
    ]
    assert (await search(auth, page_size=10, page_number=9))["content"] == []
    assert len((await search(auth, page_number=1, page_size=99_999))["content"]) == 4


async def test_the_search_answers_get_and_no_body_too(auth):
    """As one reference lists it."""
    await create_role(auth, "ops")

    assert [role["name"] for role in await auth.done("GET", "/user/roles/search?keyword=op")] == [
        "ops"
    ]
    paged = await auth.done("GET", "/user/roles/search?page_size=1&page_number=2")
    assert [role["name"] for role in paged["content"]] == ["super_admin"]
    assert len(await auth.done("POST", "/user/roles/search")) == 2


BAD_ROLES = [
    ({"name": ""}, "name", "parameter_syntax_error"),
    ({"name": " \t"}, "name", "parameter_syntax_error"),
    ({"name": "x" * 128}, "name", "parameter_validation_failed"),
    ({"name": "a\x00b"}, "name", "parameter_validation_failed"),
    ({"name": 5}, "name", "parameter_validation_failed"),
    ({"name": None}, "name", "parameter_validation_failed"),
    ({"name": "a", "description": "x" * 256}, "description", "parameter_validation_failed"),
    ({"name": "a", "description": 5}, "description", "parameter_validation_failed"),
]


async def test_a_bad_role_is_refused(auth):
    """When it is created and when it is changed; the answer names the field."""
    role_id = await create_role(auth)
    for body, field, code in BAD_ROLES:
        await auth.refused(400, "POST", "/user/roles", body, field=field, code=code)
        await auth.refused(400, "PUT", f"/user/roles/{role_id}", body, field=field, code=code)


async def test_a_role_needs_a_body_with_a_name(auth):
    """A request without a name is a 400 error."""
    for body in ({}, [], None, "x", {"description": "a"}):
        await auth.refused(400, "POST", "/user/roles", body)


BAD_SEARCHES = [
    ({"page_size": 0}, "page_size"),
    ({"page_number": 0}, "page_number"),
    ({"page_number": "x"}, "page_number"),
    ({"keyword": 5}, "keyword"),
    ({"keyword": "x" * 256}, "keyword"),
    ({"sorts": [{"property": "passwordHash"}]}, "sorts[0].property"),
    ({"sorts": [{"property": "id", "direction": "up"}]}, "sorts[0].direction"),
]


async def test_a_bad_search_is_refused(auth):
    """By every search alike, also where there is nothing to be found."""
    for body, field in BAD_SEARCHES:
        lists = [path.removeprefix("/") for _, path, sent in OPERATIONS if path and sent == {}]
        if field == "keyword":
            lists.remove("resources")  # is searched by type
        for path in ("search", *(f"1/{name}" for name in lists)):
            await auth.refused(400, "POST", f"/user/roles/{path}", body, field=field)


async def test_a_name_is_taken_once_in_a_tenant(auth):
    """The second is name_repeated; another tenant has names of its own."""
    await auth.tenant("elsewhere")
    await create_role(auth, "ops")
    other = await create_role(auth, "guests")

    await create_role(auth, "ops", caller=STRANGER)
    for method, path in (("POST", "/user/roles"), ("PUT", f"/user/roles/{other}")):
        await auth.refused(409, method, path, {"name": " ops"}, field="name", code="name_repeated")


async def test_a_role_is_renamed_and_described(auth):
    """Absent fields do not change, and an unchanged role can be saved."""
    role_id = await create_role(auth, "ops")
    path = f"/user/roles/{role_id}"

    await auth.done("PUT", path, {"name": "ops", "description": "first"})
    await auth.done("PUT", path, {"name": "operators"})
    (role,) = await search(auth, keyword="operators")
    assert role["description"] == "first"

    await auth.done("PUT", path, {"name": "operators", "description": ""})
    (role,) = await search(auth, keyword="operators")
    assert role["description"] == ""


async def test_the_super_admin_role_cannot_be_changed(auth):
    """It is neither renamed nor deleted, and no other role takes its name."""
    path = f"/user/roles/{SUPER_ADMIN_ROLE}"

    await auth.refused(400, "PUT", path, {"name": "x"}, code="parameter_syntax_error")
    await auth.refused(400, "DELETE", path, code="parameter_syntax_error", field="role_id")
    await auth.refused(409, "POST", "/user/roles", {"name": "super_admin"}, code="name_repeated")
    await auth.done("PUT", path, {"name": "super_admin", "description": "all"})


async def test_a_role_with_users_is_not_deleted(auth):
    """Once they are out it is, and its grants with it."""
    role_id = await create_role(auth)
    user_id = await store_user(auth, 7, int(role_id))
    path = f"/user/roles/{role_id}"
    await auth.done(
        "POST", f"{path}/associate-resource", {"resources": [{"id": 5, "type": "DEVICE"}]}
    )

    await auth.refused(409, "DELETE", path, {}, code="role_still_has_user", field="role_id")
    await auth.done("POST", f"{path}/disassociate-user", {"user_ids": [user_id]})
    await auth.done("DELETE", path, {})

    assert await names(auth) == ["super_admin"]
    assert not await auth.mongo.database["grants"].count_documents({})


async def test_a_role_that_is_not_there_is_404(auth):
    """Unknown, deleted or of another tenant: every operation says the same."""
    await auth.tenant("elsewhere")
    theirs = await create_role(auth, caller=STRANGER)
    deleted = await create_role(auth)
    await auth.done("DELETE", f"/user/roles/{deleted}")

    for role_id in ("99", deleted, theirs):
        for method, path, body in OPERATIONS:
            await auth.refused(
                404,
                method,
                f"/user/roles/{role_id}{path}",
                body,
                field="role_id",
                code="role_does_not_exit",
            )


async def test_an_id_that_is_no_number_is_400(auth):
    """Every operation names it."""
    for role_id in ("x", "0", "-1", "1.5", "9007199254740992"):
        for method, path, body in OPERATIONS:
            await auth.refused(400, method, f"/user/roles/{role_id}{path}", body, field="role_id")


async def test_menus_of_a_role_are_a_set_that_is_replaced(auth):
    """Unknown ids are passed over, double ones count once, an empty list clears."""
    path = f"/user/roles/{await create_role(auth)}"

    await auth.done(
        "POST", f"{path}/associate-menu", {"menu_ids": ["1001", 1000, "1001", "99", 2001]}
    )
    listed = await auth.done("GET", f"{path}/menus")
    assert listed[:2] == [
        {"menu_id": "1000", "code": "dashboard", "name": "dashboard", "type": "MENU"},
        {
            "menu_id": "1001",
            "code": "dashboard.view",
            "name": "dashboard.view",
            "type": "FUNCTION",
            "parent_id": "1000",
        },
    ]
    assert [menu["menu_id"] for menu in listed] == ["1000", "1001", "2001"]

    await auth.done("POST", f"{path}/associate-menu", {"menu_ids": ["2002"]})
    assert [menu["menu_id"] for menu in await auth.done("GET", f"{path}/menus")] == ["2002"]
    await auth.done("POST", f"{path}/associate-menu", {"menu_ids": []})
    assert await auth.done("GET", f"{path}/menus") == []


OTHER_CONSOLE = msgspec.structs.replace(SUPER_ADMIN, client=CONSOLE_CLIENT_ID)


async def test_another_console_neither_sees_nor_removes_the_menus_of_our_own(auth):
    """A role that an existing console saves keeps `product.manage`, which our console gave it."""
    user_id = await store_user(auth, 7, int(role_id := await create_role(auth)))
    path = f"/user/roles/{role_id}"
    await auth.done("POST", f"{path}/associate-menu", {"menu_ids": ["1001", "2100", "2102"]})

    seen = await auth.done("GET", f"{path}/menus", caller=OTHER_CONSOLE)
    saved = {"menu_ids": ["2001"]}
    await auth.done("POST", f"{path}/associate-menu", saved, caller=OTHER_CONSOLE)

    assert [menu["code"] for menu in seen] == ["dashboard.view"]
    listed = await auth.done("GET", f"{path}/menus")
    assert [menu["code"] for menu in listed] == ["device.view", "product", "product.manage"]
    assert (await access_of(auth, user_id)).functions == {"device.view", "product.manage"}
    open_menus = await auth.done("GET", f"/user/members/{user_id}/menus", caller=OTHER_CONSOLE)
    assert [menu["code"] for menu in open_menus] == ["device", "device.view"]


BAD_MENU_IDS = [
    {},
    {"menu_ids": None},
    {"menu_ids": "1000"},
    {"menu_ids": ["x"]},
    {"menu_ids": [-1]},
]


async def test_bad_menu_ids_are_refused(auth):
    """The response is 400, and the role keeps its menus."""
    path = f"/user/roles/{await create_role(auth)}"
    await auth.done("POST", f"{path}/associate-menu", {"menu_ids": [1001]})
    for body in BAD_MENU_IDS:
        await auth.refused(400, "POST", f"{path}/associate-menu", body)

        assert len(await auth.done("GET", f"{path}/menus")) == 1


async def test_menus_of_another_tenant_are_unknown(auth):
    """A role never gets them."""
    await auth.tenant("elsewhere")
    theirs = await auth.mongo.database["menus"].find_one({"tenant": "elsewhere"})
    path = f"/user/roles/{await create_role(auth)}"

    await auth.done("POST", f"{path}/associate-menu", {"menu_ids": [str(theirs["_id"])]})

    assert await auth.done("GET", f"{path}/menus") == []


async def test_the_super_admin_role_has_its_stored_menus(auth):
    """It needs none, and its own list is empty until some are set."""
    assert await auth.done("GET", "/user/roles/1/menus") == []


async def test_functions_change_with_the_role_at_once(auth):
    """The version grows with each change, so the next request reloads permissions."""
    role_id = await create_role(auth)
    user_id = await store_user(auth, 7, int(role_id))
    before = await access_of(auth, user_id)

    await auth.done("POST", f"/user/roles/{role_id}/associate-menu", {"menu_ids": [1000, 1001]})
    granted = await access_of(auth, user_id)
    await auth.done("POST", f"/user/roles/{role_id}/associate-menu", {"menu_ids": []})
    taken = await access_of(auth, user_id)

    assert (before.functions, granted.functions, taken.functions) == (
        frozenset(),
        frozenset({"dashboard.view"}),
        frozenset(),
    )
    assert before.version < granted.version < taken.version


async def test_one_of_two_simultaneous_sets_of_menus_is_stored(auth):
    """The result is never a mixture."""
    path = f"/user/roles/{await create_role(auth)}"
    first, second = ["1000", "1001", "1002"], ["2000", "2001"]

    for _ in range(3):
        await asyncio.gather(
            *(
                auth.done("POST", f"{path}/associate-menu", {"menu_ids": ids})
                for ids in (first, second, first, second)
            )
        )
        kept = [menu["menu_id"] for menu in await auth.done("GET", f"{path}/menus")]
        assert kept in (first, second)


async def test_one_of_simultaneous_roles_with_one_name_is_created(auth):
    """The other requests are conflicts."""
    answers = await asyncio.gather(
        *(auth.ask("POST", "/user/roles", {"name": "ops"}) for _ in range(6))
    )

    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 5
    assert await names(auth, keyword="ops") == ["ops"]


async def test_a_role_is_not_deleted_under_a_user_who_gets_it_just_then(auth):
    """A user never has a deleted role."""
    for _ in range(5):
        role_id = await create_role(auth)
        user_id = await store_user(auth, 1000 + int(role_id))
        await asyncio.gather(
            auth.ask("DELETE", f"/user/roles/{role_id}"),
            auth.ask("POST", f"/user/roles/{role_id}/associate-user", {"user_ids": [user_id]}),
        )
        user = await auth.mongo.database["users"].find_one({"_id": int(user_id)})
        role = await auth.mongo.database["roles"].find_one({"_id": int(role_id)})
        assert user["roles"] == ([int(role_id)] if role else [])
        await auth.mongo.database["roles"].delete_many({"name": "operators"})


async def test_changes_of_roles_are_audited(auth):
    """Entries have the values before and after."""
    role_id = await create_role(auth, "ops")
    await auth.done("PUT", f"/user/roles/{role_id}", {"name": "operators"})
    await auth.done("POST", f"/user/roles/{role_id}/associate-menu", {"menu_ids": [1001]})
    await auth.done("DELETE", f"/user/roles/{role_id}")

    assert await audited(auth, "role") == ["created", "updated", "menus_set", "deleted"]
    entry = await auth.mongo.database["audit"].find_one({"action": "updated"})
    assert (entry["before"]["name"], entry["after"]["name"]) == ("ops", "operators")
    assert entry["actor"] == {"kind": "user", "id": "42", "name": "root@example.com"}
