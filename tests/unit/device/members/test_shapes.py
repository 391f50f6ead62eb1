"""Shapes: paths that devices of the product `generic` have reported."""

import pytest

from libs.common.things import MAX_TSL_MEMBER_NUMBER
from services.device.members.shapes import (
    MAX_PATH_LENGTH,
    Shape,
    extend_shape,
    list_reported_paths,
    shape_id,
    shape_members,
)


def of(**properties: object) -> Shape:
    return extend_shape({}, list_reported_paths(properties))


def test_types_are_those_of_the_values():
    """Objects are parents of their leaves, at whatever depth."""
    assert of(b=True, i=1, f=1.5, s="x", l=[1], o={"x": {"y": 2}}) == {
        "b": "BOOLEAN",
        "f": "DOUBLE",
        "i": "LONG",
        "l": "OBJECT",
        "o": "OBJECT",
        "o.x.y": "LONG",
        "s": "STRING",
    }


def test_the_order_of_a_report_does_not_matter():
    """Devices of a kind share one shape."""
    assert shape_id(of(a=1, b=2)) == shape_id(of(b=7, a=9))


def test_a_known_report_returns_the_same_shape_object():
    """The caller thereby knows that nothing has to be written."""
    shape = of(a=1.5, b="x")
    assert extend_shape(shape, list_reported_paths({"b": "y"})) is shape
    assert extend_shape(shape, list_reported_paths({"a": 1})) is shape
    assert extend_shape(shape, list_reported_paths({"b": 5})) is shape


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (1, 1.5, "DOUBLE"),
        (1.5, 1, "DOUBLE"),
        (1, True, "STRING"),
        (True, "x", "STRING"),
        ([1], 1, "STRING"),
    ],
)
def test_types_widen(first, second, expected):
    """A type that has been STRING once stays it: nothing flaps."""
    shape = extend_shape(of(v=first), list_reported_paths({"v": second}))
    assert shape == {"v": expected}
    assert extend_shape(shape, list_reported_paths({"v": first})) is shape


def test_new_paths_follow_and_numbers_stay():
    """A number is a place in the list, from 1."""
    shape = extend_shape(of(m=1), list_reported_paths({"z": 1, "a": 1, "m": 2.5}))
    members = shape_members(shape)
    assert {member.path: member.number for member in members.members} == {"m": 1, "a": 2, "z": 3}
    assert {member.access_mod for member in members.members} == {"RW"}


def test_children_know_their_parents():
    """The first part of a path is the parent, the last the name."""
    found = shape_members(of(gps={"at": {"lat": 1.5}})).by_path["gps.at.lat"]
    assert (found.parent, found.name) == ("gps", "lat")


def test_members_without_a_number_are_omitted():
    """Numbers and the length of keys are limited."""
    full = extend_shape({}, ((f"p{number}", "LONG") for number in range(MAX_TSL_MEMBER_NUMBER)))
    assert len(full) == MAX_TSL_MEMBER_NUMBER
    assert extend_shape(full, [("one more", "LONG")]) is full
    assert of(**{"x" * (MAX_PATH_LENGTH + 1): 1}) == {}
