"""The open TSL: everything that can be stored, and nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.tsl import (
    Fault,
    InvalidValues,
    MalformedReport,
    UnknownService,
    generic_tsl,
    to_wire,
)
from libs.common.tsl.limits import (
    MAX_DEPTH,
    MAX_KEY_LENGTH,
    MAX_MEMBERS,
    MAX_TEXT_LENGTH,
    MAX_TIME_MS,
)

OPEN = generic_tsl()
INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = INT64 | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
KEYS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00.$"), min_size=1, max_size=9
).filter(lambda key: not key.isspace())
VALUES = st.recursive(
    st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
BAD_KEYS = ["", " \t", "$a", "a.b", "a\x00", "\ud800", "k" * (MAX_KEY_LENGTH + 1)]
BAD_VALUES = [
    (None, "must not be null"),
    (2**63, "must fit in 64 bits"),
    (-(2**63) - 1, "must fit in 64 bits"),
    (float("nan"), "must be finite"),
    (float("-inf"), "must be finite"),
    ("\ud800", "must not contain NUL or half a surrogate pair"),
    ("a\x00", "must not contain NUL or half a surrogate pair"),
    ("t" * (MAX_TEXT_LENGTH + 1), "must have at most 65536 characters"),
    (b"x", "must be a JSON value"),
]


def nested(levels: int) -> object:
    """A number within so many lists, all of them together `levels` deep."""
    value: object = 1
    for _ in range(levels - 1):
        value = [value]
    return value


def report(**fields):
    return OPEN.decode_report(json.dumps(fields).encode())


def refused(call, *arguments) -> list[Fault]:
    with pytest.raises(InvalidValues) as error:
        call(*arguments)
    return error.value.faults


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_storable_values_are_kept_as_they_are_typed(values):
    """Integers stay integers and floats floats, in reports, events, writes and services."""
    found = report(properties=values)
    event = OPEN.decode_event(json.dumps({"eventId": "e", "outputs": values}).encode())

    assert found.faults == []
    assert repr(found.properties) == repr(values)
    assert event.outputs == OPEN.check_write(values, {}) == values
    assert OPEN.check_service_inputs("s", values) == values
    assert OPEN.check_service_outputs("s", values) == values


@pytest.mark.parametrize(("value", "reason"), BAD_VALUES)
def test_an_unstorable_value_is_a_fault(value, reason):
    """The fault has the path to it, at every level; valid properties stay."""
    values = {"good": 1, "bad": value, "deep": {"a": [1, {"b": value}]}}

    assert OPEN.check_report(values) == (
        {"good": 1},
        [Fault("properties.bad", reason), Fault("properties.deep.a[1].b", reason)],
    )


@pytest.mark.parametrize("key", BAD_KEYS)
def test_a_key_that_cannot_be_stored_is_a_fault(key):
    """At the top and within."""
    good, faults = OPEN.check_report({"good": 1, key: 1, "deep": {"a": {key: 1}}})

    assert good == {"good": 1}
    assert [fault.path for fault in faults] == [
        f"properties.{key[:MAX_KEY_LENGTH]}",
        f"properties.deep.a.{key[:MAX_KEY_LENGTH]}",
    ]


@pytest.mark.parametrize("key", ["é", "a b", "a$", "-", "k" * MAX_KEY_LENGTH])
def test_other_keys_are_fine(key):
    """Devices without a document name things as they like."""
    assert OPEN.check_report({key: {key: 1}}) == ({key: {key: 1}}, [])


def test_depth_is_bounded():
    """Sixteen levels, the property included."""
    good, faults = OPEN.check_report({"a": nested(MAX_DEPTH), "b": nested(MAX_DEPTH + 1)})

    assert good == {"a": nested(MAX_DEPTH)}
    assert faults[0].reason == "is nested more than 16 levels deep"
    assert OPEN.check_report({"a": nested(20_000)})[0] == {}


def test_size_is_bounded():
    """A property that exceeds it is left out; smaller ones around it are kept."""
    most = [1] * (MAX_MEMBERS - 3)
    good, faults = OPEN.check_report({"a": 1, "b": [1] * MAX_MEMBERS, "c": most, "d": 1, "e": 1})

    assert good == {"a": 1, "c": most, "d": 1}
    assert faults == [
        Fault(f"properties.{key}", "exceeds 2000 values in total") for key in ("b", "e")
    ]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"properties": {}}',
        b'{"properties": null}',
        b'{"properties": {"a": NaN}}',
        b'{"properties": {"a": "\\ud800 "}}',
        b'{"ts": -1, "properties": {"a": 1}}',
        b'{"ts": 253402300800000, "properties": {"a": 1}}',
        b'{"properties": {"a": %s}}' % (b"[" * 100_000 + b"]" * 100_000),
    ],
)
def test_a_message_of_another_shape_is_malformed(raw):
    """As for a declared TSL."""
    with pytest.raises(MalformedReport):
        OPEN.decode_report(raw)


@pytest.mark.parametrize("value", [b"1e999", b"9" * 5000, b'"\xff"', b"null"])
def test_a_value_that_cannot_be_read_spoils_no_other(value):
    """As for a declared TSL."""
    found = OPEN.decode_report(b'{"ts": 3, "properties": {"a": %s, "b": 1}}' % value)

    assert (found.ts, found.properties) == (3, {"b": 1})
    assert [fault.path for fault in found.faults] == ["properties.a"]


def test_time_is_read():
    """Epoch milliseconds, or none."""
    assert report(ts=MAX_TIME_MS, properties={"a": 1}).ts == MAX_TIME_MS
    assert report(properties={"a": 1}).ts is None


def test_an_event_may_have_any_id_and_no_outputs():
    """The id is a key."""
    event = OPEN.decode_event(b'{"ts": 5, "eventId": "door open"}')

    assert (event.ts, event.event_id, event.outputs) == (5, "door open", {})


@pytest.mark.parametrize("key", BAD_KEYS)
def test_ids_that_are_no_keys_are_refused(key):
    """An event is malformed, a service unknown."""
    with pytest.raises(MalformedReport):
        OPEN.decode_event(json.dumps({"eventId": key}).encode())
    with pytest.raises(UnknownService):
        OPEN.check_service_inputs(key, None)
    with pytest.raises(UnknownService):
        OPEN.check_service_outputs(key, None)


def test_bad_outputs_and_inputs_are_refused_whole():
    """With a fault for each."""
    assert refused(OPEN.decode_event, b'{"eventId": "e", "outputs": {"a": null, "b": 1}}') == [
        Fault("outputs.a", "must not be null")
    ]
    assert [fault.path for fault in refused(OPEN.check_service_inputs, "s", {"$": 1})] == [
        "inputs.$"
    ]
    assert refused(OPEN.check_service_outputs, "s", {"a": None})[0].path == "outputs.a"
    assert OPEN.check_service_inputs("s", None) == {}


def test_objects_are_merged_with_the_current_value():
    """Merging applies at every level; other values are replaced."""
    current = {"a": {"x": 1, "in": {"y": 2, "z": 3}, "l": [1]}, "other": 1}
    given = {"a": {"in": {"z": 4}, "l": [2]}}

    assert OPEN.check_write(given, current) == {"a": {"x": 1, "in": {"y": 2, "z": 4}, "l": [2]}}
    assert OPEN.check_write({"a": 1}, current) == {"a": 1}
    assert OPEN.check_write({"a": {"n": 1}}, {"a": [1]}) == {"a": {"n": 1}}
    assert current == {"a": {"x": 1, "in": {"y": 2, "z": 3}, "l": [1]}, "other": 1}


def test_stale_values_never_make_a_write_fail():
    """Current values that are invalid today are omitted."""
    assert OPEN.check_write({"a": {"x": 1}}, {"a": {"y": None, "$z": 1}}) == {"a": {"x": 1}}


def test_a_write_names_every_fault():
    """Nothing is sent when one is wrong."""
    assert refused(OPEN.check_write, {"a": {"b": None}, "c": None}, {"a": {"x": 1}}) == [
        Fault("properties.a.b", "must not be null"),
        Fault("properties.c", "must not be null"),
    ]
    assert refused(OPEN.check_write, {}, {}) == [Fault("properties", "must not be empty")]


def test_an_object_cannot_grow_beyond_bounds_write_by_write():
    """The bounds apply to the merged object."""
    current = {"a": {f"k{at}": at for at in range(MAX_MEMBERS - 1)}}

    assert refused(OPEN.check_write, {"a": {"more": 1}}, current)[0].path == "properties.a"


def test_every_key_is_writable_and_nothing_is_declared():
    """Its document is that of version v1.0 with empty lists."""
    assert OPEN.writable({"anything": {"a": 1}}) == {"anything": {"a": 1}}
    assert (OPEN.property("a"), OPEN.event("a"), OPEN.service("a")) == (None, None, None)
    assert to_wire(OPEN.document) == {
        "version": "v1.0",
        "properties": [],
        "events": [],
        "services": [],
    }
