"""The search of entities, compared with a check of every entity."""

from collections.abc import Callable
from typing import Any

import pytest
import pytest_asyncio

from libs.common.contracts.access import GrantedResources, ResourceType
from libs.common.identity.functions import Function
from libs.common.identity.grants import SUPER_ADMIN_GRANTS, Grants
from libs.common.integrations.client import ALWAYS_KNOWN_INTEGRATIONS
from services.device.members.entity import Entity
from tests.integration.device.console.world import Listening, World
from tests.integration.device.entities.seed import everything, granted, seed

PATH = "/entity/search"
MEMBER_KEYS: dict[str, Callable[[Entity], Any]] = {
    "name": lambda one: one.member.name,
    "type": lambda one: one.member.type,
    "value_type": lambda one: one.member.value_type,
    "access_mod": lambda one: one.member.access_mod or "",
    "id": lambda one: one.id,
    "key": lambda one: (
        one.thing.integration,
        not one.thing.device,
        one.thing.identifier,
        one.member.path,
    ),
    "created_at": lambda one: one.thing.created_at,
    "device_name": lambda one: (one.thing.name or "", one.thing.id),
    "integration_name": lambda one: (
        names_of_integrations().get(one.thing.integration, ""),
        one.thing.integration,
        one.thing.id,
    ),
}


@pytest_asyncio.fixture(scope="module")
async def seeded(started: tuple[World, Listening]) -> tuple[World, dict[str, int]]:
    """Return things of two tenants, which no test changes."""
    await started[0].empty()
    return started[0], await seed(started[0])


@pytest_asyncio.fixture(scope="module")
async def entities(seeded: tuple[World, dict[str, int]]) -> list[Entity]:
    """Return all entities by a plain read."""
    return await everything(seeded[0])


@pytest_asyncio.fixture
async def world(seeded: tuple[World, dict[str, int]]) -> World:
    """Return the operations without grants."""
    for user_id in (7, 8):
        seeded[0].grants.take(user_id)
    return seeded[0]


@pytest.fixture
def ids(seeded: tuple[World, dict[str, int]]) -> dict[str, int]:
    """Return the things by letter."""
    return seeded[1]


def names_of_integrations() -> dict[str, str]:
    return {key: known.name for key, known in ALWAYS_KNOWN_INTEGRATIONS.items()}


def expected(
    entities: list[Entity], asked: dict[str, Any], grants: Grants = SUPER_ADMIN_GRANTS
) -> list[str]:
    """Return the ids of matching entities in order, computed plainly."""
    called = names_of_integrations()
    word = (asked.get("keyword") or "").lower()

    def fits(one: Entity) -> bool:
        member, thing = one.member, one.thing
        texts = (member.name, one.key, thing.name or "", called.get(thing.integration, ""))
        return (
            member.type in (asked.get("entity_type") or [member.type])
            and member.value_type in (asked.get("entity_value_type") or [member.value_type])
            and member.access_mod in (asked.get("entity_access_mod") or [member.access_mod])
            and str(one.id) in map(str, asked.get("entity_ids", [one.id]))
            and not (asked.get("exclude_children") and member.parent is not None)
            and asked.get("customized", one.is_custom) in (None, one.is_custom)
            and (asked.get("show_hidden") or member.visible)
            and any(word in text.lower() for text in texts)
            and (grants.everything or granted(one, grants))
        )

    found = [one for one in entities if fits(one)]
    found.sort(key=lambda one: -one.id)
    for sort in reversed(asked.get("sorts") or []):
        name = sort["property"].removeprefix("entity_")
        found.sort(key=MEMBER_KEYS[name], reverse=sort.get("direction", "ASC") == "DESC")
    return [str(one.id) for one in found]


async def searched(user: Any, asked: dict[str, Any]) -> list[str]:
    """Return the ids of a search, as a list and page by page, one page beyond the last."""
    bare = [row["entity_id"] for row in await user.done("POST", PATH, asked)]
    size, paged = len(bare) // 2 + 1, list[str]()
    for number in (1, 2, 3):
        page = {"page_size": size, "page_number": number}
        found = await user.done("POST", PATH, {**asked, **page})
        assert {name: found[name] for name in page} == page
        assert found["total"] == len(bare)
        paged += [row["entity_id"] for row in found["content"]]
    assert paged == bare
    return bare


ASKED: list[dict[str, Any]] = [
    {},
    {"keyword": "BATTERY"},
    {"keyword": "battery level"},
    {"keyword": "hall"},
    {"keyword": "twin"},
    {"keyword": "sn-a"},
    {"keyword": "SN-A1.temp"},
    {"keyword": "A1.temp"},
    {"keyword": "direct.device.SN-A1.wifi.ssid"},
    {"keyword": "device.GEN-1.gps"},
    {"keyword": "imulator.device.SN"},
    {"keyword": "wifi.ap"},
    {"keyword": ".wifi"},
    {"keyword": "SN-C."},
    {"keyword": "direct.device."},
    {"keyword": "device"},
    {"keyword": "direct connection"},
    {"keyword": "system.integration.scene.l"},
    {"keyword": "integration"},
    {"keyword": "status"},
    {"keyword": "."},
    {"keyword": "*"},
    {"keyword": "no such thing"},
    {"keyword": ""},
    {"entity_type": ["PROPERTY"]},
    {"entity_type": ["SERVICE", "EVENT"]},
    {"entity_type": []},
    {"entity_value_type": ["OBJECT"]},
    {"entity_value_type": ["STRING", "LONG", "DOUBLE", "BOOLEAN"]},
    {"entity_access_mod": ["W", "RW"]},
    {"exclude_children": True},
    {"customized": True},
    {"customized": False},
    {"customized": True, "entity_type": ["PROPERTY"]},
    {"customized": None, "keyword": None, "entity_type": None},
    {"show_hidden": True},
    {"show_hidden": True, "keyword": "ghost"},
    {"exclude_children": True, "entity_type": ["PROPERTY"], "keyword": "door"},
    {"keyword": "sn-", "entity_value_type": ["LONG"]},
    *(
        {"sorts": [{"property": name, "direction": direction}]}
        for name in (*MEMBER_KEYS, "entity_name", "entity_key")
        for direction in ("ASC", "DESC")
    ),
    {"sorts": [{"property": "type"}, {"property": "name", "direction": "DESC"}]},
    {"sorts": [{"property": "value_type", "direction": "DESC"}, {"property": "key"}]},
    {"sorts": [{"property": "name"}], "keyword": "sn-a", "exclude_children": True},
    {"sorts": [{"property": "key"}], "keyword": "SN-A1.wifi"},
]


@pytest.mark.parametrize("asked", ASKED, ids=str)
async def test_a_super_admin_finds_all_entities(
    world: World, ids: dict[str, int], entities: list[Entity], asked
):
    """Filters, orders, pages and totals match the plain computation."""
    assert await searched(world.admin(), asked) == expected(entities, asked)


GRANTS: list[dict[ResourceType, list[str]]] = [
    {ResourceType.DEVICE: ["a"]},
    {ResourceType.DEVICE: ["a", "x"]},
    {ResourceType.INTEGRATION: ["simulator"]},
    {ResourceType.INTEGRATION: ["direct", "ping"]},
    {ResourceType.ENTITY: ["a.1", "b.2", "p.1", "k.0", "x.1"]},
    {ResourceType.ENTITY: ["a.1", "c.3"], ResourceType.DEVICE: ["c", "g"]},
    {
        ResourceType.ENTITY: ["a.2", "a.3"],
        ResourceType.DEVICE: ["b", "c"],
        ResourceType.INTEGRATION: ["simulator"],
    },
]
FIELDS = {
    ResourceType.DEVICE: "devices",
    ResourceType.INTEGRATION: "integrations",
    ResourceType.ENTITY: "entities",
}
SOME = [
    {},
    {"keyword": "battery"},
    {"keyword": "SN-A1.temp"},
    {"keyword": "hall"},
    {"sorts": [{"property": "key"}]},
    {"sorts": [{"property": "name"}], "entity_type": ["PROPERTY"]},
    {"sorts": [{"property": "integration_name", "direction": "DESC"}]},
    {"customized": True},
    {"customized": False},
]


@pytest.mark.parametrize("asked", SOME, ids=str)
@pytest.mark.parametrize("given", GRANTS, ids=str)
async def test_a_user_finds_granted_entities(
    world: World, ids: dict[str, int], entities: list[Entity], given, asked
):
    """Grants of devices, integrations and entities combine."""
    held: dict[str, frozenset[Any]] = {}
    for kind, names in given.items():
        found: list[Any] = [_granted_id(ids, kind, name) for name in names]
        world.grants.give(7, kind, *found)
        held[FIELDS[kind]] = frozenset(found)
    grants = Grants(everything=False, resources=GrantedResources(version=1, **held))
    assert await searched(world.user(7), asked) == expected(entities, asked, grants)


def _granted_id(ids: dict[str, int], kind: ResourceType, name: str) -> Any:
    if kind is ResourceType.INTEGRATION:
        return name
    if kind is ResourceType.DEVICE:
        return ids[name]
    key, number = name.split(".")
    return ids[key] * 8192 + int(number)


async def test_a_search_by_ids(world: World, ids: dict[str, int], entities: list[Entity]):
    """Only visible entities that match the other filters are returned."""
    wanted: list[Any] = [ids["a"] * 8192 + 1, str(ids["k"] * 8192), ids["x"] * 8192 + 1, "5"]
    for asked in (
        {"entity_ids": wanted},
        {"entity_ids": wanted, "customized": True},
        {"entity_ids": wanted, "keyword": "temp"},
        {"entity_ids": []},
    ):
        assert await searched(world.admin(), asked) == expected(entities, asked)
    world.grants.give(7, ResourceType.DEVICE, ids["b"])
    assert await searched(world.user(7), {"entity_ids": wanted}) == [wanted[1]]


async def test_custom_entities_need_their_function_in_a_search(
    world: World, ids: dict[str, int], entities: list[Entity]
):
    """Without `entity_custom.view` a search shows none, even with a grant."""
    world.grants.give(7, ResourceType.ENTITY, ids["k"] * 8192)
    viewer = world.user(7, Function.ENTITY_DATA_VIEW)
    assert await searched(viewer, {}) == []
    assert await searched(viewer, {"entity_ids": [ids["k"] * 8192]}) == []
    custom = world.user(8, Function.ENTITY_CUSTOM_VIEW)
    assert await searched(custom, {"customized": True}) == expected(entities, {"customized": True})


async def test_a_row_has_all_that_consoles_read(world: World, ids: dict[str, int]):
    """Ids are text, times are numbers, and attributes are always present."""
    wanted = {"keyword": "SN-A1.wifi.ssid"}
    (row,) = await world.admin().done("POST", PATH, wanted)
    assert row.pop("entity_created_at") > 1_600_000_000_000
    assert row.pop("entity_updated_at") > 1_600_000_000_000
    assert row == {
        "entity_id": str(ids["a"] * 8192 + 4),
        "entity_key": "direct.device.SN-A1.wifi.ssid",
        "entity_name": "SSID",
        "entity_type": "PROPERTY",
        "entity_value_type": "STRING",
        "entity_value_attribute": {},
        "entity_access_mod": "RW",
        "entity_parent_name": "Wi-Fi",
        "entity_is_customized": False,
        "entity_value_store_mod": "ALL",
        "device_id": str(ids["a"]),
        "device_name": "Hall",
        "integration_name": "Direct connection",
    }


async def test_results_are_limited(
    world: World, ids: dict[str, int], entities: list[Entity], monkeypatch
):
    """A large page is reduced to the maximum and says so; a list ends there."""
    monkeypatch.setattr("services.device.entities.search.MAX_LISTED_ENTITIES", 5)
    admin = world.admin()
    total = len(expected(entities, {}))
    found = await admin.done("POST", PATH, {"page_size": 99_999, "page_number": 1})
    assert (found["page_size"], found["total"], len(found["content"])) == (5, total, 5)
    second = await admin.done("POST", PATH, {"page_size": 99_999, "page_number": 2})
    assert second["content"][0]["entity_id"] == expected(entities, {})[5]
    assert len(await admin.done("POST", PATH, {})) == 5


async def test_tenants_are_separate(world: World, ids: dict[str, int]):
    """A search returns nothing of another tenant."""
    rows = await world.admin("other").done("POST", PATH, {})
    assert {int(row["entity_id"]) // 8192 for row in rows} == {ids["x"]}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"page_size": 0}, "page_size"),
        ({"page_number": "x"}, "page_number"),
        ({"keyword": 1}, "keyword"),
        ({"keyword": "x" * 513}, "keyword"),
        ({"entity_type": ["THING"]}, "entity_type"),
        ({"entity_type": "PROPERTY"}, "entity_type"),
        ({"entity_value_type": ["INT"]}, "entity_value_type"),
        ({"entity_access_mod": ["X"]}, "entity_access_mod"),
        ({"entity_ids": ["abc"]}, "entity_ids"),
        ({"entity_ids": [-1]}, "entity_ids"),
        ({"exclude_children": "yes"}, "exclude_children"),
        ({"customized": "perhaps"}, "customized"),
        ({"sorts": [{"property": "color"}]}, "sorts[0].property"),
        ({"sorts": [{"property": "key", "direction": "left"}]}, "sorts[0].direction"),
    ],
)
async def test_an_invalid_field_is_named(world: World, body, field):
    """The error names the invalid field."""
    content = await world.admin().refused(400, "POST", PATH, body)
    assert content["detail_message"].startswith(field)
