"""Property keys name values where they differ from ids; the document answers both as imported."""

import random

import msgspec
import pytest

from libs.common.tsl import (
    TslInvalid,
    compile_tsl,
    ids_from_keys,
    keys_from_ids,
    parse_document,
    plausible_params,
    plausible_properties,
    to_wire,
)
from tests.unit.common.tsl.documents import document, param, prop

KEYED = document(
    prop("temp", "FLOAT") | {"propertyKey": "temperature"},
    prop("cfg", "STRUCT", "RW") | {"propertyKey": "config"},
    prop("cfg.iv", "INT", "RW") | {"propertyKey": "interval"},
    prop("cfg.mode", "INT", "RW") | {"propertyKey": "cfg.mode"},
    prop("cfg.plan", "ARRAY", "RW") | {"propertyKey": "config.schedule"},
    prop("cfg.plan._item", "STRUCT", "RW"),
    prop("cfg.plan._item.h", "INT", "RW") | {"propertyKey": "hour"},
    prop("pin", "STRING", "W") | {"propertyKey": "secret"},
    events=[
        {
            "id": "alarm",
            "outputs": [
                param("lvl", "INT") | {"propertyKey": "level"},
                {"id": "conf", "ref": "cfg"},
            ],
        }
    ],
    services=[{"id": "dim", "inputs": [param("dim.t", "INT") | {"propertyKey": "to"}]}],
)


def keyed():
    return compile_tsl(parse_document(KEYED))


def faults(*properties: dict) -> list[str]:
    with pytest.raises(TslInvalid) as caught:
        parse_document(document(*properties))
    return list(map(str, caught.value.faults))


def test_reports_name_values_by_property_keys():
    properties = {
        "temperature": 21.5,
        "config": {"interval": 5, "mode": 1, "schedule": [{"hour": 7}]},
    }

    report = keyed().decode_report(msgspec.json.encode({"properties": properties}))
    old = keyed().check_report({"temp": 21.5})

    assert (report.properties, report.faults) == (properties, [])
    assert [str(fault) for fault in old[1]] == ["properties.temp: is not known"]


def test_writes_events_services_and_write_only_values_have_property_keys():
    tsl = keyed()

    assert tsl.check_write({"config": {"interval": 5}}, {"config": {"mode": 1}}) == {
        "config": {"interval": 5, "mode": 1}
    }
    event = tsl.decode_event(b'{"eventId": "alarm", "outputs": {"level": 2, "conf": {"mode": 1}}}')
    assert event.outputs == {"level": 2, "conf": {"mode": 1}}
    assert tsl.check_service_inputs("dim", {"to": 5}) == {"to": 5}
    assert tsl.readable({"secret": "8642", "temperature": 1}) == {"temperature": 1}


def test_the_document_answers_ids_and_keys():
    wire = to_wire(parse_document(KEYED))

    assert [(one["id"], one["propertyKey"]) for one in wire["properties"]] == [
        ("temp", "temperature"),
        ("cfg", "config"),
        ("cfg.iv", "config.interval"),
        ("cfg.mode", "config.mode"),
        ("cfg.plan", "config.schedule"),
        ("cfg.plan._item", "config.schedule._item"),
        ("cfg.plan._item.h", "config.schedule._item.hour"),
        ("pin", "secret"),
    ]
    assert parse_document(wire) == parse_document(KEYED)


def test_a_ref_is_answered_in_both_places():
    inside = {"id": "conf", "dataSpec": {"dataType": "STRUCT", "ref": "cfg"}}
    events = [{"id": "alarm", "outputs": [inside]}]
    wire = to_wire(parse_document({**KEYED, "events": events}))

    found = wire["events"][0]["outputs"][0]
    assert (found["ref"], found["dataSpec"]["ref"]) == ("cfg", "cfg")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("b", "is the id of properties[1]"),
        ("x.y", "must be a single key, or begin with"),
        ("a b", "must not contain ' '"),
        ("$a", "must not start with '$'"),
        ("a*", "must not contain '*'"),
        ("_item", "must not end in '_item'"),
        ("k" * 129, "at most 128 characters"),
    ],
)
def test_a_key_that_cannot_be_is_a_fault_of_its_place(given: str, reason: str):
    found = faults(prop("a") | {"propertyKey": given}, prop("b") | {"propertyKey": "c"})

    assert len(found) == 1
    assert found[0].startswith("properties[0].propertyKey: ")
    assert reason in found[0]


def test_a_key_is_given_once():
    found = faults(prop("a") | {"propertyKey": "k"}, prop("b") | {"propertyKey": "k"})

    assert found == ["properties[1].propertyKey: repeats properties[0].propertyKey"]


def test_elements_of_an_array_have_no_key_of_their_own():
    found = faults(
        prop("a", "ARRAY", elementDataType="INT"), prop("a._item") | {"propertyKey": "first"}
    )

    assert found == ["properties[1].propertyKey: must end in '_item'"]


def test_simulated_values_have_property_keys():
    parsed = parse_document(KEYED)
    rng = random.Random(1)

    assert plausible_properties(parsed, rng).keys() == {"temperature", "config"}
    assert plausible_params(parsed.services[0].inputs, rng).keys() == {"to"}


def test_a_document_without_keys_of_its_own_is_used_as_it_is():
    plain = parse_document(document(prop("s", "STRUCT"), prop("s.x")))

    assert ids_from_keys(plain) is plain
    assert keys_from_ids(plain) is plain


def test_wrong_keys_of_a_stored_document_are_ignored():
    """It was accepted when keys were; an import refuses it."""
    raw = document(prop("a") | {"propertyKey": "x.y"}, prop("b") | {"propertyKey": "z"})

    parsed = parse_document(raw, stored=True)

    assert [entry.property_key for entry in parsed.properties] == ["a", "b"]


def test_a_document_with_ignored_keys_names_values_by_ids():
    plain = keys_from_ids(parse_document(KEYED))

    report = compile_tsl(plain).check_report({"temp": 21.5, "cfg": {"iv": 1}})
    assert report == ({"temp": 21.5, "cfg": {"iv": 1}}, [])
