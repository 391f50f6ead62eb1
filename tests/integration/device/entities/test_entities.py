"""Single entities: children, metadata, latest values, and RPC."""

from typing import Any

import pytest
import pytest_asyncio

from libs.common.contracts.access import ResourceType
from libs.common.contracts.entities import RESOLVE_ENTITIES, ResolvedEntities, ResolveEntities
from libs.common.errors import InvalidInput
from libs.common.identity.functions import Function
from libs.common.things import MAX_TSL_MEMBER_NUMBER
from services.device.entities.console import ENTITY_READ_FUNCTIONS, ENTITY_SEARCH_FUNCTIONS
from services.device.things import thing_store
from tests.integration.device.console.world import World
from tests.integration.device.entities.seed import CLIMATE, seed

WIFI, SSID, CHANNEL, SAMPLES, MODE = 3, 4, 5, 6, 7
ALARM, REBOOT = 8, 10


@pytest_asyncio.fixture
async def ids(world: World) -> dict[str, int]:
    """Return things by letter."""
    return await seed(world)


def entity(ids: dict[str, int], name: str, number: int) -> str:
    return str(ids[name] * 8192 + number)


async def keys(world: World, parent: str) -> list[str]:
    rows = await world.admin().done("GET", f"/entity/{parent}/children")
    return [row["entity_key"] for row in rows]


async def test_children_are_two_levels_deep(world: World, ids: dict[str, int]):
    """Children are leaves of a STRUCT, outputs of an event, or inputs of a service."""
    key = "direct.device.SN-A1"
    found = {
        number: await keys(world, entity(ids, "a", number))
        for number in (WIFI, SSID, SAMPLES, ALARM, REBOOT)
    }
    assert found == {
        WIFI: [f"{key}.wifi.ssid", f"{key}.wifi.ap.channel"],
        SSID: [],
        SAMPLES: [],
        ALARM: [f"{key}.alarm.level"],
        REBOOT: [f"{key}.reboot.delay"],
    }
    assert await keys(world, entity(ids, "m", 0)) == [
        "system.integration.scene.level",
        "system.integration.scene.ghost",
    ]


async def test_inputs_of_a_service_can_be_written(world: World, ids: dict[str, int]):
    """Inputs have access mode W; an input that is not required is optional."""
    (row,) = await world.admin().done("GET", f"/entity/{entity(ids, 'a', REBOOT)}/children")
    assert row["entity_access_mod"] == "W"
    assert row["entity_value_attribute"] == {"optional": True}
    assert row["entity_parent_name"] == "Reboot"


async def test_metadata(world: World, ids: dict[str, int]):
    """Metadata has everything except the value."""
    meta = await world.admin().done("GET", f"/entity/{entity(ids, 'a', MODE)}/meta")
    assert meta.pop("created_at") <= meta.pop("updated_at")
    assert meta == {
        "id": entity(ids, "a", MODE),
        "key": "direct.device.SN-A1.mode",
        "name": "Mode",
        "device_id": str(ids["a"]),
        "device_name": "Hall",
        "type": "PROPERTY",
        "access_mod": "RW",
        "value_type": "LONG",
        "value_attribute": {"enum": {"0": "Off", "1": "On"}},
        "customized": False,
    }
    custom = await world.admin().done("GET", f"/entity/{entity(ids, 'k', 0)}/meta")
    assert (custom["key"], custom["customized"]) == ("system.integration.counter", True)


async def called(world: World, of: str) -> str:
    return (await world.admin().done("GET", f"/entity/{of}/meta"))["name"]


@pytest.mark.parametrize(
    ("of", "declared"), [("a.7", "Mode"), ("g.3", "lat"), ("p.1", "Status"), ("d.2", "Door")]
)
async def test_users_rename_entities(world: World, ids: dict[str, int], of, declared):
    """Entities of devices and integrations can be renamed; the TSL's name resets it."""
    letter, _, number = of.partition(".")
    one = entity(ids, letter, int(number))
    await world.admin().done("PUT", f"/entity/{one}", {"name": "Of the foyer"})
    assert await called(world, one) == "Of the foyer"
    (found,) = await world.admin().done("POST", "/entity/search", {"keyword": "the foyer"})
    assert found["entity_id"] == one
    await world.admin().done("PUT", f"/entity/{one}", {"name": declared})
    assert await called(world, one) == declared
    assert await world.admin().done("POST", "/entity/search", {"keyword": "the foyer"}) == []


async def test_a_name_applies_to_one_device(world: World, ids: dict[str, int]):
    """Other devices of the product keep their names."""
    await world.admin().done("PUT", f"/entity/{entity(ids, 'a', MODE)}", {"name": "Way"})
    assert await called(world, entity(ids, "c", MODE)) == "Mode"
    await world.admin().refused(404, "PUT", f"/entity/{entity(ids, 'x', MODE)}", {"name": "Way"})


async def test_renaming_needs_a_function_and_a_grant(world: World, ids: dict[str, int]):
    """Renaming needs one of two functions, and a grant."""
    mode, other = entity(ids, "a", MODE), entity(ids, "c", MODE)
    world.grants.give(7, ResourceType.ENTITY, mode)
    for function in (Function.ENTITY_DATA_EDIT, Function.ENTITY_CUSTOM_EDIT):
        user = world.user(7, function)
        await user.done("PUT", f"/entity/{mode}", {"name": function})
        assert await called(world, mode) == function
        await user.refused(404, "PUT", f"/entity/{other}", {"name": "Mine"})


async def test_common_entities_cannot_be_renamed(world: World, ids: dict[str, int]):
    """Status, location and alarm cannot be renamed."""
    (row, *_) = (await world.admin().done("GET", f"/device/{ids['a']}"))["common_entities"]
    path = f"/entity/{row['id']}"
    await world.admin().refused(400, "PUT", path, {"name": "Mine"}, field="entity_id")


async def test_names_of_a_device_are_limited(world: World, ids: dict[str, int], monkeypatch):
    """At the limit of names, renamed entities can be renamed again."""
    monkeypatch.setattr(thing_store, "MAX_NAMED_ENTITIES", 1)
    mode, samples = entity(ids, "c", MODE), entity(ids, "c", SAMPLES)
    await world.admin().done("PUT", f"/entity/{mode}", {"name": "Way"})
    await world.admin().refused(400, "PUT", f"/entity/{samples}", {"name": "All"}, field="name")
    await world.admin().done("PUT", f"/entity/{mode}", {"name": "Manner"})
    assert await called(world, mode) == "Manner"


async def status(world: World, of: str) -> Any:
    return await world.admin().done("GET", f"/entity/{of}/status")


def at(ms: str) -> dict[str, str]:
    """Return the time of a value, under both of its names."""
    return {"timestamp": ms, "updated_at": ms}


async def test_latest_values(world: World, ids: dict[str, int]):
    """Scalars, leaves, arrays and enumerations have values with times."""
    await world.report(
        ids["a"], 1000, {"temperature": 21.5, "mode": "1", "samples": [1.5, 2.5], "battery": 0}
    )
    await world.report(ids["a"], 2000, {"wifi": {"ssid": "lab"}})
    expected = {
        1: {"value": 21.5, **at("1000"), "value_type": "DOUBLE"},
        2: {"value": 0, **at("1000"), "value_type": "LONG"},
        MODE: {"value": 1, **at("1000"), "value_type": "LONG"},
        SAMPLES: {"value": [1.5, 2.5], **at("1000"), "value_type": "OBJECT"},
        SSID: {"value": "lab", **at("2000"), "value_type": "STRING"},
        CHANNEL: {},
        WIFI: {},
        ALARM: {},
        REBOOT: {},
    }
    found = {number: await status(world, entity(ids, "a", number)) for number in expected}
    assert found == expected
    assert await status(world, entity(ids, "b", 1)) == {}


async def test_latest_values_of_things_without_a_device(world: World, ids: dict[str, int]):
    """A custom entity reports under its identifier, its children within it."""
    await world.report(ids["k"], 1000, {"counter": 5})
    await world.report(ids["p"], 2000, {"status": "up"})
    assert (await status(world, entity(ids, "k", 0)))["value"] == 5
    assert (await status(world, entity(ids, "p", 1)))["value"] == "up"


@pytest.mark.parametrize("what", ["children", "meta"])
async def test_grants_show_entities(world: World, ids: dict[str, int], what):
    """Grants of integrations, devices or entities show an entity; hidden ones are 404."""
    user = world.user(7)
    thing_from_device, custom = entity(ids, "c", WIFI), entity(ids, "k", 0)
    await user.refused(
        403, "GET", f"/entity/{thing_from_device}/{what}", code="forbidden_permission"
    )
    await user.done("GET", f"/entity/{custom}/{what}")
    for kind, granted in (
        (ResourceType.INTEGRATION, "simulator"),
        (ResourceType.DEVICE, ids["c"]),
        (ResourceType.ENTITY, thing_from_device),
    ):
        world.grants.take(7)
        world.grants.give(7, kind, granted)
        await user.done("GET", f"/entity/{thing_from_device}/{what}")
        for other in (entity(ids, "a", WIFI), entity(ids, "x", WIFI), "4711"):
            await user.refused(404, "GET", f"/entity/{other}/{what}", code="data_no_found")
    await world.admin("other").refused(404, "GET", f"/entity/{thing_from_device}/{what}")


async def test_the_value_of_a_hidden_entity_is_empty(world: World, ids: dict[str, int]):
    """Dashboards may contain hidden and unknown entities."""
    user, mode = world.user(7), entity(ids, "a", MODE)
    await world.report(ids["a"], 1000, {"mode": "1"})
    assert await user.done("GET", f"/entity/{mode}/status") == {}
    for one in (entity(ids, "x", MODE), "4711"):
        assert await user.done("GET", f"/entity/{one}/status") == {}
    world.grants.give(7, ResourceType.ENTITY, mode)
    assert (await user.done("GET", f"/entity/{mode}/status"))["value"]
    assert await world.admin("other").done("GET", f"/entity/{mode}/status") == {}


async def test_a_grant_of_an_entity_shows_no_other(world: World, ids: dict[str, int]):
    """Other entities of the device stay hidden."""
    world.grants.give(7, ResourceType.ENTITY, entity(ids, "c", 1))
    await world.user(7).done("GET", f"/entity/{entity(ids, 'c', 1)}/meta")
    await world.user(7).refused(404, "GET", f"/entity/{entity(ids, 'c', 2)}/meta")


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        (
            "POST",
            "/entity/search",
            set(ENTITY_SEARCH_FUNCTIONS),
        ),
        (
            "GET",
            "/entity/1/children",
            {*ENTITY_READ_FUNCTIONS, Function.INTEGRATION_VIEW},
        ),
        ("GET", "/entity/1/status", set(ENTITY_READ_FUNCTIONS)),
        ("POST", "/entity/advanced-search", set(ENTITY_SEARCH_FUNCTIONS)),
    ],
)
async def test_operations_need_one_of_their_functions(world: World, method, path, needed):
    """One function suffices; all others together do not."""
    world.grants.give(7, ResourceType.DEVICE, 1)
    body = {} if method == "POST" else None
    others = [function for function in Function if function not in needed]
    await world.user(7, *others).refused(403, method, path, body, code="forbidden_permission")
    for function in needed:
        found = await world.user(7, function).ask(method, path, body)
        assert found.status_code == (404 if path.endswith("children") else 200)


@pytest.mark.parametrize("what", ["children", "meta", "status"])
@pytest.mark.parametrize("wrong", ["abc", "0", "-1", "1.5", "9" * 17])
async def test_an_id_must_be_a_number(world: World, what, wrong):
    """The error names the invalid id."""
    await world.admin().refused(400, "GET", f"/entity/{wrong}/{what}", field="entity_id")


async def test_other_services_resolve_keys_and_ids(world: World, ids: dict[str, int]):
    """Unknown and foreign entities are left out, and none is repeated."""
    wanted = ResolveEntities(
        tenant="default",
        keys=[
            "direct.device.SN-A1.wifi.ssid",
            "simulator.device.SN-C.temperature",
            "direct.device.GEN-1.gps.lat",
            "ping.integration.status",
            "system.integration.counter",
            "system.integration.scene.level",
            "direct.device.SN-A1.nothing",
            "direct.device.SN-C.temperature",
            "direct.device.SN-X.temperature",
            "nonsense",
            "",
            "....",
        ],
        ids=[int(entity(ids, "a", SSID)), int(entity(ids, "b", 2)), 5, int(entity(ids, "x", 1))],
    )
    answer = await world.rpc(RESOLVE_ENTITIES.removeprefix("rpc.device."), wanted, ResolvedEntities)
    found = {one.key: one for one in answer.entities}
    assert len(found) == len(answer.entities)
    assert sorted(found) == [
        "direct.device.GEN-1.gps.lat",
        "direct.device.SN-A1.wifi.ssid",
        "direct.device.SN-A2.door",
        "ping.integration.status",
        "simulator.device.SN-C.temperature",
        "system.integration.counter",
        "system.integration.scene.level",
    ]
    ssid = found["direct.device.SN-A1.wifi.ssid"]
    assert (ssid.id, ssid.thing_id, ssid.device, ssid.member, ssid.parent) == (
        int(entity(ids, "a", SSID)),
        ids["a"],
        True,
        "wifi.ssid",
        "direct.device.SN-A1.wifi",
    )
    assert (ssid.writable, ssid.device_name, ssid.value_type) == (True, "Hall", "STRING")
    level = found["system.integration.scene.level"]
    assert (level.device, level.member, level.parent) == (
        False,
        "level",
        "system.integration.scene",
    )
    assert level.writable is False


async def test_large_requests_are_rejected(world: World):
    """The error names the maximum."""
    wanted = ResolveEntities(tenant="default", ids=list(range(10_001)))
    with pytest.raises(InvalidInput, match="ids: must be at most 10000"):
        await world.rpc("resolve_entities", wanted, ResolvedEntities)


async def numbers(world: World, device: int) -> dict[str, int]:
    """Return member numbers by path from the detail of a device."""
    detail = await world.admin().done("GET", f"/device/{device}")
    key = f"{detail['key']}."
    return {
        one["key"].removeprefix(key): int(one["id"]) - device * 8192 for one in detail["entities"]
    }


def without(*gone: str) -> list[dict[str, Any]]:
    return [one for one in CLIMATE["properties"] if one["id"].partition(".")[0] not in gone]


async def test_numbers_are_stable_across_versions_of_a_product(world: World):
    """A removed member keeps its number; a new one gets a new number."""
    await world.put_product("P", {"version": "v1", "properties": without("wifi")})
    old = await world.add("SN-1", model="P")
    first = await numbers(world, old)
    new = {"id": "extra", "accessMode": "R", "dataSpec": {"dataType": "INT"}}
    await world.put_product("P", {"version": "v2", "properties": [new, *without("battery")]})
    second = await numbers(world, await world.add("SN-2", model="P"))
    await world.put_product("P", {"version": "v3", "properties": CLIMATE["properties"]})
    third = await numbers(world, await world.add("SN-3", model="P"))
    assert first == await numbers(world, old)
    assert {path: third[path] for path in first} == first
    assert {path: second[path] for path in first if path in second} == {
        path: number for path, number in first.items() if path != "battery"
    }
    assert second["extra"] not in third.values()
    assert len(set(third.values())) == len(third)


async def test_a_product_without_numbers_gets_them(world: World):
    """Numbers are assigned once, when the entities are first read."""
    await world.put_product("P", {"version": "v1", "properties": without()})
    device = await world.add("SN-1", model="P")
    await world.database["members"].delete_many({})
    first = await numbers(world, device)
    assert sorted(first.values()) == list(range(1, len(first) + 1))
    assert (await world.database["members"].find_one({}))["_id"] == {
        "tenant": "default",
        "model": "P",
    }


async def test_numbers_run_out(world: World):
    """A TSL that needs too many numbers is rejected."""
    marks = [f"PROPERTY:old{number}" for number in range(MAX_TSL_MEMBER_NUMBER - 1)]
    owner = {"tenant": "default", "model": "P"}
    await world.database["members"].insert_one({"_id": owner, "marks": marks})
    two = without("wifi", "samples", "mode")
    with pytest.raises(InvalidInput) as refused:
        await world.put_product("P", {"version": "v1", "properties": two})
    assert refused.value.field == "tsl"
    assert await world.database["products"].count_documents({}) == 0
    await world.put_product("P", {"version": "v1", "properties": two[:1]})
    assert list((await numbers(world, await world.add("SN-1", model="P"))).values()) == [
        MAX_TSL_MEMBER_NUMBER
    ]


async def test_a_replaced_version_shows_its_new_members(world: World):
    """A version without devices can be replaced."""
    await world.put_product("P", {"version": "v1", "properties": without("wifi")})
    device = await world.add("SN-1", model="P")
    assert "battery" in await numbers(world, device)
    await world.database["devices"].delete_one({"_id": device})
    await world.put_product("P", {"version": "v1", "properties": without("wifi", "battery")})
    assert "battery" not in await numbers(world, await world.add("SN-2", model="P"))
