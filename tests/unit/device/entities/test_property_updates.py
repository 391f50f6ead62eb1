"""Requested values and service calls, grouped by thing."""

from typing import Any

import pytest

from libs.common.errors import InvalidInput
from libs.common.tsl import InvalidValues, compile_tsl, parse_document
from services.device.entities.property_updates import collect_calls, collect_updates
from services.device.members.entity import Entity, EntityThing
from services.device.members.members import Member, MemberSet
from services.device.members.values import error_with_all_faults

TO = {"id": "go.to", "dataSpec": {"dataType": "LONG", "validator": {"required": True}}}
GO = compile_tsl(
    parse_document(
        {
            "version": "v1",
            "properties": [],
            "events": [],
            "services": [{"id": "go", "inputs": [TO]}],
        }
    )
)


def member(number: int, path: str, **more: Any) -> Member:
    """Return a member, by default a writable property."""
    fields: dict[str, Any] = {
        "type": "PROPERTY",
        "value_type": "LONG",
        "access_mod": "RW",
        "name": path,
        "parent": path.rpartition(".")[0] or None,
    }
    return Member(number=number, path=path, **(fields | more))


def service(number: int, path: str, **more: Any) -> Member:
    """Return a service, or an input of one."""
    return member(number, path, type="SERVICE", **more)


def thing(thing_id: int, *members: Member) -> dict[str, Entity]:
    """Return the entities of a device by key."""
    found = EntityThing(
        id=thing_id,
        tenant="default",
        integration="direct",
        identifier=f"d{thing_id}",
        device=True,
        name="x",
        created_at=0,
        updated_at=0,
        members=MemberSet(members),
    )
    entities = [Entity(found, one) for one in members]
    return {entity.key: entity for entity in entities}


def test_values_are_grouped_by_thing():
    """Children are merged into their object; read-only entities are ignored."""
    entities = thing(
        1,
        member(1, "a"),
        member(2, "s", value_type="OBJECT"),
        member(3, "s.x"),
        member(4, "s.y.z", parent="s"),
        member(5, "r", access_mod="R"),
    ) | thing(2, member(1, "a"))
    keys = {
        "direct.device.d1.a": 1,
        "direct.device.d1.s.x": "2",
        "direct.device.d1.s.y.z": 3,
        "direct.device.d1.r": 4,
        "direct.device.d2.a": 5,
        "direct.device.d3.a": 6,
    }
    found = collect_updates(keys, entities)
    assert [(entry.thing.id, entry.values) for entry in found] == [
        (1, {"a": 1, "s": {"x": 2, "y": {"z": 3}}}),
        (2, {"a": 5}),
    ]


def test_an_empty_object_writes_nothing():
    """Consoles send an empty object for the parent of the changed property."""
    entities = thing(1, member(1, "s", value_type="OBJECT"))
    with pytest.raises(InvalidInput):
        collect_updates({"direct.device.d1.s": {}}, entities)


def test_services_are_named_by_themselves_or_by_their_inputs():
    """A service is called once, whether it or its inputs are named."""
    entities = thing(
        1,
        service(1, "go@service", value_type="OBJECT"),
        service(2, "go@service.to", parent="go@service"),
        service(3, "go@service.by", parent="go@service", attribute={"optional": True}),
        service(4, "stop", value_type="OBJECT"),
    )
    key = "direct.device.d1"
    found = collect_calls(
        {f"{key}.go@service.to": "1", f"{key}.go@service": {"by": 2}, f"{key}.stop": {}}, entities
    )
    assert [(entry.service_id, entry.inputs) for entry in found] == [
        ("go", {"to": 1, "by": 2}),
        ("stop", {}),
    ]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"go": {}}, "null"),
        ({"go": {"to": 1, "else": 2}}, "not_match_type"),
        ({"go": 5}, "not_match_type"),
        ({"go.to": None}, "null"),
    ],
)
def test_wrong_inputs_have_codes(given, code):
    """Each invalid input has a fault with a code."""
    entities = thing(1, service(1, "go", value_type="OBJECT"), service(2, "go.to", parent="go"))
    exchange = {f"direct.device.d1.{key}": value for key, value in given.items()}
    (calling,) = collect_calls(exchange, entities)
    with pytest.raises(InvalidValues) as wrong:
        GO.check_service_inputs(calling.service_id, calling.inputs)
    refused = error_with_all_faults("exchange", calling.to_entity_faults(wrong.value.faults))
    assert refused.code == "multiple_error"
    assert refused.detail[0].error_code == f"entity_value_{code}"


def test_null_leaves_out_an_optional_input():
    """Null leaves out an optional input; the TSL rejects it elsewhere."""
    entities = thing(1, member(1, "a", attribute={"optional": True}), member(2, "b"))
    key = "direct.device.d1"
    (found,) = collect_updates({f"{key}.a": None, f"{key}.b": None}, entities)
    assert found.values == {"b": None}
