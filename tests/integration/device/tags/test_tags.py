"""Tags of entities."""

from typing import Any

import pytest

from libs.common.contracts.access import ResourceType
from libs.common.identity.functions import Function
from libs.common.things import entity_id
from services.device.entities import tags as store
from services.device.entities.tags import TagStore
from tests.console import User
from tests.integration.device.values.world import LAMP, World


async def add_tag(world: World, name: str, tenant: str = "default", **more: str) -> str:
    """Create a tag and return its id."""
    body = {"name": name, "color": "#6b7785", "description": ""} | more
    return str((await world.admin(tenant).done("POST", "/entity/tags", body))["id"])


async def add_lamp(world: World, sn: str) -> dict[str, str]:
    """Add a device and return its entities by path."""
    await world.put_product("TLAMP", LAMP)
    device = await world.add_direct(sn, "TLAMP")
    ids = await world.ids(device)
    return {key.removeprefix(f"direct.device.{sn}."): one for key, one in ids.items()}


async def put(user: User, operation: str, entities: list[str], **tags: list[str]) -> None:
    """Change the tags of entities."""
    body = {"operation": operation, "entity_ids": entities}
    body |= {f"{name}_tag_ids": ids for name, ids in tags.items()}
    await user.done("POST", "/entity/tags/mapping", body)


async def carried(world: World, *entities: str) -> list[list[str]]:
    """Return the names of the tags of entities, as a search shows them."""
    body = {"entity_ids": list(entities), "page_size": 100, "page_number": 1}
    page = await world.admin().done("POST", "/entity/search", body)
    rows = {row["entity_id"]: row.get("entity_tags", []) for row in page["content"]}
    return [[tag["name"] for tag in rows[entity]] for entity in entities]


async def tags(user: User, **asked: Any) -> list[dict[str, Any]]:
    """Return the tags of a search."""
    return list((await user.done("POST", "/entity/tags/search", asked))["content"])


async def test_a_tag_is_created_changed_and_listed(world: World):
    """Tags are found by part of name and description; tenants are separate."""
    number = (await world.admin().done("GET", "/entity/tags/number"))["number"]
    first = await add_tag(world, "T1-a", description="of the roof")
    second = await add_tag(world, "T1-b")
    (row,) = await tags(world.admin(), keyword="OF THE ROOF", page_size=999_999)
    assert row.pop("updated_at") == row.pop("created_at") > 1_600_000_000_000
    assert row == {
        "id": first,
        "name": "T1-a",
        "description": "of the roof",
        "color": "#6b7785",
        "tagged_entities_count": 0,
    }
    body = {"name": "T1-c", "color": "#ffffff"}
    await world.admin().done("PUT", f"/entity/tags/{first}", body)
    assert [(tag["id"], tag["name"]) for tag in await tags(world.user(7), keyword="t1-")] == [
        (second, "T1-b"),
        (first, "T1-c"),
    ]
    assert (await world.user(7).done("GET", "/entity/tags/number"))["number"] == number + 2
    assert await tags(world.admin("other"), keyword="T1") == []
    refusal = {"code": "entity_tag_not_found", "field": "tag_id"}
    await world.admin("other").refused(404, "PUT", f"/entity/tags/{first}", body, **refusal)
    refusal = {"code": "entity_tag_name_already_exists", "field": "name"}
    await world.admin().refused(400, "PUT", f"/entity/tags/{second}", body, **refusal)
    await world.admin().refused(400, "POST", "/entity/tags", body, **refusal)


async def test_tags_are_limited(world: World, monkeypatch: pytest.MonkeyPatch):
    """A tag beyond the limit of the tenant is rejected."""
    monkeypatch.setattr(store, "MAX_TAGS", 0)
    body = {"name": "T", "color": "#ffffff"}
    code = "number_of_entity_tags_exceeded"
    await world.admin("third").refused(400, "POST", "/entity/tags", body, code=code)


async def test_tags_of_entities_are_changed(world: World):
    """ADD, OVERWRITE, REMOVE and REPLACE change the tags of entities."""
    a, b, c = [await add_tag(world, f"T2-{name}") for name in "abc"]
    ids = await add_lamp(world, "T2")
    on, level = ids["on"], ids["level"]
    admin = world.admin()
    await put(admin, "ADD", [on, level], added=[a])
    await put(admin, "ADD", [on], added=[b, a])
    assert await carried(world, on, level) == [["T2-a", "T2-b"], ["T2-a"]]
    counts = {tag["name"]: tag["tagged_entities_count"] for tag in await tags(admin, keyword="T2")}
    assert counts == {"T2-a": 2, "T2-b": 1, "T2-c": 0}
    await put(admin, "REPLACE", [on, level], added=[c], removed=[b])
    assert await carried(world, on, level) == [["T2-a", "T2-c"], ["T2-a"]]
    await put(admin, "OVERWRITE", [on], added=[b])
    await put(admin, "REMOVE", [on, level], removed=[a, b])
    assert await carried(world, on, level) == [[], []]


@pytest.mark.parametrize(
    ("operation", "missing"),
    [
        ("ADD", "added_tag_ids"),
        ("OVERWRITE", "added_tag_ids"),
        ("REMOVE", "removed_tag_ids"),
        ("REPLACE", "added_tag_ids"),
    ],
)
async def test_an_operation_names_its_missing_field(world: World, operation: str, missing: str):
    """The error names the missing field."""
    body = {"operation": operation, "entity_ids": ["1"], "added_tag_ids": []}
    await world.admin().refused(400, "POST", "/entity/tags/mapping", body, field=missing)


async def test_an_entity_has_at_most_ten_tags(world: World):
    """One entity beyond the limit rejects the request."""
    made = [await add_tag(world, f"T3-{at}") for at in range(11)]
    ids = await add_lamp(world, "T3")
    on, level = ids["on"], ids["level"]
    await put(world.admin(), "ADD", [on], added=made[:10])
    body = {"operation": "ADD", "entity_ids": [level, on], "added_tag_ids": made[10:]}
    code = "number_of_tags_per_entity_exceeded"
    await world.admin().refused(400, "POST", "/entity/tags/mapping", body, code=code)
    assert await carried(world, level) == [[]]


async def test_a_deleted_tag_is_removed_from_entities(world: World):
    """A deleted tag is neither shown nor accepted."""
    gone, kept = await add_tag(world, "T4-a"), await add_tag(world, "T4-b")
    theirs = await add_tag(world, "T4", "other")
    on = (await add_lamp(world, "T4"))["on"]
    await put(world.admin(), "ADD", [on], added=[gone, kept])
    await world.admin().done("POST", "/entity/tags/delete", {"ids": [gone, theirs, "5"]})
    assert await carried(world, on) == [["T4-b"]]
    assert [tag["id"] for tag in await tags(world.admin("other"), keyword="T4")] == [theirs]
    for wrong in (gone, theirs):
        body = {"operation": "ADD", "entity_ids": [on], "added_tag_ids": [wrong]}
        await world.admin().refused(
            404, "POST", "/entity/tags/mapping", body, code="entity_tag_not_found"
        )


@pytest.mark.parametrize("operation", ["ADD", "OVERWRITE", "REMOVE", "REPLACE"])
async def test_hidden_entities_keep_their_tags(world: World, operation: str):
    """Hidden entities are unchanged by all four operations."""
    old, new = await add_tag(world, f"T5-{operation} o"), await add_tag(world, f"T5-{operation} n")
    seen = (await add_lamp(world, f"T5-{operation}"))["on"]
    hidden = (await add_lamp(world, f"T5-{operation}-x"))["on"]
    await put(world.admin(), "ADD", [seen, hidden], added=[old])
    user = world.user(7)
    world.grants.give(7, ResourceType.ENTITY, seen)
    await put(user, operation, [seen, hidden], added=[new], removed=[old])
    mine, theirs = await carried(world, seen, hidden)
    assert mine != [f"T5-{operation} o"]
    assert theirs == [f"T5-{operation} o"]
    body = {"operation": operation, "entity_ids": [hidden], "added_tag_ids": [new]}
    body["removed_tag_ids"] = [old]
    await user.refused(404, "POST", "/entity/tags/mapping", body)


async def test_tags_are_removed_with_their_entities(world: World):
    """Tags are removed with custom entities and deleted things."""
    tag = await add_tag(world, "T6")
    custom = {"identifier": "T6", "name": "T6", "type": "PROPERTY", "value_type": "LONG"}
    made = await world.admin().done("POST", "/entity", custom | {"access_mod": "RW"})
    on = int((await add_lamp(world, "T6"))["on"])
    await put(world.admin(), "ADD", [made["id"], str(on)], added=[tag])
    await world.admin().done("POST", "/entity/delete", {"entity_ids": [made["id"]]})
    tagged = world.database["tagged_entities"]
    assert await tagged.find_one({"_id": int(made["id"])}) is None
    await TagStore(world.clients.mongo).delete_thing_data(on // entity_id(1, 0) + 1)
    assert await tagged.find_one({"_id": on}) is not None
    await TagStore(world.clients.mongo).delete_thing_data(on // entity_id(1, 0))
    assert await tagged.find_one({"_id": on}) is None


@pytest.mark.parametrize(
    ("method", "path", "body", "needed"),
    [
        ("POST", "/entity/tags", {"name": ""}, {Function.ENTITY_TAG_MANAGE}),
        ("PUT", "/entity/tags/5", {"name": ""}, {Function.ENTITY_TAG_MANAGE}),
        ("POST", "/entity/tags/delete", {"ids": []}, {Function.ENTITY_TAG_MANAGE}),
        ("POST", "/entity/tags/mapping", {}, {Function.ENTITY_DATA_EDIT}),
    ],
)
async def test_operations_need_their_function(world: World, method, path, body, needed):
    """Only the function of an operation admits a user."""
    for function in Function:
        answer = await world.user(7, function).ask(method, path, body)
        assert (answer.status_code != 403) == (function in needed), (function, answer.text)
