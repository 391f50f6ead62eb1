"""The advanced search, compared with a check of every entity."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from libs.common.contracts.access import GrantedResources, ResourceType
from libs.common.identity.functions import Function
from libs.common.identity.grants import SUPER_ADMIN_GRANTS, Grants
from libs.common.integrations.client import ALWAYS_KNOWN_INTEGRATIONS
from services.device.entities.advanced_search import OPERATORS_BY_COLUMN
from services.device.members.entity import Entity
from tests.integration.device.console.world import Listening, World
from tests.integration.device.entities.seed import everything, granted, seed

PATH = "/entity/advanced-search"
TEXTS = ("hall", "Hall", "Battery", "direct.device.SN-A1.wifi", "sn-a1.wi", "ssid", "device", "x")
KEYS = (
    "direct.device.SN-A1.wifi.ssid",
    "DIRECT.device.sn-a",
    "direct.device.sn-a1.",
    "direct.device.sn-a1.w",
    "simulator.device",
    "direct.",
    "system.integration.scene",
    "sn-a1.wifi.ssid",
    "1.battery",
    ".battery",
    "fi.ssid",
    "scene.level",
    "sn-a1",
)


class AllEntities(NamedTuple):
    """All entities by a plain read."""

    entities: list[Entity]
    tags: dict[int, set[str]]
    """Names of the tags of those that have some."""
    groups: dict[int, str]


@pytest_asyncio.fixture(scope="module")
async def seeded(started: tuple[World, Listening]) -> tuple[World, dict[str, int]]:
    """Return things with groups and tags, which no test changes."""
    world = started[0]
    await world.empty()
    ids = await seed(world)
    database, now = world.database, datetime.now(UTC)
    for group, (name, members) in enumerate((("Roof", "ab"), ("Cellar", "c")), 71):
        row = {"_id": group, "tenant": "default", "name": name, "createdAt": now}
        await database["device_groups"].insert_one(row)
        some = {"_id": {"$in": [ids[member] for member in members]}}
        await database["devices"].update_many(some, {"$set": {"group": group}})
    for tag, name in ((91, "red"), (92, "blue"), (93, "green")):
        row = {"_id": tag, "name": name, "description": "", "color": "#fff"}
        row |= {"tenant": "default", "createdAt": now, "updatedAt": now}
        await database["entity_tags"].insert_one(row)
    tagged = {("a", 1): [91, 92], ("b", 1): [91], ("k", 0): [91], ("p", 1): [92]}
    await database["tagged_entities"].insert_many(
        {"_id": entity(ids, *place), "tenant": "default", "tags": tags}
        for place, tags in tagged.items()
    )
    return world, ids


def entity(ids: dict[str, int], letter: str, number: int) -> int:
    return ids[letter] * 8192 + number


@pytest_asyncio.fixture
async def world(seeded: tuple[World, dict[str, int]]) -> World:
    """Return the operations without grants."""
    seeded[0].grants.take(7)
    return seeded[0]


@pytest_asyncio.fixture(scope="module")
async def seen(seeded: tuple[World, dict[str, int]]) -> AllEntities:
    """Return all entities by a plain read."""
    world = seeded[0]
    rows = await world.database["entity_tags"].find().to_list(None)
    names = {row["_id"]: row["name"] for row in rows}
    rows = await world.database["tagged_entities"].find().to_list(None)
    tags = {row["_id"]: {names[tag] for tag in row["tags"]} for row in rows}
    rows = await world.database["device_groups"].find().to_list(None)
    return AllEntities(await everything(world), tags, {row["_id"]: row["name"] for row in rows})


@pytest.fixture
def ids(seeded: tuple[World, dict[str, int]]) -> dict[str, int]:
    """Return the things by letter."""
    return seeded[1]


def text_fits(operator: str, wanted: str, text: str | None) -> bool:
    """Return whether text matches an operator, computed plainly."""
    text, low = text or "", (text or "").lower()
    return {
        "CONTAINS": wanted.lower() in low,
        "NOT_CONTAINS": wanted.lower() not in low,
        "EQ": text == wanted,
        "NE": text != wanted,
        "START_WITH": low.startswith(wanted.lower()),
        "END_WITH": low.endswith(wanted.lower()),
        "IS_EMPTY": not text,
        "IS_NOT_EMPTY": bool(text),
    }[operator]


def tags_fit(operator: str, wanted: set[str], tags: set[str]) -> bool:
    return {
        "ANY_EQUALS": bool(tags & wanted),
        "CONTAINS": bool(tags) and wanted <= tags,
        "NOT_CONTAINS": not tags & wanted,
        "EQ": bool(tags) and tags <= wanted,
        "IS_EMPTY": not tags,
        "IS_NOT_EMPTY": bool(tags),
    }[operator]


def expected(
    seen: AllEntities, asked: dict[str, Any], grants: Grants = SUPER_ADMIN_GRANTS
) -> set[str]:
    """Return the ids of matching entities, computed plainly."""
    called = {key: known.name for key, known in ALWAYS_KNOWN_INTEGRATIONS.items()}

    def fits(one: Entity) -> bool:
        member, thing = one.member, one.thing
        above = thing.members.by_path.get(member.parent) if member.parent is not None else None
        columns: dict[str, Any] = {
            "ENTITY_KEY": one.key,
            "ENTITY_NAME": member.name,
            "ENTITY_PARENT_NAME": above.name if above else None,
            "DEVICE_NAME": thing.name,
            "INTEGRATION_NAME": called.get(thing.integration),
        }
        whole = {
            "ENTITY_TYPE": member.type,
            "ENTITY_VALUE_TYPE": member.value_type,
            "DEVICE_GROUP": seen.groups.get(thing.group or 0),
            "DEVICE_ID": str(thing.id) if thing.device else None,
        }
        for column, wanted in asked.items():
            operator, values = wanted["operator"], wanted["values"]
            if column == "ENTITY_TAGS":
                if not tags_fit(operator, set(values), seen.tags.get(one.id, set())):
                    return False
            elif column in whole:
                if whole[column] not in values:
                    return False
            elif not text_fits(operator, values[0] if values else "", columns[column]):
                return False
        return member.visible and (grants.everything or granted(one, grants))

    return {str(one.id) for one in seen.entities if fits(one)}


async def found(user: Any, asked: dict[str, Any], size: int = 60) -> list[str]:
    """Return the ids of a search, page by page, and check the totals."""
    rows: list[str] = []
    for number in range(1, 100):
        body = {"entity_filter": asked, "page_size": size, "page_number": number}
        page = await user.done("POST", PATH, body)
        rows += [row["entity_id"] for row in page["content"]]
        if len(page["content"]) < size:
            assert page["total"] == len(rows), (asked, page["total"], len(rows))
            assert len(set(rows)) == len(rows)
            return rows
    raise AssertionError


def column(name: str, operator: str, *values: str) -> dict[str, Any]:
    return {name: {"operator": operator, "values": list(values)}}


def asked_of(name: str, operator: str) -> list[dict[str, Any]]:
    """Return filters of a column that cover an operator."""
    if "EMPTY" in operator:
        return [column(name, operator)]
    if name == "ENTITY_TAGS":
        sets = (["red"], ["blue"], ["red", "blue"], ["green"], ["none"], ["red", "none"])
        return [column(name, operator, *some) for some in sets]
    if name == "ENTITY_TYPE":
        return [column(name, operator, "PROPERTY"), column(name, operator, "SERVICE", "EVENT")]
    if name == "ENTITY_VALUE_TYPE":
        return [column(name, operator, "LONG", "OBJECT")]
    if name == "DEVICE_GROUP":
        return [column(name, operator, *some) for some in (["Roof"], ["Roof", "Cellar"], ["no"])]
    texts = (*TEXTS, *KEYS) if name == "ENTITY_KEY" else (*TEXTS, "Direct connection", "Wi-Fi")
    return [column(name, operator, text) for text in texts]


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        (name, one)
        for name, some in OPERATORS_BY_COLUMN.items()
        for one in some
        if name != "DEVICE_ID"
    ],
)
async def test_every_operator_matches_a_plain_computation(world: World, seen, name, operator):
    """Each operator matches the plain computation, also with grants."""
    grants = Grants(
        everything=False, resources=GrantedResources(version=1, integrations=frozenset(["direct"]))
    )
    world.grants.give(7, ResourceType.INTEGRATION, "direct")
    for asked in asked_of(name, operator):
        assert set(await found(world.admin(), asked)) == expected(seen, asked), asked
    rows = await found(world.user(7, *Function), asked)
    assert set(rows) == expected(seen, asked, grants), asked


async def test_columns_narrow_each_other(world: World, seen: AllEntities, ids: dict[str, int]):
    """Several column filters must all match."""
    device = column("DEVICE_ID", "EQ", str(ids["a"]))
    for asked in (
        device,
        device | column("ENTITY_TYPE", "ANY_EQUALS", "PROPERTY"),
        device | column("ENTITY_TAGS", "NOT_CONTAINS", "red"),
        device | column("ENTITY_KEY", "NOT_CONTAINS", "wifi"),
        column("ENTITY_TAGS", "ANY_EQUALS", "red") | column("ENTITY_KEY", "EQ", KEYS[0]),
        column("ENTITY_TAGS", "IS_EMPTY") | column("ENTITY_KEY", "END_WITH", ".battery"),
        column("ENTITY_TAGS", "IS_EMPTY") | column("DEVICE_NAME", "START_WITH", "HALL"),
        column("ENTITY_TAGS", "NOT_CONTAINS", "blue") | column("ENTITY_KEY", "NE", KEYS[0]),
        column("DEVICE_GROUP", "ANY_EQUALS", "Roof") | column("ENTITY_NAME", "END_WITH", "y"),
        column("INTEGRATION_NAME", "NE", "Direct connection") | column("ENTITY_KEY", "NE", "x"),
        {},
    ):
        rows = await found(world.admin(), asked, 7)
        assert set(rows) == expected(seen, asked), asked


async def test_a_row_has_the_latest_value(world: World, ids: dict[str, int]):
    """Values are text: numbers without an exponent, keys of enumerations, arrays as JSON."""
    values = {"temperature": 1e-7, "mode": "1", "samples": [1.5], "battery": 5}
    await world.report(ids["a"], 1000, values)
    asked = column("DEVICE_ID", "EQ", str(ids["a"]))
    body = {"entity_filter": asked, "page_size": 999_999, "page_number": 1}
    rows = (await world.admin().done("POST", PATH, body))["content"]
    told = {row["entity_name"]: row.get("entity_latest_value") for row in rows}
    assert {name: told[name] for name in ("Temperature", "Mode", "Samples", "Battery", "SSID")} == {
        "Temperature": "0.0000001",
        "Mode": "1",
        "Samples": "[1.5]",
        "Battery": "5",
        "SSID": None,
    }
    (tagged,) = [row for row in rows if row["entity_name"] == "Temperature"]
    assert [tag["name"] for tag in tagged["entity_tags"]] == ["red", "blue"]
    assert tagged["device_group"]["name"] == "Roof"


async def test_custom_entities_need_their_function(world: World):
    """Without `entity_custom.view` the search shows no custom entities."""
    asked = column("ENTITY_KEY", "START_WITH", "system.integration.")
    assert await found(world.user(7, Function.ENTITY_DATA_VIEW), asked) == []
    assert len(await found(world.user(7, Function.ENTITY_CUSTOM_VIEW), asked)) == 3


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (column("COLOUR", "EQ", "x"), "COLOUR"),
        (column("ENTITY_NAME", "ANY_EQUALS", "x"), "ENTITY_NAME.operator"),
        (column("ENTITY_TYPE", "EQ", "PROPERTY"), "ENTITY_TYPE.operator"),
        (column("ENTITY_TYPE", "ANY_EQUALS", "SONG"), "ENTITY_TYPE.values"),
        (column("DEVICE_ID", "EQ", "x"), "DEVICE_ID.values"),
        (column("DEVICE_ID", "EQ"), "DEVICE_ID.values"),
        (column("ENTITY_TAGS", "START_WITH", "x"), "ENTITY_TAGS.operator"),
        (column("ENTITY_NAME", "CONTAINS"), "ENTITY_NAME.values"),
    ],
)
async def test_a_wrong_filter_names_its_column(world: World, asked, field):
    """The error names the invalid column."""
    code, place = "parameter_validation_failed", f"entity_filter.{field}"
    body = {"entity_filter": asked}
    await world.admin().refused(400, "POST", PATH, body, field=place, code=code)


async def test_many_values_at_once(world: World, ids: dict[str, int]):
    """Values are returned by id, without hidden and unknown entities."""
    await world.report(ids["b"], 2000, {"battery": 7})
    known, empty, hidden = entity(ids, "b", 1), entity(ids, "b", 2), entity(ids, "x", 1)
    body = {"entity_ids": [known, str(known), empty, hidden, "77"]}
    values = await world.admin().done("POST", "/entity/batch-get-status", body)
    assert values == {
        str(known): {"value": 7, "timestamp": "2000", "value_type": "LONG"},
        str(empty): {},
    }
    nobody = world.user(7, Function.DEVICE_VIEW)
    assert await nobody.done("POST", "/entity/batch-get-status", body) == {}
    too_many = {"entity_ids": ["1"] * 5001}
    await world.admin().refused(
        400, "POST", "/entity/batch-get-status", too_many, field="entity_ids"
    )


async def test_a_search_by_keys_and_names(world: World, ids: dict[str, int]):
    """Keys, full names, source names, and keywords without keys are supported."""
    admin = world.admin()

    async def keys(**asked: Any) -> set[str]:
        return {row["entity_key"] for row in await admin.done("POST", "/entity/search", asked)}

    assert await keys(entity_keys=[KEYS[0], "direct.device.none.x"]) == {KEYS[0]}
    assert await keys(entity_keys=[KEYS[0]], entity_ids=[1]) == set()
    assert await keys(entity_names=["SSID"], entity_source_name="HALL") == {KEYS[0]}
    assert KEYS[0] in await keys(keyword="sn-a1")
    assert await keys(keyword="sn-a1", not_scan_key=True) == set()
    assert KEYS[0] in await keys(keyword="ssid", not_scan_key=True)
