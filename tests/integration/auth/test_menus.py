"""`/user/menus`: the tree of pages and functions."""

import asyncio
from typing import Any

import msgspec

from services.auth.accounts.roles import INITIAL_MENUS
from services.auth.menus import MAX_DEPTH
from tests.integration.auth.conftest import CONSOLE_CLIENT_ID, SUPER_ADMIN
from tests.integration.auth.rights import STRANGER, access_of, audited, create_role, store_user

PATH = "/user/menus"


def flattened(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        each
        for node in nodes
        for each in ({**node, "children": None}, *flattened(node["children"]))
    ]


async def create(auth: Any, code: str = "reports", **more: Any) -> str:
    body = {"code": code, "name": code, "type": "MENU", **more}
    return str((await auth.done("POST", PATH, body))["menu_id"])


async def test_the_tree_of_another_console_lacks_the_pages_of_our_own(auth):
    """It has words for the rest; entries below such a page are hidden with it."""
    await create(auth, "product.audit", parent_id="2100")
    other = msgspec.structs.replace(SUPER_ADMIN, client=CONSOLE_CLIENT_ID)

    codes = {node["code"] for node in flattened(await auth.done("GET", PATH, caller=other))}

    assert codes == {menu.code for menu in INITIAL_MENUS} - {
        "product",
        "product.view",
        "product.manage",
    }


async def test_the_tree_is_that_of_the_field(auth):
    """Eight pages; each node has an array of children, leaves too; roots have no parent."""
    tree = await auth.done("GET", PATH)

    assert [(node["menu_id"], node["code"]) for node in tree] == [
        ("1000", "dashboard"),
        ("2000", "device"),
        ("2100", "product"),
        ("5000", "workflow"),
        ("6000", "integration"),
        ("7000", "entity"),
        ("7900", "settings"),
        ("9000", "tag"),
    ]
    assert len(flattened(tree)) == len(INITIAL_MENUS)
    assert "parent_id" not in tree[0]
    assert tree[4] == {
        "menu_id": "6000",
        "code": "integration",
        "name": "integration",
        "type": "MENU",
        "children": [
            {
                "menu_id": "6001",
                "code": "integration.view",
                "name": "integration.view",
                "type": "FUNCTION",
                "parent_id": "6000",
                "children": [],
            }
        ],
    }
    assert [child["code"] for child in tree[5]["children"]] == ["entity_custom", "entity_data"]


async def test_menus_are_created_below_others(auth):
    """A page at the root, a function below it."""
    page = await create(auth)
    function = await create(auth, "reports.view", type="FUNCTION", parent_id=page)

    tree = await auth.done("GET", PATH)

    (node,) = [node for node in tree if node["menu_id"] == page]
    assert [(child["menu_id"], child["type"]) for child in node["children"]] == [
        (function, "FUNCTION")
    ]


BAD_MENUS = [
    ({"code": ""}, "code", "parameter_syntax_error"),
    ({"code": "  "}, "code", "parameter_syntax_error"),
    ({"code": "x" * 128}, "code", "parameter_validation_failed"),
    ({"code": "a\nb"}, "code", "parameter_validation_failed"),
    ({"code": 5}, "code", "parameter_validation_failed"),
    ({"name": " "}, "name", "parameter_syntax_error"),
    ({"name": "x" * 128}, "name", "parameter_validation_failed"),
    ({"type": "PAGE"}, "type", "parameter_validation_failed"),
    ({"type": None}, "type", "parameter_validation_failed"),
    ({"type": "FUNCTION"}, "parent_id", "parameter_syntax_error"),
    ({"type": "FUNCTION", "parent_id": None}, "parent_id", "parameter_syntax_error"),
    ({"parent_id": "x"}, "parent_id", "parameter_validation_failed"),
    ({"parent_id": 1.5}, "parent_id", "parameter_validation_failed"),
    ({"parent_id": 1001}, "parent_id", "parameter_syntax_error"),
]


async def test_a_bad_menu_is_refused(auth):
    """400 names the field; a function has no children."""
    for wrong, field, code in BAD_MENUS:
        body = {"code": "a", "name": "a", "type": "MENU", **wrong}

        await auth.refused(400, "POST", PATH, body, field=field, code=code)


async def test_a_menu_needs_all_required_fields(auth):
    """A missing field is a 400 error with its name."""
    for missing in ("code", "name", "type"):
        body = {"code": "a", "name": "a", "type": "MENU"}
        del body[missing]

        refused = await auth.refused(400, "POST", PATH, body)

        assert missing in refused["error_message"]


async def test_a_code_is_taken_once_in_a_tenant(auth):
    """409 for the second; another tenant has codes of its own."""
    await auth.tenant("elsewhere")
    body = {"code": "reports", "name": "a", "type": "MENU"}

    await auth.done("POST", PATH, body)
    await auth.done("POST", PATH, body, caller=STRANGER)

    await auth.refused(409, "POST", PATH, body, field="code", code="parameter_syntax_error")


async def test_a_parent_has_to_be_there(auth):
    """404 for an unknown one and for one of another tenant."""
    await auth.tenant("elsewhere")
    theirs = await auth.mongo.database["menus"].find_one({"tenant": "elsewhere", "type": "MENU"})

    for parent in (99, theirs["_id"]):
        body = {"code": "a", "name": "a", "type": "FUNCTION", "parent_id": str(parent)}
        await auth.refused(404, "POST", PATH, body, field="parent_id", code="data_no_found")


async def test_a_tree_has_an_end(auth):
    """One that nests too deep to be answered would lock everybody out of the console."""
    parent = await create(auth, "page-1")
    for depth in range(2, MAX_DEPTH + 1):
        parent = await create(auth, f"page-{depth}", parent_id=parent)

    body = {"code": "deeper", "name": "deeper", "type": "MENU", "parent_id": parent}
    await auth.refused(400, "POST", PATH, body, field="parent_id", code="parameter_syntax_error")


async def test_name_and_type_are_changed(auth):
    """Code and parent never change."""
    page = await create(auth)
    entry = await create(auth, "reports.view", parent_id=page)

    await auth.done(
        "PUT", f"{PATH}/{entry}", {"name": "View", "type": "FUNCTION", "parent_id": "1000"}
    )

    (found,) = [
        node for node in flattened(await auth.done("GET", PATH)) if node["menu_id"] == entry
    ]
    assert (found["name"], found["type"], found["code"], found["parent_id"]) == (
        "View",
        "FUNCTION",
        "reports.view",
        page,
    )


async def test_a_change_keeps_the_tree_a_tree(auth):
    """A root or an entry with children cannot become a function."""
    page = await create(auth)
    await auth.refused(
        400, "PUT", f"{PATH}/{page}", {"name": "a", "type": "FUNCTION"}, field="parent_id"
    )
    await auth.refused(409, "PUT", f"{PATH}/3000", {"name": "a", "type": "FUNCTION"}, field="type")
    await auth.refused(400, "PUT", f"{PATH}/{page}", {"name": "", "type": "MENU"}, field="name")


async def test_a_menu_that_is_not_there_is_404(auth):
    """An unknown id or an id of another tenant is 404; an invalid id is 400."""
    await auth.tenant("elsewhere")
    theirs = await auth.mongo.database["menus"].find_one({"tenant": "elsewhere"})
    body = {"name": "a", "type": "MENU"}

    for menu_id in ("99", str(theirs["_id"])):
        for method in ("PUT", "DELETE"):
            await auth.refused(
                404, method, f"{PATH}/{menu_id}", body, field="menu_id", code="data_no_found"
            )
    for menu_id in ("x", "0", "9007199254740992"):
        for method in ("PUT", "DELETE"):
            await auth.refused(400, method, f"{PATH}/{menu_id}", body, field="menu_id")


async def test_a_menu_with_children_is_not_deleted(auth):
    """They go first."""
    await auth.refused(409, "DELETE", f"{PATH}/6000", {}, field="menu_id")
    await auth.done("DELETE", f"{PATH}/6001", {})
    await auth.done("DELETE", f"{PATH}/6000", {})

    assert len(flattened(await auth.done("GET", PATH))) == len(INITIAL_MENUS) - 2


async def test_a_deleted_menu_leaves_its_roles(auth):
    """Their users lose the function at once."""
    role_id = await create_role(auth)
    user_id = await store_user(auth, 7, int(role_id))
    await auth.done("POST", f"/user/roles/{role_id}/associate-menu", {"menu_ids": ["1001", "6001"]})

    await auth.done("DELETE", f"{PATH}/6001")

    listed = await auth.done("GET", f"/user/roles/{role_id}/menus")
    assert [menu["menu_id"] for menu in listed] == ["1001"]
    assert (await access_of(auth, user_id)).functions == {"dashboard.view"}
    role = await auth.mongo.database["roles"].find_one({"_id": int(role_id)})
    assert role["menus"] == [1001]


async def test_a_menu_is_not_deleted_under_a_child_that_is_made_just_then(auth):
    """A menu never has a deleted parent."""
    for at in range(5):
        page = await create(auth, f"page {at}")
        child = {"code": f"child {at}", "name": "a", "type": "FUNCTION", "parent_id": page}
        await asyncio.gather(auth.ask("DELETE", f"{PATH}/{page}"), auth.ask("POST", PATH, child))

        stored = await auth.mongo.database["menus"].find_one({"code": f"child {at}"})
        parent = await auth.mongo.database["menus"].find_one({"_id": int(page)})
        assert (stored is None) == (parent is None)


async def test_changes_of_menus_are_audited(auth):
    """Each with the entry."""
    page = await create(auth)
    await auth.done("PUT", f"{PATH}/{page}", {"name": "b", "type": "MENU"})
    await auth.done("DELETE", f"{PATH}/{page}")

    assert await audited(auth, "menu") == ["created", "updated", "deleted"]
