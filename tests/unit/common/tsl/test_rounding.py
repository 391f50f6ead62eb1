"""`fractionDigits`: how numbers are rounded, and that it is the same wherever they come from."""

import json
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.common.tsl.documents import param, prop, tsl

EXAMPLES = [
    (2, 21.456, 21.46),
    (2, 21.454, 21.45),
    (1, 9.99, 10.0),
    (2, 2.675, 2.68),
    (2, 1.005, 1.01),
    (0, 0.5, 1.0),
    (0, 2.5, 3.0),
    (0, -2.5, -3.0),
    (2, -2.675, -2.68),
    (1, -0.04, 0.0),
    (1, 0.1 + 0.2, 0.3),
    (15, 0.1234567890123456, 0.123456789012346),
    (15, 4503599627370497.5, 4503599627370497.5),
    (2, 1e300, 1e300),
    (2, 5e-324, 0.0),
    (1, 7, 7.0),
    (None, 21.456, 21.456),
]


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize(("digits", "sent", "kept"), EXAMPLES)
def test_a_number_keeps_so_many_places(kind, digits, sent, kept):
    """Half up, away from zero, of the decimal as it is written; never minus zero."""
    entry = prop("a", kind, "RW", fractionDigits=digits)
    raw = json.dumps({"properties": {"a": sent}}).encode()

    reported = tsl(entry).decode_report(raw).properties["a"]
    written = tsl(entry).check_write({"a": sent}, {})["a"]

    assert [repr(reported), repr(written)] == [repr(kept)] * 2


@given(st.floats(-1e9, 1e9), st.integers(0, 15))
def test_rounding_applies_to_the_shown_decimal(number, digits):
    """The result is that of rounding the JSON text by hand; rounding again changes nothing."""
    compiled = tsl(prop("a", "DOUBLE", fractionDigits=digits))

    def kept(value: float) -> float:
        raw = json.dumps({"properties": {"a": value}}).encode()
        return float(compiled.decode_report(raw).properties["a"])

    paper = Decimal(repr(number)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    assert kept(number) == float(paper)
    assert kept(kept(number)) == kept(number)


@pytest.mark.parametrize("kind", ["INT", "LONG", "DATE"])
def test_an_integer_has_no_places(kind):
    """`fractionDigits` of another type means nothing."""
    raw = b'{"properties": {"a": 25}}'

    assert tsl(prop("a", kind, fractionDigits=0)).decode_report(raw).properties == {"a": 25}


@pytest.mark.parametrize(
    ("sent", "kept"), [(69.96, 69.99), (69.94, 69.9), (0.04, 0.01), (0.05, 0.1)]
)
def test_rounding_does_not_lead_out_of_the_bounds(sent, kept):
    """A bound between two places is kept as it stands."""
    compiled = tsl(prop("a", "FLOAT", "RW", fractionDigits=1, min=0.01, max=69.99))
    raw = json.dumps({"properties": {"a": sent}}).encode()

    assert compiled.decode_report(raw).properties == {"a": kept}
    assert compiled.check_write({"a": sent}, {}) == {"a": kept}


def test_a_sent_value_beyond_a_bound_is_rejected():
    """Rounding it into the bounds does not help."""
    raw = b'{"properties": {"a": 70.04}}'
    found = tsl(prop("a", "FLOAT", fractionDigits=1, max=70)).decode_report(raw)

    assert [str(fault) for fault in found.faults] == ["properties.a: must be at most 70"]


def test_numbers_are_rounded_wherever_they_stand():
    """In STRUCTs, in ARRAYs with and without `_item`; in a report with faults as in one without."""
    compiled = tsl(
        prop("s", "STRUCT"),
        prop("s.deep", "STRUCT"),
        prop("s.deep.n", "FLOAT", fractionDigits=1),
        prop("s.other", "FLOAT"),
        prop("l", "ARRAY"),
        prop("l._item", "STRUCT"),
        prop("l._item.n", "FLOAT", fractionDigits=0),
        prop("plain", "ARRAY", elementDataType="FLOAT", fractionDigits=2),
    )
    values = {
        "s": {"deep": {"n": 1.25}, "other": 1.25},
        "l": [{"n": 0.5}, {}],
        "plain": [1.005, 1],
    }
    expected = {"s": {"deep": {"n": 1.3}, "other": 1.25}, "l": [{"n": 1}, {}], "plain": [1.01, 1]}

    for more in ({}, {"unknown": 1}):
        found = compiled.decode_report(json.dumps({"properties": values | more}).encode())
        assert found.properties == expected


def test_parameters_are_rounded_as_properties_are():
    """Outputs of events, inputs and outputs of services."""
    compiled = tsl(
        events=[{"id": "e", "outputs": [param("e.n", "FLOAT", fractionDigits=1)]}],
        services=[
            {
                "id": "s",
                "inputs": [param("s.n", "FLOAT", fractionDigits=1)],
                "outputs": [param("s.n", "FLOAT", fractionDigits=1)],
            }
        ],
    )
    event = compiled.decode_event(b'{"eventId": "e", "outputs": {"n": 1.25}}')

    assert event.outputs == {"n": 1.3}
    assert compiled.check_service_inputs("s", {"n": 1.25}) == {"n": 1.3}
    assert compiled.check_service_outputs("s", {"n": 1.25}) == {"n": 1.3}


def test_a_coefficient_changes_nothing():
    """It tells how a device encodes its raw values; what it sends here is scaled already."""
    raw = b'{"properties": {"a": 21.5}}'

    assert tsl(prop("a", "FLOAT", coefficient=0.1)).decode_report(raw).properties == {"a": 21.5}
