"""Inputs and outputs of services, outputs of events."""

import json

import pytest

from libs.common.tsl import (
    Fault,
    InvalidValues,
    MalformedReport,
    UnknownService,
    generic_tsl,
)
from tests.unit.common.tsl.documents import param, sensor, tsl

DECLARED = sensor()
THING = tsl(*DECLARED["properties"], events=DECLARED["events"], services=DECLARED["services"])


def event(**fields):
    return THING.decode_event(json.dumps(fields).encode())


def test_outputs_are_keyed_by_short_names():
    """The id of the event is no part of them; numbers are as their type says."""
    found = event(ts=7, eventId="history", outputs={"at": 5, "temperature": 20})

    assert (found.ts, found.event_id) == (7, "history")
    assert repr(found.outputs) == repr({"at": 5, "temperature": 20.0})


@pytest.mark.parametrize(
    ("outputs", "path", "reason"),
    [
        (None, "at", "is required"),
        ({}, "at", "is required"),
        ({"history.at": 5, "at": 5}, "history.at", "is not known"),
        ({"at": None}, "at", "must not be null"),
        ({"at": 5, "temperature": 71}, "temperature", "must be at most 70"),
        ({"at": 5, "plan": [{"on": True}]}, "plan[0].hour", "is required"),
    ],
)
def test_wrong_outputs_of_an_event_are_named(outputs, path, reason):
    """An event is taken whole or not at all; bounds come by way of `ref`."""
    with pytest.raises(InvalidValues) as refused:
        event(eventId="history", outputs=outputs)

    assert refused.value.faults == [Fault(f"outputs.{path}", reason)]


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"{}",
        b'{"eventId": 1}',
        b'{"eventId": "unknown"}',
        b'{"eventId": "history", "outputs": []}',
        b'{"eventId": "history", "ts": -1, "outputs": {"at": 1}}',
        b'{"eventId": "history", "outputs": {"at": %s}}' % (b"[" * 100_000 + b"]" * 100_000),
    ],
)
def test_an_event_of_another_shape_is_malformed(raw):
    """So is one that the document does not declare."""
    with pytest.raises(MalformedReport):
        THING.decode_event(raw)


def test_an_event_without_outputs_needs_none():
    """An alarm says all by its id."""
    found = tsl(events=[{"id": "alarm"}]).decode_event(b'{"eventId": "alarm"}')

    assert (found.ts, found.outputs) == (None, {})


def test_inputs_and_outputs_of_a_service_are_separate():
    """Each is checked against its own parameters."""
    assert THING.check_service_inputs("fetch", {"from": 5, "most": 2}) == {"from": 5, "most": 2}
    assert THING.check_service_outputs("fetch", {"count": 2}) == {"count": 2}
    with pytest.raises(InvalidValues) as refused:
        THING.check_service_outputs("fetch", {"from": 5, "count": -1})

    assert refused.value.faults == [
        Fault("outputs.from", "is not known"),
        Fault("outputs.count", "must be at least 0"),
    ]


@pytest.mark.parametrize("given", [None, {}])
def test_no_inputs_are_fine_where_none_are_required(given):
    """Null and absent are the same."""
    assert THING.check_service_inputs("reboot", given) == {}
    with pytest.raises(InvalidValues) as refused:
        THING.check_service_inputs("fetch", given)

    assert refused.value.faults == [Fault("inputs.from", "is required")]


@pytest.mark.parametrize("given", [[], [1], "", "x", 0, False], ids=repr)
@pytest.mark.parametrize("thing", [THING, generic_tsl()], ids=["declared", "open"])
def test_inputs_and_outputs_are_objects(thing, given):
    """The fault names the whole; an empty list or text is not "none given"."""
    with pytest.raises(InvalidValues) as inputs:
        thing.check_service_inputs("fetch", given)
    with pytest.raises(InvalidValues) as outputs:
        thing.check_service_outputs("fetch", given)
    assert inputs.value.faults == [Fault("inputs", "must be an object")]
    assert outputs.value.faults == [Fault("outputs", "must be an object")]


def test_an_unknown_service_has_its_own_error():
    """It differs from the error of wrong inputs."""
    with pytest.raises(UnknownService) as refused:
        THING.check_service_inputs("explode", {"x": 1})
    with pytest.raises(UnknownService):
        THING.check_service_outputs("explode", None)

    assert refused.value.service_id == "explode"
    assert refused.value.faults[0].path == "serviceId"


def test_events_and_services_are_looked_up():
    """Undeclared ones are None."""
    assert THING.event("history").type == "INFO"
    assert THING.service("fetch").call_type == "SYNC"
    assert THING.event("fetch") is None
    assert THING.service("history") is None


def test_nested_inputs_are_objects():
    """Members of a STRUCT lie inside of it, as in a report."""
    inputs = [param("s.a", "STRUCT"), param("s.a.b", "INT", required=True)]
    thing = tsl(services=[{"id": "s", "inputs": inputs}])

    assert thing.check_service_inputs("s", {"a": {"b": 1}}) == {"a": {"b": 1}}
    with pytest.raises(InvalidValues) as refused:
        thing.check_service_inputs("s", {"a": {}})

    assert refused.value.faults == [Fault("inputs.a.b", "is required")]
