"""Reports against a compiled document: what is kept, and what is at fault."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.tsl import (
    Fault,
    MalformedReport,
    compile_tsl,
    parse_document,
    plausible_properties,
)
from libs.common.tsl._check import check_given_members, partial_view
from libs.common.tsl._decoders import decode_checked_report
from libs.common.tsl._node import (
    build_tree,
    convert_to_booleans,
    find_boolean_places,
    parse_members,
)
from libs.common.tsl.limits import MAX_DATE_SECONDS, MAX_TIME_MS
from tests.unit.common.tsl.documents import document, documents, prop, spoilt, tsl


def report(*properties: dict, **values):
    """What becomes of `values` in a report to a TSL of `properties`."""
    return tsl(*properties).decode_report(json.dumps({"properties": values}).encode())


@given(documents(), st.integers(0, 9), st.data())
def test_the_fast_and_the_slow_path_agree(raw, seed, data):
    """A report is the same whether it is decoded in one pass or value by value."""
    parsed = parse_document(raw)
    compiled = compile_tsl(parsed)
    good = plausible_properties(parsed, random.Random(seed))
    values = {key: data.draw(spoilt(value)) for key, value in good.items()} or {"a": 1}
    sent = json.dumps({"ts": 5, "properties": values}).encode()

    whole = compiled.decode_report(sent)

    assert repr(whole) == repr(decode_checked_report(sent, compiled.check_report))
    assert whole.properties.keys().isdisjoint(fault.path.split(".")[1] for fault in whole.faults)


@given(documents(), st.integers(0, 9), st.data())
def test_decoded_values_are_checked_together_as_separately(raw, seed, data):
    """This holds with and without conversion of 0 and 1 to booleans and of numbers to text."""
    parsed = parse_document(raw)
    compiled = compile_tsl(parsed)
    good = plausible_properties(parsed, random.Random(seed))
    values = {key: data.draw(spoilt(value)) for key, value in good.items()} or {"a": 1}
    tree = build_tree(parsed.properties)
    parsed_values = parse_members(tree, convert_to_booleans(find_boolean_places(tree), values))
    reported = {key: partial_view(node) for key, node in tree.items()}
    faults: list[Fault] = []
    slow = check_given_members(reported, parsed_values, "properties", faults, keep_parts=True)

    decoded, told = compiled.check_decoded(values)
    assert repr(decoded) == repr(slow)
    assert list(map(str, told)) == list(map(str, faults))  # without values that bear a secret name


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        ("FLOAT", "25.8", 25.8),
        ("DOUBLE", "-1e3", -1000.0),
        ("INT", "25", 25),
        ("INT", "25.0", 25),
        ("LONG", "9007199254740993", 2**53 + 1),
        ("LONG", str(2**63 - 1), 2**63 - 1),
        ("DATE", "1645630395", 1645630395),
        ("FLOAT", 10**20, 1e20),
    ],
)
def test_numbers_that_a_codec_gives_as_text_are_numbers(kind, given, kept):
    """Also in STRUCTs and ARRAYs."""
    array = prop("l", "ARRAY", elementDataType=kind)
    members = [prop("a", kind), prop("s", "STRUCT"), prop("s.b", kind), array]
    good, faults = tsl(*members).check_decoded({"a": given, "s": {"b": given}, "l": [given]})

    assert (good, faults) == ({"a": kept, "s": {"b": kept}, "l": [kept]}, [])
    assert type(good["a"]) is type(kept)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("FLOAT", "25.8 °C"),
        ("FLOAT", ""),
        ("FLOAT", " 5"),
        ("FLOAT", "NaN"),
        ("FLOAT", "1e400"),
        ("FLOAT", None),
        ("INT", "25.8"),
        ("INT", str(2**31)),
        ("LONG", str(2**63)),
        ("LONG", 10**20),
        ("BOOL", "1"),
    ],
)
def test_an_invalid_decoded_value_does_not_affect_others(kind, given):
    """Values next to it and in the same STRUCT stay."""
    members = [prop("a", kind), prop("t"), prop("s", "STRUCT"), prop("s.b", kind), prop("s.t")]
    good, faults = tsl(*members).check_decoded({"a": given, "t": 1, "s": {"b": given, "t": 2}})

    assert good == {"t": 1, "s": {"t": 2}}
    assert [fault.path for fault in faults] == ["properties.a", "properties.s.b"]


def test_numbers_as_text_stay_a_fault_of_a_report():
    """A device reports JSON, in which numbers are numbers."""
    assert report(prop("a", "FLOAT"), a="25.8").properties == {}


GOOD = [
    (prop("a", "BOOL"), True, True),
    (prop("a", "INT", min=-3, max=3), -3, -3),
    (prop("a", "INT"), 2.0, 2),
    (prop("a", "INT"), 2**31 - 1, 2**31 - 1),
    (prop("a", "LONG"), -(2**63), -(2**63)),
    (prop("a", "DATE"), MAX_DATE_SECONDS, MAX_DATE_SECONDS),
    (prop("a", "FLOAT"), 3, 3.0),
    (prop("a", "DOUBLE", max=0.5), 0.5, 0.5),
    (prop("a", "ENUM", mapping={"0": "x", "1": "y"}), "1", "1"),
    (prop("a", "ENUM", mapping={"0": "x", "1": "y"}), 1, "1"),
    (prop("a", "ENUM", mapping={"0": "x", "1": "y"}), 1.0, "1"),
    (prop("a", "STRING"), "", ""),
    (prop("a", "STRING", encoding="HEX"), "0aF1", "0aF1"),
    (prop("a", "STRING", encoding="ASCII"), "a~", "a~"),
    (prop("a", "STRING", encoding="UTF8", maxSize=1), "é", "é"),
    (prop("a", "STRING", encoding="BASE64"), "QUI=", "QUI="),
    (prop("a", "ARRAY", elementDataType="INT", maxSize=2), [1, 2], [1, 2]),
    (prop("a", "ARRAY", elementDataType="INT"), [], []),
]


@pytest.mark.parametrize(("entry", "sent", "kept"), GOOD)
def test_a_good_value_is_kept_as_its_type_is(entry, sent, kept):
    """Numbers of FLOAT are floats, keys of an ENUM text, whatever was sent."""
    found = report(entry, a=sent)

    assert (found.faults, repr(found.properties)) == ([], repr({"a": kept}))


BAD = [
    (prop("a", "BOOL"), 1, "must be true or false"),
    (prop("a", "BOOL"), "true", "must be true or false"),
    (prop("a", "INT"), 1.5, "must be an integer"),
    (prop("a", "INT"), True, "must be an integer"),
    (prop("a", "INT"), "1", "must be an integer"),
    (prop("a", "INT"), 2**31, "must be at most 2147483647"),
    (prop("a", "INT", min=-3), -4, "must be at least -3"),
    (prop("a", "LONG"), 2**63, "must be at most 9223372036854775807"),
    (prop("a", "LONG"), 10**30, "must be at most 9223372036854775807"),
    (prop("a", "DATE"), -1, "must be at least 0"),
    (prop("a", "DATE"), 1_700_000_000_000, f"must be at most {MAX_DATE_SECONDS}"),
    (prop("a", "FLOAT"), "1", "must be a number"),
    (prop("a", "FLOAT"), False, "must be a number"),
    (prop("a", "FLOAT", max=70.5), 70.6, "must be at most 70.5"),
    (prop("a", "ENUM", mapping={"0": "x"}), "1", "must be one of 0"),
    (prop("a", "ENUM", mapping={"0": "x"}), False, "must be an integer"),
    (prop("a", "STRING"), 1, "must be a text"),
    (prop("a", "STRING", minSize=2), "é", "must have at least 2 characters"),
    (prop("a", "STRING", maxSize=2), "abc", "must have at most 2 characters"),
    (prop("a", "STRING", encoding="HEX"), "abc", "must be HEX"),
    (prop("a", "STRING", encoding="HEX"), "ab\n", "must be HEX"),
    (prop("a", "STRING", encoding="ASCII"), "é", "must be ASCII"),
    (prop("a", "STRING", encoding="BASE64"), "QUI", "must be BASE64"),
    (prop("a", "STRING", encoding="BASE64"), "Q===", "must be BASE64"),
    (prop("a", "ARRAY", elementDataType="INT"), {}, "must be an array"),
    (prop("a", "ARRAY", elementDataType="INT", minSize=1), [], "must have at least 1 elements"),
    (prop("a", "ARRAY", elementDataType="INT", maxSize=1), [1, 2], "must have at most 1 elements"),
    *((prop("a", kind), None, "must not be null") for kind in ("INT", "STRING", "BOOL")),
]


@pytest.mark.parametrize(("entry", "sent", "reason"), BAD)
def test_a_bad_value_is_a_fault_with_its_reason(entry, sent, reason):
    """It is left out, and the fault tells why."""
    found = report(entry, a=sent)

    assert (found.properties, found.faults) == ({}, [Fault("properties.a", reason)])


def test_good_properties_are_kept_beside_bad_and_unknown_ones():
    """One broken sensor does not silence the others."""
    found = report(prop("a"), prop("b"), a=1, b="x", c=2)

    assert found.properties == {"a": 1}
    assert found.faults == [
        Fault("properties.b", "must be an integer"),
        Fault("properties.c", "is not known"),
    ]


NESTED = [
    prop("s", "STRUCT"),
    prop("s.n", "INT", max=9, required=True),
    prop("s.l", "ARRAY", maxSize=2),
    prop("s.l._item", "STRUCT"),
    prop("s.l._item.t", "STRING"),
]


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ([], "", "must be an object"),
        (None, "", "must not be null"),
        ({"n": 10}, ".n", "must be at most 9"),
        ({"n": None}, ".n", "must not be null"),
        ({"n": 1, "x": 1}, ".x", "is not known"),
        ({"n": 1, "l": [{}, {}, {}]}, ".l", "must have at most 2 elements"),
        ({"n": 1, "l": [{}, 1]}, ".l[1]", "must be an object"),
        ({"n": 1, "l": [{}, {"t": 1}]}, ".l[1].t", "must be a text"),
        ({"n": 1, "l": [{"_item": 1}]}, ".l[0]._item", "is not known"),
    ],
)
def test_faults_inside_of_a_value_have_their_place(value, path, reason):
    """The path leads to the member or element; the property is left out as a whole."""
    found = report(*NESTED, s=value)

    assert (found.properties, found.faults) == ({}, [Fault(f"properties.s{path}", reason)])


def test_nested_values_are_kept():
    """STRUCTs are objects, ARRAYs arrays, and optional members may be missing."""
    value = {"n": 1, "l": [{"t": "x"}, {}]}

    assert report(*NESTED, s=value).properties == {"s": value}


def test_no_property_or_member_is_required_in_a_report():
    """Devices report by channel, and STRUCTs in part, at every level."""
    entries = [
        prop("a", required=True),
        prop("s", "STRUCT", required=True),
        prop("s.n", required=True),
        prop("s.t", "STRUCT", required=True),
        prop("s.t.u", required=True),
        prop("s.t.v"),
    ]

    for value in ({}, {"n": 1}, {"t": {}}, {"t": {"v": 1}}):
        whole = report(*entries, s=value)
        assert (whole.properties, whole.faults) == ({"s": value}, [])


def test_an_element_of_an_array_is_whole():
    """An ARRAY is replaced, so that nothing completes a STRUCT in it."""
    entries = [
        prop("l", "ARRAY"),
        prop("l._item", "STRUCT"),
        prop("l._item.n", required=True),
        prop("l._item.m"),
    ]

    assert report(*entries, l=[{"n": 1}]).faults == []
    assert report(*entries, l=[{"m": 1}]).faults == [Fault("properties.l[0].n", "is required")]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"properties": []}',
        b'{"properties": {}}',
        b'{"properties": null}',
        b'{"properties": {"a": NaN}}',
        b'{"properties": {"a": 1}',
        b'{"ts": -1, "properties": {"a": 1}}',
        b'{"ts": "1", "properties": {"a": 1}}',
        b'{"ts": 253402300800000, "properties": {"a": 1}}',
        b'{"x": %s, "properties": {"a": 1}}' % (b"[" * 100_000 + b"]" * 100_000),
    ],
)
def test_a_message_of_another_shape_is_malformed(raw):
    """Nothing in it can be kept."""
    with pytest.raises(MalformedReport):
        tsl(prop("a")).decode_report(raw)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"[]", ""),
        (b"{}", "properties"),
        (b'{"properties": []}', "properties"),
        (b'{"properties": {}}', "properties"),
        (b'{"ts": "1", "properties": {"a": 1}}', "ts"),
        (b'{"ts": -1, "properties": {"a": 1}}', "ts"),
    ],
)
def test_the_fault_of_a_malformed_message_names_the_field(raw, path):
    """Anything but an object is at fault as a whole."""
    with pytest.raises(MalformedReport) as refused:
        tsl(prop("a")).decode_report(raw)
    (fault,) = refused.value.faults
    assert fault.path == path
    assert refused.value.reason == str(fault)


@pytest.mark.parametrize("ts", [0, 1, MAX_TIME_MS, None])
def test_a_report_may_carry_its_time(ts):
    """Epoch milliseconds up to the year 9999; null is none; other fields are ignored."""
    raw = json.dumps({"ts": ts, "properties": {"a": 1}, "more": [1]}).encode()

    assert tsl(prop("a")).decode_report(raw).ts == ts


@pytest.mark.parametrize("value", [b"1e999", b"9" * 400, b'"\xff"', b"[" * 400 + b"]" * 400])
def test_a_value_that_cannot_be_read_spoils_no_other(value):
    """It is one fault; the rest of the report stays."""
    found = tsl(prop("a"), prop("b")).decode_report(b'{"properties": {"a": %s, "b": 1}}' % value)

    assert found.properties == {"b": 1}
    assert [fault.path for fault in found.faults] == ["properties.a"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_decoded_values_that_json_cannot_carry_are_faults(value):
    """`check_report` takes values from anywhere."""
    good, faults = tsl(prop("a", "DOUBLE")).check_report({"a": value})

    assert (good, faults) == ({}, [Fault("properties.a", "must be finite")])


def test_decoded_text_with_half_a_surrogate_pair_is_a_fault():
    """It could be neither stored nor sent."""
    good, faults = tsl(prop("a", "STRING")).check_report({"a": "\ud800"})

    assert (good, [fault.path for fault in faults]) == ({}, ["properties.a"])


def test_a_long_key_is_cut_in_its_fault():
    """A device cannot fill the log with one key."""
    found = report(prop("a"), **{"k" * 10_000: 1})

    assert len(found.faults[0].path) < 200


def test_a_property_is_looked_up_by_its_dotted_id():
    """Members too; what is not declared is None."""
    compiled = tsl(*NESTED)

    assert compiled.property("s.l._item.t").data_spec.data_type == "STRING"
    assert compiled.property("t") is None
    assert compiled.document == parse_document(document(*NESTED))
