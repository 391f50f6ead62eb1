"""Devices on the console."""

import msgspec
import pytest
import pytest_asyncio

from libs.common.contracts.access import ResourceType
from libs.common.identity.functions import Function
from tests.integration.device.console.world import Listening, World

TSL = {
    "version": "v1.0",
    "properties": [
        {"id": "wifi", "name": "Wi-Fi", "accessMode": "RW", "dataSpec": {"dataType": "STRUCT"}},
        {"id": "wifi.ssid", "accessMode": "RW", "dataSpec": {"dataType": "STRING"}},
        {
            "id": "temperature",
            "name": "Temperature",
            "description": "of the air",
            "accessMode": "R",
            "dataSpec": {"dataType": "FLOAT", "unitName": "°C", "validator": {"min": -20}},
        },
    ],
}


@pytest_asyncio.fixture
async def ids(world: World) -> dict[str, int]:
    """Three devices of the tenant, one of them of an integration, and one of another tenant."""
    await world.put_product("AM", TSL)
    return {
        "a": await world.add("SN-a", "Hall (north)", "AM"),
        "b": await world.add("sn-B", "hall south", integration="simulator"),
        "c": await world.add("SN-c", "Cellar"),
        "x": await world.add("SN-x", "Hall of others", tenant="other"),
    }


async def names(user, ids: dict[str, int], **asked) -> str:
    """The devices that a search finds, in order."""
    found = await user.done("POST", "/device/search", asked)
    keys = {str(number): key for key, number in ids.items()}
    assert found["total"] == len(found["content"])
    return "".join(keys[row["id"]] for row in found["content"])


async def test_a_device_in_a_list_has_all_that_consoles_read(world: World, ids: dict[str, int]):
    """Times are numbers, ids are texts, and what its integration is called stands with it."""
    found = await world.admin().done("POST", "/device/search", {"name": "NORTH"})
    (row,) = found.pop("content")
    created = row.pop("created_at")
    assert row.pop("updated_at") >= created > 1_600_000_000_000
    entities = [row.pop(f"{kind}_entities") for kind in ("important", "common")]
    key, number = "direct.device.SN-a.@status", ids["a"] * 8192 + 8191
    assert all(one["key"].startswith("direct.device.SN-a.") for some in entities for one in some)
    assert {one["key"]: one["id"] for one in entities[1]}[key] == str(number)
    assert row == {
        "id": str(ids["a"]),
        "key": "direct.device.SN-a",
        "name": "Hall (north)",
        "integration": "direct",
        "integration_name": "Direct connection",
        "identifier": "SN-a",
        "additional_data": {},
        "model": "AM",
        "tags": [],
        "deletable": True,
        "sends_frames": False,
        "application_id": "1",
        "application_name": "application 1",
    }
    assert found == {"page_size": 10, "page_number": 1, "total": 1}


async def test_a_device_of_an_integration_that_is_gone_can_be_deleted(
    world: World, ids: dict[str, int]
):
    """Its integration has no name any more."""
    row = await world.admin().done("GET", f"/device/{ids['b']}")
    assert "integration_name" not in row
    assert row["deletable"] is True
    assert row["key"] == "simulator.device.sn-B"


async def test_searches(world: World, ids: dict[str, int], subtests: pytest.Subtests):
    """Parts of name and identifier narrow; the newest come first unless an order is asked."""
    for asked, expected in [
        ({}, "cba"),
        ({"name": "HALL"}, "ba"),
        ({"name": "(north)"}, "a"),
        ({"name": ".*"}, ""),
        ({"identifier": "N-"}, "cba"),
        ({"identifier": "sn-b"}, "b"),
        ({"name": "hall", "identifier": "-A"}, "a"),
        ({"name": "", "identifier": None}, "cba"),
        ({"sorts": [{"property": "name", "direction": "ASC"}]}, "cab"),
        ({"sorts": [{"property": "name", "direction": "DESC"}]}, "bac"),
        ({"sorts": [{"property": "key", "direction": "asc"}]}, "acb"),
        ({"sorts": [{"property": "createdAt", "direction": "ASC"}]}, "abc"),
        ({"sorts": [{"property": "updated_at"}, {"property": "id"}]}, "abc"),
        ({"sorts": [{"property": "identifier", "direction": "desc"}]}, "bca"),
        ({"sorts": [{"property": "integration_name"}]}, "bac"),
        ({"sorts": [{"property": "integrationName", "direction": "DESC"}]}, "cab"),
        ({"sorts": [{"property": "integration_name"}, {"property": "name"}]}, "bca"),
        ({"page_size": 99_999, "tag": "unknown fields are passed over"}, "cba"),
    ]:
        with subtests.test(str((asked, expected))):
            assert await names(world.admin(), ids, **asked) == expected


async def test_pages_are_cut_by_size_and_number(world: World, ids: dict[str, int]):
    """The total counts all pages; behind the last one there is nothing."""
    pages = []
    for number in (1, 2, 3):
        asked = {"page_size": 2, "page_number": number}
        found = await world.admin().done("POST", "/device/search", asked)
        assert (found["page_size"], found["page_number"], found["total"]) == (2, number, 3)
        pages.append([int(row["id"]) for row in found["content"]])
    assert pages == [[ids["c"], ids["b"]], [ids["a"]], []]


@pytest.mark.parametrize(
    ("kind", "granted", "expected"),
    [
        (ResourceType.DEVICE, "a", "a"),
        (ResourceType.DEVICE, "x", ""),
        (ResourceType.INTEGRATION, "simulator", "b"),
        (ResourceType.INTEGRATION, "direct", "ca"),
        (ResourceType.DASHBOARD, "a", ""),
        (ResourceType.ENTITY, "a", ""),
    ],
)
async def test_a_user_sees_granted_devices(
    world: World, ids: dict[str, int], kind, granted, expected
):
    """A grant covers one device or all of an integration. Lists and details agree."""
    user = world.user(7)
    world.grants.give(7, kind, ids.get(granted, granted))
    assert await names(user, ids) == expected
    for key, device_id in ids.items():
        if key in expected:
            assert (await user.done("GET", f"/device/{device_id}"))["id"] == str(device_id)
        else:
            await user.refused(404, "GET", f"/device/{device_id}", code="data_no_found")
            await user.refused(404, "PUT", f"/device/{device_id}", {"name": "mine"})
            await user.refused(404, "POST", f"/device/{device_id}/credentials")


async def test_grants_add_up_and_nothing_is_counted_twice(world: World, ids: dict[str, int]):
    """A device that is granted by itself and through its integration is one device."""
    world.grants.give(7, ResourceType.DEVICE, ids["a"], ids["b"])
    world.grants.give(7, ResourceType.INTEGRATION, "simulator")
    assert await names(world.user(7), ids) == "ba"
    assert await names(world.user(7), ids, name="south") == "b"


async def test_many_grants_keep_every_order(world: World, ids: dict[str, int]):
    """From a thousand granted devices on, another way of reading gives the same answer."""
    world.grants.give(7, ResourceType.DEVICE, ids["a"], ids["c"], *range(1, 1500))
    for asked in ("id", "name", "key", "created_at", "updated_at", "identifier"):
        found = await names(world.user(7), ids, sorts=[{"property": asked, "direction": "ASC"}])
        assert found == ("ca" if asked == "name" else "ac")


async def test_a_user_without_any_grant_sees_nothing(world: World, ids: dict[str, int]):
    """Lists are empty, a single device is forbidden: consoles tell the two apart."""
    user = world.user(8)
    assert await names(user, ids) == ""
    content = await user.refused(403, "GET", f"/device/{ids['a']}", code="forbidden_permission")
    assert content["error_message"] == "user does not have data permission"


async def test_a_removed_grant_ends_with_the_next_request(world: World, ids: dict[str, int]):
    """The grants are never older than the version in the request."""
    world.grants.give(7, ResourceType.DEVICE, ids["a"])
    assert await names(world.user(7), ids) == "a"
    world.grants.take(7)
    assert await names(world.user(7), ids) == ""


async def test_other_tenants_are_far_away(world: World, ids: dict[str, int]):
    """A super-admin of one tenant neither finds nor reaches devices of another."""
    other = world.admin("other")
    assert await names(other, ids) == "x"
    await other.refused(404, "GET", f"/device/{ids['a']}", code="data_no_found")
    await other.refused(404, "PUT", f"/device/{ids['a']}", {"name": "mine"})


async def test_the_detail_has_the_entities(world: World, ids: dict[str, int]):
    """Flat: each parent, then its children, each with an id and its attributes."""
    detail = await world.admin().done("GET", f"/device/{ids['a']}")
    first = ids["a"] * 8192
    assert detail["entities"] == [
        {
            "id": str(first + 1),
            "key": "direct.device.SN-a.wifi",
            "name": "Wi-Fi",
            "type": "PROPERTY",
            "value_attribute": {},
            "value_type": "OBJECT",
        },
        {
            "id": str(first + 2),
            "key": "direct.device.SN-a.wifi.ssid",
            "name": "ssid",
            "type": "PROPERTY",
            "value_attribute": {},
            "value_type": "STRING",
        },
        {
            "id": str(first + 3),
            "key": "direct.device.SN-a.temperature",
            "name": "Temperature",
            "type": "PROPERTY",
            "value_attribute": {"unit": "°C", "min": -20},
            "value_type": "DOUBLE",
            "description": "of the air",
        },
    ]


@pytest.mark.parametrize(("user_id", "nickname"), [(7, "Nadia"), (8, None), (None, None)])
async def test_the_detail_names_the_user_who_added_the_device(world: World, user_id, nickname):
    """The field is absent for a deleted user and for a device of an application."""
    device_id = await world.add("SN-n", userId=user_id)
    detail = await world.admin().done("GET", f"/device/{device_id}")
    assert detail.get("user_nickname") == nickname


async def test_a_rename_is_published(world: World, ids: dict[str, int], heard: Listening):
    """The name changes everywhere, with an event. The same name again publishes nothing."""
    admin = world.admin()
    heard.heard.clear()
    for _ in range(2):
        assert await admin.done("PUT", f"/device/{ids['a']}", {"name": "Attic"}) is None
    assert (await admin.done("GET", f"/device/{ids['a']}"))["name"] == "Attic"
    (message,) = heard.heard
    assert message.subject == f"event.default.device.{ids['a']}.updated"
    event = msgspec.json.decode(message.payload)
    assert event["device"]["name"] == "Attic"
    assert event["device"]["thingKey"] == "direct.device.SN-a"


async def test_credentials_rotate(world: World, ids: dict[str, int]):
    """Each call makes a new key; the answer is the only place that shows it."""
    issued = await world.admin().done("POST", f"/device/{ids['b']}/credentials")
    assert issued == {"sn": "sn-B", "key": world.keys.issued["sn-B"]}
    again = await world.admin().done("POST", f"/device/{ids['b']}/credentials")
    assert again["key"] != issued["key"]


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        (
            "POST",
            "/device/search",
            {Function.DEVICE_VIEW, Function.DASHBOARD_VIEW, Function.DASHBOARD_EDIT},
        ),
        ("GET", "/device/1", {Function.DEVICE_VIEW}),
        ("GET", "/device/1/canvas", {Function.DEVICE_VIEW, Function.DASHBOARD_VIEW}),
        ("PUT", "/device/1", {Function.DEVICE_EDIT}),
        ("POST", "/device/1/credentials", {Function.DEVICE_EDIT}),
    ],
)
async def test_operations_need_their_function(world: World, method, path, needed):
    """Any of them will do; all other functions together do not."""
    others = [function for function in Function if function not in needed]
    world.grants.give(7, ResourceType.DEVICE, 1)
    body = {"name": "x"} if method == "PUT" else {} if "search" in path else None
    content = await world.user(7, *others).refused(403, method, path, body)
    assert content["error_code"] == "forbidden_permission"
    for function in needed:
        allowed = await world.user(7, function).ask(method, path, body)
        assert allowed.status_code == (200 if "search" in path else 404)


async def test_bad_input_is_named(world: World, subtests: pytest.Subtests):
    """400, and `detail_message` says which field."""
    for method, path, body, field in [
        ("POST", "/device/search", {"page_size": 0}, "page_size"),
        ("POST", "/device/search", {"page_number": 0}, "page_number"),
        ("POST", "/device/search", {"name": 5}, "name"),
        ("POST", "/device/search", {"name": "x" * 256}, "name"),
        ("POST", "/device/search", {"identifier": []}, "identifier"),
        ("POST", "/device/search", {"sorts": [{"property": "secret"}]}, "sorts[0].property"),
        (
            "POST",
            "/device/search",
            {"sorts": [{"property": "id"}, {"property": "name", "direction": "up"}]},
            "sorts[1].direction",
        ),
        ("GET", "/device/abc", None, "device_id"),
        ("GET", "/device/0", None, "device_id"),
        ("GET", "/device/99999999999999999999", None, "device_id"),
        ("PUT", "/device/1", {}, "name"),
        ("PUT", "/device/1", {"name": ""}, "name"),
        ("PUT", "/device/1", {"name": "  "}, "name"),
        ("PUT", "/device/1", {"name": "a\nb"}, "name"),
        ("PUT", "/device/1", {"name": "x" * 129}, "name"),
        ("PUT", "/device/1", {"name": None}, "name"),
        ("POST", "/device/-1/credentials", None, "device_id"),
    ]:
        with subtests.test(str((method, path, body, field))):
            await world.admin().refused(400, method, path, body, field=field)
