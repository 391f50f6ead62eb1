"""Dashboards as tiles: covers, homes, deletion of several, and the canvases that they have."""

import asyncio

import pytest

from libs.common.contracts.access import ResourceType
from libs.common.identity.functions import Function
from tests.integration.management.dashboards.conftest import World

VIEW = Function.DASHBOARD_VIEW


async def search(user, name: str = "") -> list[dict]:
    return await user.done("POST", "/dashboard/search", {"name": name})


async def test_the_home_comes_first_then_the_newest(world: World):
    """Each user has one home, which nobody else has; another one takes its place."""
    first, second, third = [await world.dashboard() for _ in range(3)]
    world.grant(7, ResourceType.DASHBOARD, first, second, third)
    world.grant(8, ResourceType.DASHBOARD, first, second)
    anna, ben = world.user(7, VIEW), world.user(8, VIEW)
    for home in (second, first):
        await anna.done("POST", f"/dashboard/{home}/home", {})

    found = await search(anna)
    assert [entry["dashboard_id"] for entry in found] == [first, third, second]
    assert [entry["home"] for entry in found] == [True, False, False]
    assert await anna.done("GET", "/dashboard/main-canvas") == {
        "dashboard_id": first,
        "main_canvas_id": first,
    }
    assert [one["dashboard_id"] for one in await search(ben)] == [second, first]
    assert (await ben.done("GET", "/dashboard/main-canvas"))["main_canvas_id"] == second

    await anna.done("POST", f"/dashboard/{second}/cancel-home", {})
    assert (await search(anna))[0]["home"]
    await anna.done("POST", f"/dashboard/{first}/cancel-home", {})
    assert not (await search(anna))[0]["home"]


async def test_a_home_dashboard_must_be_visible(world: World):
    """Others get 404. A user without grants has no main canvas and an empty list."""
    one = await world.dashboard()
    nobody = world.user(9, VIEW)
    for verb in ("home", "cancel-home"):
        await nobody.refused(404, "POST", f"/dashboard/{one}/{verb}", {}, code="data_no_found")
    await nobody.refused(403, "GET", "/dashboard/main-canvas", code="no_data_permission")
    assert await search(nobody) == []
    world.grant(9, ResourceType.DEVICE, 1)
    assert await nobody.done("GET", "/dashboard/main-canvas") == {}


async def test_a_tile_has_cover_and_description(world: World):
    """Fields that a change omits stay, and null removes them."""
    covers = await world.admin.done("GET", "/dashboard/covers")
    assert covers[0]["name"] == "Purple"
    assert [cover["ordered"] for cover in covers] == sorted(cover["ordered"] for cover in covers)
    for cover in covers:
        shown = await world.management.http.get(f"/{cover['data']}")
        assert shown.headers["content-type"] == "image/svg+xml"
    chosen = {"cover_type": covers[1]["type"], "cover_data": covers[1]["data"]}
    one = await world.dashboard(name="Hall", description="South", **chosen)

    (found,) = await search(world.admin, "hAL")
    assert {name: found.get(name) for name in chosen} == chosen
    assert found["description"] == "South"
    assert found["created_at"].isdecimal()
    assert await search(world.admin, "attic") == []
    await world.admin.done("PUT", f"/dashboard/{one}", {"name": "Attic"})
    (found,) = await search(world.admin)
    assert (found["name"], found["description"], found["cover_data"]) == (
        "Attic",
        "South",
        chosen["cover_data"],
    )
    bare = {"name": "Attic", "description": None, "cover_type": None, "cover_data": None}
    await world.admin.done("PUT", f"/dashboard/{one}", bare)
    (found,) = await search(world.admin)
    assert found.keys().isdisjoint({"description", "cover_type", "cover_data"})


@pytest.mark.parametrize(
    ("cover", "field", "code"),
    [
        (
            {"cover_type": "DEFAULT_IMAGE", "cover_data": "public/no.svg"},
            "cover_data",
            "dashboard_preset_cover_not_exist",
        ),
        (
            {"cover_type": "RESOURCE", "cover_data": "/resource/files/" + "x" * 32},
            "cover_data",
            "parameter_validation_failed",
        ),
        ({"cover_type": "RESOURCE"}, "cover_data", "parameter_validation_failed"),
        ({"cover_data": "public/cover-blue.svg"}, "cover_type", "parameter_validation_failed"),
        ({"cover_type": "SONG"}, "cover_type", "parameter_validation_failed"),
        ({"description": "x" * 65}, "description", "parameter_validation_failed"),
    ],
)
async def test_a_cover_that_is_none_is_named(world: World, cover, field, code):
    """Making and changing refuse it alike."""
    one = await world.dashboard()
    for method, path in (("POST", "/dashboard"), ("PUT", f"/dashboard/{one}")):
        await world.admin.refused(400, method, path, {"name": "A"} | cover, field=field, code=code)


async def test_several_are_deleted_together(world: World):
    """With grants, canvases and homes; those that the caller does not see are passed over."""
    mine, other = await world.dashboard(), await world.dashboard()
    world.grant(7, ResourceType.DASHBOARD, mine)
    anna = world.user(7, Function.DASHBOARD_DELETE, VIEW, Function.DASHBOARD_EDIT)
    page = await anna.done("POST", f"/dashboard/{mine}/canvas", {"name": "Page"})
    await anna.done("POST", f"/dashboard/{mine}/home", {})
    body = {"dashboard_ids": [mine, int(other), "9007199254740990"]}
    await world.user(8, Function.DASHBOARD_EDIT).refused(
        403, "POST", "/dashboard/batch-delete", body
    )
    await anna.done("POST", "/dashboard/batch-delete", body)

    assert [one["dashboard_id"] for one in await search(world.admin)] == [other]
    assert world.management.grants.held(7) == set()
    await world.admin.refused(404, "GET", f"/canvas/{page['id']}", code="data_no_found")
    homes = world.management.mongo.database["home_dashboards"]
    assert await homes.count_documents({"tenant": world.tenant}) == 0


async def test_a_dashboard_has_canvases(world: World):
    """The main one first, which cannot be deleted; another one is saved and shown like it."""
    one = await world.dashboard(name="Hall")
    path = f"/dashboard/{one}/canvas"
    page = await world.admin.done("POST", path, {"name": "Page"})
    assert (page["attach_type"], page["attach_id"], page["is_main"]) == ("DASHBOARD", one, False)
    rows = await world.admin.done("GET", path)
    assert [(row["id"], row["name"], row["is_main"]) for row in rows] == [
        (one, "Hall", True),
        (page["canvas_id"], "Page", False),
    ]
    saved = {"name": "Page two", "widgets": [{"data": {"type": "text"}}]}
    await world.admin.done("PUT", f"/canvas/{page['id']}", saved)
    shown = await world.admin.done("GET", f"/canvas/{page['id']}")
    assert (shown["name"], len(shown["widgets"])) == ("Page two", 1)
    await world.admin.refused(
        400, "POST", f"{path}/batch-delete", {"canvas_ids": [one]}, field="canvas_ids"
    )
    await world.admin.done("POST", f"{path}/batch-delete", {"canvas_ids": [page["id"], "77"]})
    assert len(await world.admin.done("GET", path)) == 1
    await world.user(9, VIEW).refused(403, "GET", path)


async def test_a_dashboard_has_some_canvases_at_most(world: World):
    """The one too many is a conflict."""
    one = await world.dashboard()
    path = f"/dashboard/{one}/canvas"
    for at in range(20):
        await world.admin.done("POST", path, {"name": f"Page {at}"})
    await world.admin.refused(409, "POST", path, {"name": "One more"}, field="name")


async def test_a_deleted_user_has_no_home_dashboard(world: World):
    """The event of `auth` deletes the user's choice."""
    one = await world.dashboard()
    world.grant(7, ResourceType.DASHBOARD, one)
    await world.user(7, VIEW).done("POST", f"/dashboard/{one}/home", {})
    told = {
        "eventId": "x",
        "createdAt": 1,
        "tenant": world.tenant,
        "actor": {"kind": "user", "id": "1"},
        "action": "deleted",
        "object": {"type": "user", "id": "7"},
    }
    await world.management.tell(f"event.{world.tenant}.auth.user.deleted", told)
    homes = world.management.mongo.database["home_dashboards"]
    async with asyncio.timeout(20):
        while await homes.count_documents({"tenant": world.tenant}):
            await asyncio.sleep(0.02)
