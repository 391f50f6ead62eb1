"""Custom entities of users."""

from typing import Any
from uuid import uuid4

import msgspec
import pytest

from libs.common.contracts.access import ResourceType
from libs.common.identity.functions import Function
from libs.common.tsl import TslDocument
from services.device.members.entity import stored_tsl_fields
from services.device.migrations import _store_fraction_digits
from tests.integration.device.values.world import World

PROPERTY = {
    "name": "Counter",
    "type": "PROPERTY",
    "access_mod": "RW",
    "value_type": "LONG",
    "value_attribute": {},
}
UPDATE = "/entity/property/update"
EDITS = {Function.ENTITY_CUSTOM_EDIT, Function.ENTITY_DATA_EDIT}


def body(identifier: str, **more):
    """Return a body of `POST /entity`."""
    return PROPERTY | {"identifier": identifier} | more


async def test_a_custom_property_works_like_any_other(world: World):
    """It is set, read, listed and published; bounds that were sent as text apply."""
    admin = world.admin()
    made = await admin.done(
        "POST", "/entity", body("c1", value_attribute={"min": "0", "max": "10", "unit": ""})
    )
    assert made["key"] == "system.integration.c1"
    assert made["value_attribute"] == {"min": 0, "max": 10}
    assert made["customized"] is True
    await admin.done("POST", UPDATE, {"exchange": {made["key"]: "7"}})
    status = await admin.done("GET", f"/entity/{made['id']}/status")
    assert (status["value"], status["value_type"]) == (7, "LONG")
    past = await admin.done("POST", "/entity/history/search", {"entity_id": made["id"]})
    assert [row["value"] for row in past] == [7]
    last = {"entity_id": made["id"], "aggregate_type": "SUM"}
    assert (await admin.done("POST", "/entity/history/aggregate", last))["value"] == 7
    refused = await admin.refused(400, "POST", UPDATE, {"exchange": {made["key"]: 11}})
    assert refused["data"][0]["error_code"] == "entity_value_out_of_range"
    found = await admin.done("POST", "/entity/search", {"customized": True, "keyword": "c1"})
    assert [row["entity_id"] for row in found] == [made["id"]]
    number = int(made["id"]) // 8192
    event = await world.clients.bus.js.get_last_msg(
        "EVENTS", f"event.default.thing.{number}.reported"
    )
    assert b'"properties":{"c1":7}' in event.data
    assert b'"thingKey":"system.integration"' in event.data


@pytest.mark.parametrize("older", [False, True])
async def test_a_custom_number_is_rounded(world: World, older: bool):
    """Values are rounded half up to the fraction digits, also for older entities."""
    admin, attributes = world.admin(), {"fraction_digits": "1", "max": "100"}
    wanted = body(f"digits-{older}", value_type="DOUBLE", value_attribute=attributes)
    made = await admin.done("POST", "/entity", wanted)
    if older:
        things, query = world.database["things"], {"identifier": wanted["identifier"]}
        before = await things.find_one(query)
        document = msgspec.json.decode(before["tsl"], type=TslDocument)
        document.properties[0].data_spec.fraction_digits = None
        await things.update_one(query, {"$set": stored_tsl_fields(document)})
        await _store_fraction_digits(world.database)
        assert await things.find_one(query) == before
    await admin.done("POST", UPDATE, {"exchange": {made["key"]: 9.99}})
    assert (await admin.done("GET", f"/entity/{made['id']}/status"))["value"] == 10.0
    past = await admin.done("POST", "/entity/history/search", {"entity_id": made["id"]})
    assert [row["value"] for row in past] == [10.0]


@pytest.mark.parametrize(
    "left_out", ["value_attribute", "visible", "parent_identifier", "description"]
)
async def test_null_equals_an_absent_field(world: World, left_out: str):
    """Null and absent fields are equivalent."""
    admin = world.admin()
    made = await admin.done("POST", "/entity", body(f"no-{left_out}", **{left_out: None}))
    assert made["value_attribute"] == {}
    found = await admin.done("POST", "/entity/search", {"keyword": made["key"]})
    assert [row["entity_id"] for row in found] == [made["id"]]


@pytest.mark.parametrize(
    ("value_type", "given", "expected"),
    [
        ("STRING", 5, "5"),
        ("DOUBLE", "1.5", 1.5),
        ("BOOLEAN", "false", False),
        ("BINARY", "AAEC", "AAEC"),
        ("LONG", 2**40, 2**40),
    ],
)
async def test_custom_entities_of_every_type_keep_their_values(
    world: World, value_type: str, given, expected
):
    """Values are stored in the type of the entity."""
    identifier = f"type-{value_type}"
    made = await world.admin().done("POST", "/entity", body(identifier, value_type=value_type))
    await world.admin().done("POST", UPDATE, {"exchange": {made["key"]: given}})
    status = await world.admin().done("GET", f"/entity/{made['id']}/status")
    assert status["value"] == expected


async def test_children_belong_to_an_object(world: World):
    """Children have keys below the object, values of their own, and unique numbers."""
    admin = world.admin()
    parent = await admin.done("POST", "/entity", body("obj", value_type="OBJECT"))
    first = await admin.done("POST", "/entity", body("a", parent_identifier="obj"))
    second = await admin.done("POST", "/entity", body("b", parent_identifier="obj"))
    assert first["key"] == "system.integration.obj.a"
    exchange = {first["key"]: 1, second["key"]: 2}
    await admin.done("POST", UPDATE, {"exchange": exchange})
    await admin.done("POST", UPDATE, {"exchange": {first["key"]: 3}})
    for made, expected in ((first, 3), (second, 2)):
        assert (await admin.done("GET", f"/entity/{made['id']}/status"))["value"] == expected
    assert await admin.done("GET", f"/entity/{parent['id']}/status") == {}
    children = await admin.done("GET", f"/entity/{parent['id']}/children")
    assert [row["entity_key"] for row in children] == [first["key"], second["key"]]
    await admin.done("POST", "/entity/delete", {"entity_ids": [second["id"]]})
    third = await admin.done("POST", "/entity", body("b", parent_identifier="obj"))
    assert third["id"] not in (first["id"], second["id"])
    await admin.refused(409, "POST", "/entity", body("b", parent_identifier="obj"))


@pytest.mark.parametrize("value", ["much", {"x": 1}, [1], None, 2**70, 1.5, {"x": {"y": 1}}])
async def test_an_invalid_value_of_a_child_is_named(world: World, value: Any):
    """An invalid value is reported once, by the key of the child."""
    admin, root = world.admin(), f"named-{uuid4().hex[:8]}"
    await admin.done("POST", "/entity", body(root, value_type="OBJECT"))
    key = (await admin.done("POST", "/entity", body("a", parent_identifier=root)))["key"]
    parent = key.removesuffix(".a")
    for exchange in ({key: value}, {parent: {"a": value}}):
        answer = await admin.refused(400, "POST", UPDATE, {"exchange": exchange})
        assert answer["detail_message"].startswith(f"exchange.{key}")
        assert str(answer).count(root) == 1 + str(answer["data"]).count(root)
        for one in answer["data"]:
            assert one["args"]["entity_key"].startswith(key)
            assert str(one).count(root) == 1


@pytest.mark.parametrize("value", ["much", 5, [1], {"b": 1}, {"a": 1, "b": {"c": 1}}])
async def test_an_invalid_value_of_an_object_is_named(world: World, value: Any):
    """An invalid value or unknown child is reported by its key."""
    admin, root = world.admin(), f"named-{uuid4().hex[:8]}"
    await admin.done("POST", "/entity", body(root, value_type="OBJECT"))
    await admin.done("POST", "/entity", body("a", parent_identifier=root))
    key = f"system.integration.{root}"
    answer = await admin.refused(400, "POST", UPDATE, {"exchange": {key: value}})
    assert answer["detail_message"].startswith(f"exchange.{key}")
    assert answer["detail_message"].count(root) == 1
    assert all(str(one).count(root) == 1 for one in answer["data"])


async def test_an_identifier_is_unique_per_tenant(world: World):
    """An existing identifier is rejected with 409; tenants are separate."""
    await world.admin().done("POST", "/entity", body("once"))
    await world.admin().refused(409, "POST", "/entity", body("once"), field="identifier")
    made = await world.admin("other").done("POST", "/entity", body("once"))
    await world.admin().refused(404, "GET", f"/entity/{made['id']}/meta")
    await world.admin().refused(404, "PUT", f"/entity/{made['id']}", {"name": "mine"})
    await world.admin().done("POST", "/entity/delete", {"entity_ids": [made["id"]]})
    await world.admin("other").done("GET", f"/entity/{made['id']}/meta")


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"identifier": ""}, "identifier"),
        ({"identifier": "a.b"}, "identifier"),
        ({"identifier": "a b"}, "identifier"),
        ({"identifier": "$a"}, "identifier"),
        ({"identifier": "x" * 129}, "identifier"),
        ({"identifier": None}, "identifier"),
        ({"name": ""}, "name"),
        ({"name": " "}, "name"),
        ({"type": "THING"}, "type"),
        ({"value_type": "INT"}, "value_type"),
        ({"access_mod": None}, "access_mod"),
        ({"access_mod": "X"}, "access_mod"),
        ({"parent_identifier": "nobody"}, "parent_identifier"),
        ({"value_attribute": []}, "value_attribute"),
        ({"value_attribute": {"min": "x"}}, "value_attribute.min"),
        ({"value_attribute": {"min": 1.5}}, "value_attribute.min"),
        ({"value_attribute": {"min": "nan"}, "value_type": "DOUBLE"}, "value_attribute.min"),
        ({"value_attribute": {"min": 5, "max": "4"}}, "value_attribute.max"),
        ({"value_attribute": {"enum": []}, "value_type": "DOUBLE"}, None),
        ({"value_attribute": {"enum": {"a": "b"}}}, "value_attribute.enum.a"),
        ({"value_attribute": {"enum": {"1": 5}}}, "value_attribute.enum.1"),
        ({"value_attribute": {"enum": {"1": "x"}}, "value_type": "DOUBLE"}, "value_attribute.enum"),
        (
            {"value_attribute": {"min_length": "-1"}, "value_type": "STRING"},
            "value_attribute.min_length",
        ),
        ({"value_attribute": {"unit": 5}}, "value_attribute.unit"),
        ({"value_attribute": {"fraction_digits": 99}}, "value_attribute.fraction_digits"),
        ({"value_attribute": {"optional": "maybe"}}, "value_attribute.optional"),
    ],
)
async def test_an_invalid_entity_names_its_field(world: World, more, field):
    """The error names the invalid field."""
    if field is None:
        await world.admin().done("POST", "/entity", body("blank-enum", **more))
    else:
        await world.admin().refused(400, "POST", "/entity", body("wrong") | more, field=field)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"parent_identifier": "plain"}, "parent_identifier"),
        ({"parent_identifier": "event"}, "type"),
        ({"parent_identifier": "event", "type": "EVENT", "value_type": "OBJECT"}, "value_type"),
    ],
)
async def test_a_child_has_the_type_of_its_parent(world: World, more, field):
    """The parent must be an OBJECT of the same type, and the child must not."""
    await world.admin().ask("POST", "/entity", body("plain"))
    event = body("event", type="EVENT", value_type="OBJECT", access_mod=None)
    await world.admin().ask("POST", "/entity", event)
    await world.admin().refused(400, "POST", "/entity", body("child") | more, field=field)


async def test_attributes_of_a_property_are_set_as_a_whole(world: World):
    """New attributes replace the old ones and apply to later values."""
    admin, name = world.admin(), f"range-{uuid4().hex[:8]}"
    made = await admin.done("POST", "/entity", body(name, value_attribute={"min": "0"}))
    path, key = f"/entity/{made['id']}", f"system.integration.{name}"
    await admin.done("PUT", path, {"name": "Range", "value_attribute": {"max": "5", "unit": "C"}})
    meta = await admin.done("GET", f"{path}/meta")
    assert (meta["name"], meta["value_attribute"]) == ("Range", {"max": 5, "unit": "C"})
    await admin.done("POST", UPDATE, {"exchange": {key: -1}})
    await admin.refused(400, "POST", UPDATE, {"exchange": {key: 6}})
    for wrong, code in (
        ({"min": 9, "max": 1}, "entity_attribute_min_greater_than_max"),
        ({"min": "x"}, "entity_attribute_min_invalid"),
    ):
        await admin.refused(400, "PUT", path, {"name": "R", "value_attribute": wrong}, code=code)
    lengths = {"min_length": 9, "max_length": 1}
    wanted = body("lengths", value_type="STRING", value_attribute=lengths)
    code = "entity_attribute_min_length_greater_than_max_length"
    await admin.refused(400, "POST", "/entity", wanted, code=code)


async def test_a_rename_changes_the_name_alone(world: World):
    """The key stays, and an invalid name is rejected."""
    made = await world.admin().done("POST", "/entity", body("renamed"))
    await world.admin().done("PUT", f"/entity/{made['id']}", {"name": "New name"})
    meta = await world.admin().done("GET", f"/entity/{made['id']}/meta")
    assert (meta["name"], meta["key"]) == ("New name", made["key"])
    for name in ("", " ", None, 5):
        await world.admin().refused(
            400, "PUT", f"/entity/{made['id']}", {"name": name}, field="name"
        )
    await world.admin().refused(404, "PUT", "/entity/81920000", {"name": "x"})
    await world.admin().refused(400, "PUT", "/entity/x", {"name": "x"}, field="entity_id")


async def test_only_custom_entities_are_deleted(world: World):
    """Values and grants are deleted with them; other entities and unknown ids are ignored."""
    thing = await world.add_direct("C-1")
    made = await world.admin().done("POST", "/entity", body("gone", value_type="OBJECT"))
    child = await world.admin().done("POST", "/entity", body("x", parent_identifier="gone"))
    await world.admin().done("POST", UPDATE, {"exchange": {child["key"]: 1}})
    world.grants.give(7, ResourceType.ENTITY, made["id"], child["id"])
    ids = [made["id"], str(thing * 8192 + 1), "5"]
    await world.admin().done("POST", "/entity/delete", {"entity_ids": ids})
    await world.admin().refused(404, "GET", f"/entity/{child['id']}/meta")
    assert world.grants.held(7) == set()
    assert await world.foundation.values.find_values([int(made["id"]) // 8192]) == {}
    assert await world.device("C-1") is not None
    await world.admin().refused(400, "POST", UPDATE, {"exchange": {child["key"]: 1}})
    again = await world.admin().done("POST", "/entity", body("gone"))
    assert again["id"] != made["id"]


async def test_every_user_sees_custom_entities(world: World):
    """A user without a grant sees custom entities."""
    made = await world.admin().done("POST", "/entity", body("shared"))
    await world.user(8).done("POST", UPDATE, {"exchange": {made["key"]: 4}})
    status = await world.user(8).done("GET", f"/entity/{made['id']}/status")
    assert status["value"] == 4


async def test_a_custom_service_without_a_flow_is_rejected(world: World):
    """A call of a custom service without a flow is rejected."""
    service = body("svc", type="SERVICE", value_type="OBJECT", access_mod=None)
    made = await world.admin().done("POST", "/entity", service)
    call = {"exchange": {made["key"]: {}}}
    await world.admin().refused(
        400, "POST", "/entity/service/call", call, code="method_not_allowed"
    )


@pytest.mark.parametrize(
    ("method", "path", "sent", "needed"),
    [
        ("POST", "/entity", body("x"), {Function.ENTITY_CUSTOM_ADD}),
        (
            "PUT",
            "/entity/5",
            {"name": "x"},
            {Function.ENTITY_CUSTOM_EDIT, Function.ENTITY_DATA_EDIT},
        ),
        ("POST", "/entity/delete", {"entity_ids": []}, {Function.ENTITY_CUSTOM_DELETE}),
    ],
)
async def test_operations_need_their_function(world: World, method, path, sent, needed):
    """One function suffices; all others together do not."""
    others = [function for function in Function if function not in needed]
    await world.user(7, *others).refused(403, method, path, sent, code="forbidden_permission")
    for function in needed:
        answer = await world.user(7, function).ask(method, path, sent)
        assert answer.json().get("error_message") != "user does not have permission"


async def test_values_of_a_write_only_custom_property_are_not_readable(world: World):
    admin = world.admin()
    secret = "s3cret-" + uuid4().hex
    made = await admin.done(
        "POST", "/entity", body("pin", access_mod="W", value_type="STRING", value_attribute={})
    )
    await admin.done("POST", UPDATE, {"exchange": {made["key"]: secret}})

    for method, path, sent in (
        ("GET", f"/entity/{made['id']}/status", None),
        ("POST", "/entity/history/search", {"entity_id": made["id"]}),
        ("POST", "/entity/history/aggregate", {"entity_id": made["id"], "aggregate_type": "LAST"}),
        ("POST", "/entity/search", {"customized": True, "keyword": "pin"}),
        ("GET", f"/entity/export?ids={made['id']}", None),
    ):
        answer = await admin.ask(method, path, sent)
        assert answer.status_code == 200
        assert secret not in answer.text, path
    for name in await world.database.list_collection_names():
        assert secret not in repr(await world.database[name].find().to_list(None)), name
