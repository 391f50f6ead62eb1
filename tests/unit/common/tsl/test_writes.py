"""Incremental writes: access, partial STRUCTs, and what the thing has now."""

import pytest

from libs.common.tsl import Fault, InvalidValues, generic_tsl
from tests.unit.common.tsl.documents import prop, tsl

SETTINGS = [
    prop("r"),
    prop("w", "INT", "W", max=5),
    prop("s", "STRUCT", "RW"),
    prop("s.a", "INT", "RW", max=9),
    prop("s.b", "STRING", "RW", required=True),
    prop("s.r", "INT", "R"),
    prop("s.t", "STRUCT", "RW"),
    prop("s.t.x", "BOOL", "RW"),
    prop("s.t.y", "BOOL", "RW"),
    prop("s.l", "ARRAY", "RW"),
    prop("s.l._item", "STRUCT", "RW"),
    prop("s.l._item.n", "INT", "RW"),
    prop("s.l._item.seen", "INT", "R"),
]


def written(current=None, **properties):
    return tsl(*SETTINGS).check_write(properties, current or {})


def faults(current=None, **properties) -> list[Fault]:
    with pytest.raises(InvalidValues) as refused:
        written(current, **properties)
    return refused.value.faults


def test_only_writable_properties_are_written():
    """W and RW can be, R and unknown ones cannot; every fault is named."""
    assert written(w=1) == {"w": 1}
    assert faults(r=1, x=1, w=6) == [
        Fault("properties.r", "is read-only"),
        Fault("properties.x", "is not known"),
        Fault("properties.w", "must be at most 5"),
    ]


def test_current_values_are_shown_in_writable_form():
    """Read-only, unknown and invalid values are omitted at every level."""
    now = {
        "r": 1,
        "x": 1,
        "w": 6,
        "s": {"a": 10, "b": "x", "r": 1, "t": {"x": True}, "l": [{"n": 1, "seen": 2}]},
    }
    shown = tsl(*SETTINGS).writable(now)
    assert shown == {"s": {"b": "x", "t": {"x": True}, "l": [{"n": 1}]}}
    assert written(**shown) == shown
    assert tsl(*SETTINGS).writable({"w": 5, "s": {"r": 1}}) == {"w": 5}


def test_an_empty_write_is_refused():
    """There is nothing to send."""
    assert faults() == [Fault("properties", "must not be empty")]


def test_a_partial_struct_is_completed_from_current_values():
    """This applies at every level."""
    current = {"s": {"a": 1, "b": "x", "t": {"x": True, "y": True}}}

    assert written(current, s={"a": 2, "t": {"x": False}}) == {
        "s": {"a": 2, "b": "x", "t": {"x": False, "y": True}}
    }


def test_a_struct_without_a_required_member_is_rejected():
    """The member is neither given nor known."""
    assert faults(s={"a": 1}) == [Fault("properties.s.b", "is required")]


def test_read_only_members_are_neither_written_nor_sent_back():
    """Given they are a fault, current they are left out."""
    assert written({"s": {"b": "x", "r": 1}}, s={"a": 1}) == {"s": {"b": "x", "a": 1}}
    assert faults(s={"b": "x", "r": 1}) == [Fault("properties.s.r", "is read-only")]
    assert faults(s={"b": "x", "l": [{"seen": 1}]}) == [
        Fault("properties.s.l[0].seen", "is read-only")
    ]


def test_an_array_in_force_is_sent_back_without_its_read_only_members():
    """Read-only members of elements must not cost the whole array."""
    current = {"s": {"b": "x", "l": [{"n": 1, "seen": 5}]}}

    assert written(current, s={"a": 1}) == {"s": {"a": 1, "b": "x", "l": [{"n": 1}]}}


def test_an_array_is_replaced():
    """Elements are not merged."""
    current = {"s": {"b": "x", "l": [{"n": 1}, {"n": 2}]}}

    assert written(current, s={"l": [{"n": 3}]})["s"]["l"] == [{"n": 3}]


@pytest.mark.parametrize(
    "stale",
    [
        {"a": 10},
        {"a": None},
        {"a": "text"},
        {"gone": 1},
        {"t": 1},
        {"t": {"x": "text"}},
        {"l": [{"n": "text"}]},
        {"l": {}},
    ],
)
def test_stale_values_never_make_a_write_fail(stale):
    """Stored under an older TSL, they are left out."""
    assert written({"s": {"b": "x"} | stale}, s={"b": "y"}) == {"s": {"b": "y"}}


@pytest.mark.parametrize("current", [None, 5, [], "text"])
def test_a_struct_that_is_no_struct_now_is_written_anew(current):
    """Whatever is in its place counts for nothing."""
    assert written({"s": current}, s={"b": "y"}) == {"s": {"b": "y"}}


@pytest.mark.parametrize(
    ("given", "path", "reason"),
    [
        (None, "", "must not be null"),
        (1, "", "must be an object"),
        ({"b": "x", "a": 10}, ".a", "must be at most 9"),
        ({"b": "x", "t": {"x": 1}}, ".t.x", "must be true or false"),
        ({"b": "x", "no": 1}, ".no", "is not known"),
    ],
)
def test_given_values_are_checked(given, path, reason):
    """A fault has the path of its value."""
    assert faults({"s": {"b": "x"}}, s=given) == [Fault(f"properties.s{path}", reason)]


def test_nothing_is_changed_in_place():
    """The caller's object stays unchanged."""
    current = {"s": {"b": "x", "t": {"x": True}}}
    given = {"s": {"t": {"y": False}}}

    tsl(*SETTINGS).check_write(given, current)

    assert current == {"s": {"b": "x", "t": {"x": True}}}
    assert given == {"s": {"t": {"y": False}}}


def test_a_long_key_is_cut_in_its_fault():
    """An error answer stays short."""
    assert len(faults(**{"k" * 10_000: 1})[0].path) < 200


@pytest.mark.parametrize("given", [None, [], [{"w": 1}], "w", 1, True], ids=repr)
@pytest.mark.parametrize("thing", [tsl(*SETTINGS), generic_tsl()], ids=["declared", "open"])
def test_only_an_object_can_be_written(thing, given):
    """The fault concerns the whole value, also for a list of properties."""
    with pytest.raises(InvalidValues) as refused:
        thing.check_write(given, {})
    assert refused.value.faults == [Fault("properties", "must be an object")]
