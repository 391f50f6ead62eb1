"""Keys and ids of entities."""

import pytest

from libs.common import things
from libs.common.things import KeyParts


@pytest.mark.parametrize(("thing", "number"), [(1, 0), (1_000_000, 1), (2**40 - 1, 8191)])
def test_an_entity_id_is_its_thing_and_its_number(thing: int, number: int):
    """Both can be told from it, and it is below 2^53 for every thing."""
    entity = things.entity_id(thing, number)
    assert (things.get_entity_thing_id(entity), things.get_member_number(entity)) == (thing, number)
    assert entity < 2**53


@pytest.mark.parametrize(
    ("key", "parts", "thing_key"),
    [
        ("direct.device.SN1.t", KeyParts("direct", "SN1", "t"), "direct.device.SN1"),
        ("a-b.device.SN_1.s.x.y", KeyParts("a-b", "SN_1", "s.x.y"), "a-b.device.SN_1"),
        ("ping.integration.go", KeyParts("ping", None, "go"), "ping.integration"),
        ("ping.integration.go.ip", KeyParts("ping", None, "go.ip"), "ping.integration"),
        ("device.device.device.d", KeyParts("device", "device", "d"), "device.device.device"),
    ],
)
def test_a_key_is_parsed_and_built(key: str, parts: KeyParts, thing_key: str):
    """Each key has exactly one reading."""
    assert things.split_entity_key(key) == parts
    assert parts.thing_key == thing_key
    assert things.member_key(parts.thing_key, parts.path) == key


@pytest.mark.parametrize(
    "key",
    [
        "",
        "a",
        "a.device",
        "a.device.SN",
        "a.device.SN.",
        "a.device..t",
        ".device.SN.t",
        "a.integration",
        "a.integration.",
        "a.other.SN.t",
        "....",
        "a:b",
    ],
)
def test_an_invalid_key_is_none(key: str):
    """A client may send any text."""
    assert things.split_entity_key(key) is None


def test_a_custom_entity_is_its_thing():
    """Its key is that of the thing, without a path behind it."""
    assert things.member_key("system.integration.counter", "") == "system.integration.counter"


def test_reported_values_by_path():
    """Members of objects at every level; arrays stay whole; empty objects have no value."""
    properties = {"t": 1, "s": {"a": None, "b": {"c": [1, {"d": 2}]}, "e": {}}, "l": []}
    assert things.flatten_properties(properties) == {
        "t": 1,
        "s.a": None,
        "s.b.c": [1, {"d": 2}],
        "l": [],
    }
