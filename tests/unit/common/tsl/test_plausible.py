"""Plausible values: within the TSL, steady from one call to the next."""

import json
import random
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.tsl import (
    compile_tsl,
    parse_document,
    plausible_params,
    plausible_properties,
)
from tests.unit.common.tsl.documents import camera, document, documents, param, prop, sensor, spoilt


def rounds(raw: dict, count: int = 200) -> list[dict]:
    """What a simulator reports, one call after the other."""
    parsed, rng, last, made = parse_document(raw), random.Random(4), None, []
    for _ in range(count):
        last = plausible_properties(parsed, rng, last)
        made.append(last)
    return made


def column(key: str, kind: str, access: str = "R", **spec) -> list:
    """How one property goes on."""
    return [values[key] for values in rounds(document(prop(key, kind, access, **spec)))]


@given(documents(), st.integers(0, 9), st.data())
def test_values_of_any_document_are_accepted(raw, seed, data):
    """Reports, from nothing and from anything before, and all parameters have no fault."""
    parsed = parse_document(raw)
    tsl, rng = compile_tsl(parsed), random.Random(seed)

    first = plausible_properties(parsed, rng)
    second = plausible_properties(parsed, rng, first)
    spoilt_second = {key: data.draw(spoilt(value)) for key, value in second.items()}
    third = plausible_properties(parsed, rng, spoilt_second)
    outputs = plausible_params(parsed.events[0].outputs, rng)

    for values in (first, second, third):
        assert (values, []) == tsl.check_report(values)
        assert json.loads(json.dumps(values)) == values
    assert outputs == tsl.decode_event(json.dumps({"eventId": "x", "outputs": outputs})).outputs
    assert outputs.keys() == tsl.check_service_inputs("x", outputs).keys()


@pytest.mark.parametrize("make", [sensor, camera])
def test_values_of_a_real_device_are_accepted_for_long(make):
    """Two hundred reports in a row have no fault and carry every readable property."""
    tsl = compile_tsl(parse_document(make()))
    readable = {
        entry["id"]
        for entry in make()["properties"]
        if "." not in entry["id"] and "R" in entry["accessMode"]
    }

    for values in rounds(make()):
        assert readable == values.keys()
        assert tsl.check_report(values)[1] == []


@pytest.mark.parametrize(("kind", "step"), [("INT", 1), ("LONG", 1), ("FLOAT", 1.1)])
def test_a_number_walks_in_small_steps(kind, step):
    """It moves by a hundredth of its range at most, and it does move."""
    walk = column("n", kind, min=-20, max=80, fractionDigits=1)

    assert all(abs(after - before) <= step for before, after in pairwise(walk))
    assert len(set(walk)) > 5
    assert all(-20 <= number <= 80 for number in walk)


@pytest.mark.parametrize(
    ("spec", "low", "high"),
    [
        ({}, 0, 100),
        ({"min": 30}, 30, 130),
        ({"max": 20}, 0, 20),
        ({"max": -300}, -400, -300),
    ],
)
@pytest.mark.parametrize("kind", ["INT", "LONG", "FLOAT", "DOUBLE"])
def test_an_open_range_gives_moderate_values(kind, spec, low, high):
    """Without bounds in the TSL, simulated readings stay realistic."""
    assert all(low <= number <= high for number in column("n", kind, **spec))


@pytest.mark.parametrize("spec", [{"min": 2**31 - 5}, {"max": 5 - 2**31}])
def test_an_open_range_ends_where_its_type_does(spec):
    """An INT never leaves 32 bits."""
    assert all(-(2**31) <= number < 2**31 for number in column("n", "INT", **spec))


def test_a_number_outside_of_the_modest_range_walks_on_from_where_it_is():
    """A counter that was set to a million does not fall back to a hundred."""
    parsed = parse_document(document(prop("n", "LONG"), prop("x", "DOUBLE")))

    after = plausible_properties(parsed, random.Random(1), {"n": 10**6, "x": 1e6})

    assert abs(after["n"] - 10**6) <= 1
    assert abs(after["x"] - 1e6) <= 1


@pytest.mark.parametrize("digits", [0, 1, 3])
def test_fraction_digits_are_respected(digits):
    """A number has at most that many decimals, two where nothing is said."""
    for number in column("n", "FLOAT", min=-1, max=1, fractionDigits=digits):
        assert number == round(number, digits)
    for number in column("n", "FLOAT", min=-1, max=1):
        assert number == round(number, 2)


def test_a_number_of_few_digits_still_moves():
    """A step is never so small that rounding takes it back."""
    assert set(column("n", "FLOAT", min=0, max=2, fractionDigits=0)) == {0.0, 1.0, 2.0}


def test_bounds_win_over_fraction_digits():
    """Between 0.01 and 0.02 there is no number with one decimal."""
    walk = column("n", "FLOAT", fractionDigits=1, min=0.01, max=0.02)

    assert all(0.01 <= number <= 0.02 for number in walk)


def test_zero_has_no_sign():
    """A reading of -0.0 would be shown as such."""
    walk = column("n", "FLOAT", min=-1, max=1, fractionDigits=1)

    assert {str(number) for number in walk if not number} == {"0.0"}


def test_a_date_is_now():
    """DATE is in epoch seconds, and goes on by itself even from an older one."""
    parsed = parse_document(document(prop("at", "DATE", defaultValue="7")))

    values = plausible_properties(parsed, random.Random(1), {"at": 7})

    assert abs(values["at"] - time.time()) <= 5


def test_a_date_stays_within_its_bounds():
    """Bounds win over the clock."""
    assert {50} == set(column("at", "DATE", max=50))


def test_switches_and_enums_change_now_and_then():
    """They take every value, but mostly keep the last one."""
    for walk, choices in (
        (column("b", "BOOL"), {True, False}),
        (column("e", "ENUM", mapping={"0": "a", "1": "b"}), {"0", "1"}),
    ):
        changes = sum(after != before for before, after in pairwise(walk))
        assert choices == set(walk)
        assert 1 <= changes < 50


def test_a_text_stays():
    """A serial number is the same in every report."""
    assert len(set(column("sn", "STRING", minSize=3))) == 1


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ({}, 8),
        ({"minSize": 11}, 11),
        ({"maxSize": 5}, 5),
        ({"maxSize": 0}, 0),
        ({"encoding": "HEX", "maxSize": 5}, 4),
        ({"encoding": "HEX", "minSize": 9}, 10),
        ({"encoding": "BASE64", "minSize": 9, "maxSize": 14}, 12),
        ({"encoding": "BASE64", "maxSize": 7}, 4),
    ],
)
def test_a_text_has_a_fitting_size(spec, size):
    """Eight characters, or the nearest size that bounds and encoding allow."""
    assert size == len(column("s", "STRING", **spec)[0])


def test_settings_keep_their_values():
    """RW is what somebody has set: it does not move by itself, nor inside of a STRUCT."""
    parsed = parse_document(sensor())
    interval = {"time": 77, "unit": "1", "left": 100}
    plan = [{"hour": 3}, {"hour": 4, "on": True}]

    values = plausible_properties(parsed, random.Random(1), {"interval": interval, "plan": plan})

    assert plan == values["plan"]
    assert (values["interval"]["time"], values["interval"]["unit"]) == (77, "1")


def test_read_only_members_of_a_setting_move():
    """The rest of an interval goes on, though the interval is a setting."""
    left = {values["interval"]["left"] for values in rounds(sensor())}

    assert len(left) > 5


def test_settings_begin_with_their_default():
    """A device that nobody has configured reports its factory settings."""
    assert rounds(sensor(), 1)[0]["interval"]["time"] == 10
    assert rounds(camera(), 1)[0]["title"] == "door"


def test_a_reading_does_not_begin_with_its_default():
    """The default of a reading says nothing of what is measured."""
    assert 0.0 not in column("n", "FLOAT", min=0, max=100, defaultValue="0")[:1]


def test_a_setting_that_is_no_longer_valid_is_replaced():
    """A value from before a change of the TSL is not reported again."""
    parsed = parse_document(document(prop("n", "INT", "RW", max=5)))

    assert plausible_properties(parsed, random.Random(1), {"n": 6})["n"] <= 5


def test_write_only_properties_are_not_reported():
    """A key that can only be set never comes back."""
    raw = document(prop("s", "STRUCT", "RW"), prop("s.w", "INT", "W"), prop("s.r", "INT"))

    assert "key" not in rounds(sensor(), 1)[0]
    assert {"r"} == rounds(raw, 1)[0]["s"].keys()


def test_a_required_member_that_can_only_be_written_is_left_out():
    """A report must not hold it, whatever is required."""
    raw = document(prop("s", "STRUCT", "RW"), prop("s.w", "INT", "W", required=True))

    assert rounds(raw, 1)[0] == {"s": {}}


@pytest.mark.parametrize(
    ("spec", "size"), [({}, 1), ({"minSize": 3}, 3), ({"maxSize": 0}, 0), ({"maxSize": 2}, 1)]
)
def test_an_array_has_a_fitting_size(spec, size):
    """One element, or as many as it needs, and as many as before."""
    sizes = {len(value) for value in column("a", "ARRAY", elementDataType="INT", **spec)}

    assert {size} == sizes


def test_an_array_keeps_its_size():
    """It has as many elements as before, though each of them walks on."""
    parsed = parse_document(document(prop("a", "ARRAY", elementDataType="INT")))

    assert len(plausible_properties(parsed, random.Random(1), {"a": [1, 2, 3]})["a"]) == 3


def test_previous_values_are_left_alone():
    """The caller's values are not changed in place."""
    parsed = parse_document(camera())
    before = plausible_properties(parsed, random.Random(1))
    kept = json.dumps(before)

    plausible_properties(parsed, random.Random(2), before)

    assert kept == json.dumps(before)


def test_the_same_seed_gives_the_same_values():
    """Simulations can be repeated."""
    assert rounds(document(prop("n"), prop("s", "STRING"))) == rounds(
        document(prop("n"), prop("s", "STRING"))
    )


def test_parameters_are_keyed_by_their_short_name():
    """Every parameter of a service gets a value, and no parameters give none."""
    raw = document(services=[{"id": "s", "inputs": [param("s.a", "STRUCT"), param("s.a.b")]}])
    inputs = parse_document(raw).services[0].inputs

    assert list(plausible_params(inputs, random.Random(1))["a"]) == ["b"]
    assert plausible_params([], random.Random(1)) == {}
