"""Canvases: what lies on them, whose they are, and what ends them."""

import asyncio

import pytest

from libs.common.contracts.access import ResourceType
from libs.common.errors import NotFound
from libs.common.identity.functions import Function
from libs.common.things import entity_id
from tests.integration.management.dashboards.conftest import World

CARD = {"type": "dataCard", "config": {"a.b": 1, "$ref": [None, 1.5]}, "pos": {"i": "1"}}


async def test_a_saved_canvas_is_returned(world: World):
    """It has the console's widgets, and the existing entities and devices."""
    device = world.device()
    entity = entity_id(device, 1)
    one = await world.dashboard(name="Hall")
    saved = {
        "name": "Hall",
        "entity_ids": [str(entity), "81920000001"],
        "device_ids": [device, "77"],
        "widgets": [{"data": CARD, "tempId": "5"}, {"data": {}}],
    }
    await world.admin.done("PUT", f"/canvas/{one}", saved)
    shown = await world.admin.done("GET", f"/canvas/{one}")

    assert (shown["id"], shown["name"]) == (one, "Hall")
    assert (shown["attach_type"], shown["attach_id"]) == ("DASHBOARD", one)
    assert [widget["data"] for widget in shown["widgets"]] == [CARD, {}]
    assert all(widget["widget_id"].isdecimal() for widget in shown["widgets"])
    assert shown["entity_ids"] == [str(entity)]
    assert shown["device_ids"] == [str(device)]
    (row,) = shown["entities"]
    assert (row["entity_id"], row["entity_value_attribute"]) == (str(entity), {"unit": "°C"})


async def test_a_save_is_the_whole_content(world: World):
    """Known ids are replaced, new ones made, unknown ones passed over, the others are gone."""
    one = await world.dashboard()
    path = f"/canvas/{one}"
    two = [{"data": {"n": 1}}, {"data": {"n": 2}}]
    await world.admin.done("PUT", path, {"name": "A", "widgets": two})
    kept = (await world.admin.done("GET", path))["widgets"][1]["widget_id"]
    changed = [
        {"widget_id": kept, "data": {"n": 22}},
        {"widget_id": "999", "data": {}},
        {"data": {"n": 3}},
    ]
    await world.admin.done("PUT", path, {"name": "A", "widgets": changed})
    found = (await world.admin.done("GET", path))["widgets"]
    assert [widget["data"]["n"] for widget in found] == [22, 3]
    assert found[0]["widget_id"] == kept


async def test_a_dashboard_and_its_main_canvas_are_one(world: World):
    """Widgets and names written at either door are seen at both."""
    one = await world.dashboard(name="Hall")
    await world.admin.done(
        "PUT", f"/dashboard/{one}", {"name": "Hall", "widgets": [{"data": CARD}]}
    )
    shown = await world.admin.done("GET", f"/canvas/{one}")
    (old,) = await world.admin.done("GET", "/dashboard/dashboards")
    assert shown["widgets"] == old["widgets"]
    widgets = [*shown["widgets"], {"data": {"n": 2}}]
    await world.admin.done("PUT", f"/canvas/{one}", {"name": "Attic", "widgets": widgets})
    (old,) = await world.admin.done("GET", "/dashboard/dashboards")
    assert old["name"] == "Attic"
    assert old["widgets"] == (await world.admin.done("GET", f"/canvas/{one}"))["widgets"]
    await world.dashboard(name="Taken")
    body = {"name": "Taken", "widgets": []}
    await world.admin.refused(409, "PUT", f"/canvas/{one}", body, code="dashboard_name_exist")


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"widgets": []}, 400, "name"),
        ({"name": "A"}, 400, "widgets"),
        ({"name": " ", "widgets": []}, 400, "name"),
        ({"name": "x" * 65, "widgets": []}, 400, "name"),
        ({"name": "A", "widgets": [{}]}, 400, "widgets[0].data"),
        ({"name": "A", "widgets": [{"data": {}}] * 121}, 400, "widgets"),
        ({"name": "A", "widgets": [{"data": {"x": "y" * 51200}}]}, 413, "widgets[0].data"),
        ({"name": "A", "widgets": [], "entity_ids": ["1"] * 1001}, 400, "entity_ids"),
        ({"name": "A", "widgets": [], "device_ids": ["1"] * 501}, 400, "device_ids"),
        ({"name": "A", "widgets": [], "device_ids": ["x"]}, 400, "device_ids[0]"),
    ],
)
async def test_bad_input_is_named(world: World, body, status, field):
    """A wrong body names the field and changes nothing."""
    one = await world.dashboard(name="A")
    await world.admin.refused(status, "PUT", f"/canvas/{one}", body, field=field)
    assert (await world.admin.done("GET", f"/canvas/{one}"))["widgets"] == []


async def test_a_canvas_needs_the_grant_of_its_dashboard(world: World):
    """A missing function or grant gets 403, an unknown canvas 404."""
    one = await world.dashboard()
    path, body = f"/canvas/{one}", {"name": "A", "widgets": []}
    view, edit = Function.DASHBOARD_VIEW, Function.DASHBOARD_EDIT
    await world.user(7, view).refused(403, "GET", path, code="forbidden_permission")
    world.grant(7, ResourceType.DASHBOARD, one)
    await world.user(7, view).done("GET", path)
    await world.user(7, Function.DEVICE_VIEW).refused(403, "GET", path)
    await world.user(7, view).refused(403, "PUT", path, body)
    await world.user(7, Function.DEVICE_EDIT).refused(403, "PUT", path, body)
    await world.user(7, edit).done("PUT", path, body)
    await world.management.admin("other").refused(404, "GET", path, code="data_no_found")
    await world.admin.refused(404, "GET", "/canvas/77", code="data_no_found", field="canvas_id")
    await world.admin.refused(400, "GET", "/canvas/x", field="canvas_id")


async def test_a_canvas_of_a_device_needs_the_grant_of_the_device(world: World):
    """A grant of its group suffices.

    `device.edit` saves it. Entities of other devices are hidden.
    """
    device, other = world.device(group=3), world.device()
    canvas = await world.canvas_of(device)
    assert await world.canvas_of(device) == canvas
    path = f"/canvas/{canvas}"
    ids = [entity_id(device, 1), entity_id(other, 1)]
    body = {"name": "Lamp", "widgets": [{"data": CARD}], "entity_ids": ids}
    await world.admin.done("PUT", path, body)
    view = Function.DEVICE_VIEW
    await world.user(7, view).refused(403, "GET", path, code="forbidden_permission")
    world.grant(7, ResourceType.DEVICE_GROUP, 3)
    for function in (view, Function.DASHBOARD_VIEW):
        shown = await world.user(7, function).done("GET", path)
        assert (shown["attach_type"], shown["attach_id"]) == ("DEVICE", str(device))
        assert shown["entity_ids"] == list(map(str, ids))
        assert [row["entity_id"] for row in shown["entities"]] == [str(ids[0])]
    await world.user(7, Function.DASHBOARD_EDIT).refused(403, "PUT", path, body)
    await world.user(7, Function.DEVICE_EDIT).done("PUT", path, body)


async def test_a_device_has_one_canvas(world: World):
    """Simultaneous requests get the same one; an unknown device has none."""
    device = world.device()
    assert len(set(await asyncio.gather(*(world.canvas_of(device) for _ in range(8))))) == 1
    with pytest.raises(NotFound):
        await world.canvas_of(77)


async def test_the_canvas_of_a_deleted_device_is_gone(world: World):
    """The event of the deletion takes it along."""
    device = world.device()
    await world.canvas_of(device)
    await world.management.tell(f"event.{world.tenant}.device.{device}.deleted", {})
    canvases = world.management.mongo.database["canvases"]
    async with asyncio.timeout(20):
        while await canvases.count_documents({"tenant": world.tenant}):
            await asyncio.sleep(0.02)
