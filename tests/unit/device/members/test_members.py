"""What a TSL has for entities."""

from typing import Any

import pytest

from libs.common.tsl import parse_document
from services.device.members.members import (
    Member,
    MemberSet,
    build_members,
    convert_stored_value,
    number_keys,
)


def members(**document: Any) -> MemberSet:
    parsed = parse_document({"version": "v1", **document})
    marks = number_keys(parsed)
    assert len(set(marks)) == len(marks)
    return build_members(parsed, {mark: number for number, mark in enumerate(marks, 1)})


def spec(key: str, kind: str, mode: str = "RW", **more: Any) -> dict[str, Any]:
    return {"id": key, "accessMode": mode, "dataSpec": {"dataType": kind, **more}}


@pytest.mark.parametrize(
    ("kind", "more", "value_type", "attribute"),
    [
        ("INT", {"validator": {"min": 1, "max": 9}}, "LONG", {"min": 1, "max": 9}),
        ("LONG", {"unitName": "s"}, "LONG", {"unit": "s"}),
        ("DATE", {}, "LONG", {}),
        ("FLOAT", {"fractionDigits": 2}, "DOUBLE", {"fraction_digits": 2}),
        ("DOUBLE", {"validator": {"min": 0}}, "DOUBLE", {"min": 0}),
        ("BOOL", {}, "BOOLEAN", {}),
        (
            "STRING",
            {"validator": {"minSize": 1, "maxSize": 4}},
            "STRING",
            {"min_length": 1, "max_length": 4},
        ),
        ("STRING", {"encoding": "HEX"}, "STRING", {"format": "HEX"}),
        ("STRING", {"encoding": "BASE64"}, "BINARY", {}),
        ("ENUM", {"mapping": {"0": "Off", "1": "On"}}, "LONG", {"enum": {"0": "Off", "1": "On"}}),
        ("ENUM", {"mapping": {"-1": "Under"}}, "LONG", {"enum": {"-1": "Under"}}),
        ("ENUM", {"mapping": {"01": "A"}}, "STRING", {"enum": {"01": "A"}}),
        ("ENUM", {"mapping": {"1": "A", "x": "B"}}, "STRING", {"enum": {"1": "A", "x": "B"}}),
        (
            "ARRAY",
            {"elementDataType": "INT", "validator": {"maxSize": 3}},
            "OBJECT",
            {},
        ),
    ],
)
def test_types_and_attributes(kind, more, value_type, attribute):
    """What a console shows and checks is what the TSL says."""
    (member,) = members(properties=[spec("p", kind, **more)]).members
    assert (member.value_type, member.attribute) == (value_type, attribute)


def test_there_are_two_levels():
    """Leaves of a STRUCT are its children; a STRUCT inside and what an ARRAY holds are none."""
    found = members(
        properties=[
            spec("s.in", "STRUCT"),
            spec("s.in.leaf", "INT", "R"),
            spec("s", "STRUCT"),
            spec("s.list", "ARRAY"),
            spec("s.list._item", "STRUCT"),
            spec("s.list._item.x", "INT"),
        ]
    )
    assert [(member.path, member.parent, member.value_type) for member in found.members] == [
        ("s", None, "OBJECT"),
        ("s.in.leaf", "s", "LONG"),
        ("s.list", "s", "OBJECT"),
    ]
    assert [member.path for member in found.list_in_tree_order()] == ["s", "s.in.leaf", "s.list"]


def test_services_and_events_are_objects():
    """A service has its inputs for children, an event its outputs; STRUCTs inside are leaves."""
    found = members(
        events=[{"id": "e", "outputs": [spec("e.level", "INT")]}],
        services=[
            {
                "id": "go",
                "name": "Go",
                "inputs": [
                    spec("go.to", "STRUCT"),
                    spec("go.to.x", "INT", validator={"required": True}),
                    spec("go.fast", "BOOL"),
                ],
                "outputs": [spec("go.result", "INT")],
            }
        ],
    )
    assert [
        (member.path, member.type, member.access_mod, member.attribute) for member in found.members
    ] == [
        ("e", "EVENT", "W", {}),
        ("e.level", "EVENT", "W", {}),
        ("go", "SERVICE", "W", {}),
        ("go.fast", "SERVICE", "W", {"optional": True}),
        ("go.to.x", "SERVICE", "W", {}),
    ]


def test_one_id_for_three_things():
    """Keys differ, and a number does not depend on what else has the id."""
    three: dict[str, Any] = {
        "properties": [spec("door", "BOOL", "R")],
        "events": [{"id": "door", "outputs": [spec("door.angle", "INT")]}],
        "services": [{"id": "door", "inputs": [spec("door.angle", "INT")]}],
    }
    found = members(**three)
    assert {member.path: member.type for member in found.members} == {
        "door": "PROPERTY",
        "door@event": "EVENT",
        "door@event.angle": "EVENT",
        "door@service": "SERVICE",
        "door@service.angle": "SERVICE",
    }
    alone = members(events=three["events"])
    assert [member.number_key for member in alone.members] == ["EVENT:door", "EVENT:door.angle"]
    assert {member.number_key for member in alone.members} < {
        member.number_key for member in found.members
    }


def test_a_member_without_a_number_is_left_out():
    """It has no id that could be given to anybody."""
    document = parse_document({"version": "v1", "properties": [spec("p", "INT")]})
    assert build_members(document, {}).members == ()


@pytest.mark.parametrize(
    ("access", "kind", "writable"),
    [
        ("R", "PROPERTY", False),
        ("W", "PROPERTY", True),
        ("RW", "PROPERTY", True),
        ("W", "SERVICE", False),
        (None, "PROPERTY", False),
    ],
)
def test_what_can_be_written(access, kind, writable):
    """Properties with a W; inputs of a service are sent, not written."""
    member = Member(number=1, path="p", name="p", type=kind, value_type="LONG", access_mod=access)
    assert member.writable is writable


def test_an_enum_shows_a_number_where_its_keys_are_numbers():
    """Values are stored under their keys, which are texts."""
    member = Member(number=1, path="p", name="p", type="PROPERTY", value_type="LONG")
    assert convert_stored_value(member, "-1") == -1
    assert convert_stored_value(member, 5) == 5


@pytest.mark.parametrize(
    "stored", ["abc", "", "01", "1.5", "²", pytest.param("9" * 5000, id="long")]
)
def test_a_text_from_before_a_type_changed_stays_one(stored):
    """Another version of the TSL may have had a text where this one has a number."""
    member = Member(number=1, path="p", name="p", type="PROPERTY", value_type="LONG")
    assert convert_stored_value(member, stored) == stored


def test_what_is_in_a_write_only_struct_or_array_is_write_only():
    found = members(
        properties=[
            spec("vault", "STRUCT", "W"),
            spec("vault.door", "STRUCT", "RW"),
            spec("vault.door.code", "INT", "RW"),
            spec("codes", "ARRAY", "RW"),
            spec("codes._item", "INT", "W"),
            spec("wifi", "STRUCT", "RW"),
            spec("wifi.ssid", "STRING", "RW"),
            spec("wifi.key", "STRING", "W"),
        ]
    )

    hidden = [member.path for member in found.members if member.write_only]
    assert hidden == ["codes", "vault", "vault.door.code", "wifi.key"]


def test_elements_are_shown_without_their_write_only_members():
    """Such a value was stored under another TSL."""
    (users,) = members(
        properties=[
            spec("users", "ARRAY", "RW"),
            spec("users._item", "STRUCT", "RW"),
            spec("users._item.name", "STRING", "RW"),
            spec("users._item.door", "STRUCT", "RW"),
            spec("users._item.door.code", "STRING", "W"),
            spec("users._item.door.side", "STRING", "RW"),
        ]
    ).members

    shown = convert_stored_value(users, [{"name": "ann", "door": {"code": "8642", "side": "left"}}])
    assert shown == [{"name": "ann", "door": {"side": "left"}}]
