"""Importing a document: every fault by its path, and one form for all spellings."""

import json

import pytest
from hypothesis import given

from libs.common.tsl import TslInvalid, compile_tsl, parse_document, to_wire
from libs.common.tsl.limits import MAX_DEPTH, MAX_MEMBERS
from tests.unit.common.tsl.documents import camera, document, documents, param, prop, sensor

ONE = {"0": "off"}


def faults(raw) -> dict[str, str]:
    """Path → reason of all that is wrong with a document."""
    with pytest.raises(TslInvalid) as refused:
        parse_document(raw)
    return {fault.path: fault.reason for fault in refused.value.faults}


def event(*outputs: dict, **fields) -> dict:
    return {"id": "e", "outputs": list(outputs)} | fields


@pytest.mark.parametrize("make", [sensor, camera])
def test_a_document_comes_from_bytes_or_values(make):
    """A body and what was decoded from it are the same document."""
    assert parse_document(json.dumps(make()).encode()) == parse_document(make())


@given(documents())
def test_the_wire_form_imports_to_the_same_document(raw):
    """An exported document can be imported again, also as JSON."""
    first = parse_document(raw)

    assert parse_document(json.dumps(to_wire(first)).encode()) == first


def test_null_lists_are_empty():
    """Vendors write null where there is nothing."""
    parsed = parse_document({"version": "v2", "properties": None, "events": None, "services": None})

    assert to_wire(parsed) == {"version": "v2", "properties": [], "events": [], "services": []}


def test_unknown_fields_are_ignored():
    """Fields that vendors add do not keep a document out."""
    parsed = parse_document(document(prop("a") | {"sort": 3}) | {"brand": "x"})

    assert "sort" not in to_wire(parsed)["properties"][0]


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[1", b'{"version": NaN}', b"\xff", b"[" * 100_000], ids=repr
)
def test_invalid_json_is_rejected(raw):
    """The fault concerns the whole document."""
    assert faults(raw)[""].startswith("is not JSON")


@pytest.mark.parametrize("raw", [b"[]", b"null", b"3"])
def test_a_document_is_an_object(raw):
    """Any other JSON is refused."""
    assert faults(raw) == {"": "must be an object"}


def test_every_fault_is_named_at_once():
    """A vendor corrects a document in one go: nothing hides behind the first fault."""
    raw = document(
        prop("a", "INTEGER"),
        prop("b", "INT", "X"),
        prop("c", "INT", min=2, max=1),
        prop("", "INT"),
        prop("d", "ENUM"),
        prop("e.f", "INT"),
        events=[{"id": "h", "type": "LOUD", "outputs": [param("x") | {"ref": "gone"}]}],
        services=[{"id": "$s", "callType": "LATER"}],
    )

    assert set(faults(raw)) == {
        "properties[0].dataSpec.dataType",
        "properties[1].accessMode",
        "properties[2].dataSpec.validator.min",
        "properties[3].id",
        "properties[4].dataSpec.mapping",
        "properties[5].dataSpec.parentId",
        "events[0].type",
        "events[0].outputs[0].ref",
        "services[0].id",
        "services[0].callType",
    }


SPECS = [
    (prop("a", ""), "dataType", "is required"),
    (prop("a", 3), "dataType", "expected `str`, got `int`"),
    (prop("a", fractionDigits=16), "fractionDigits", "must be from 0 to 15"),
    (prop("a", coefficient=0), "coefficient", "must not be 0"),
    (prop("a", encoding="HEX"), "encoding", "is for STRING only"),
    (prop("a", "STRING", encoding="EBCDIC"), "encoding", "must be one of ASCII, BASE64, HEX, UTF8"),
    (prop("a", "ENUM", mapping={"": "x"}), "mapping", "must not have a blank key"),
    (prop("a", "BOOL", mapping={"on": "x"}), "mapping", "must have the keys true and false"),
    (
        prop("a", "BOOL", mapping={"1": "x", "true": "y"}),
        "mapping",
        "must not have two keys for the same value",
    ),
    (prop("a", min="x"), "validator.min", "expected `int | float | null`, got `str`"),
    (prop("a", min=2**63), "validator.min", "must fit in 64 bits"),
    (prop("a", "DOUBLE", max=float("inf")), "validator.max", "must be finite"),
    (prop("a", min=1.2, max=1.8), "validator.max", "permits no INT"),
    (prop("a", min=2**31), "validator.min", "permits no INT"),
    (prop("a", "DATE", max=-1), "validator.max", "permits no DATE"),
    (prop("a", "STRING", minSize=-1), "validator.minSize", "must be from 0 to"),
    (prop("a", "STRING", maxSize=2**31), "validator.maxSize", "must be from 0 to"),
    (prop("a", "STRING", minSize=3, maxSize=2), "validator.minSize", "exceeds maxSize"),
    (
        prop("a", "STRING", encoding="HEX", minSize=3, maxSize=3),
        "validator.maxSize",
        "permits no HEX text",
    ),
    (prop("a", max=5, defaultValue="6"), "defaultValue", "must be at most 5"),
    (prop("a", defaultValue="[" * 100_000), "defaultValue", "must be an integer"),
    (prop("a", "BOOL", defaultValue="maybe"), "defaultValue", "must be true or false"),
    (prop("a", "ENUM", mapping=ONE, defaultValue="1"), "defaultValue", "must be one of 0"),
    (prop("a", "STRUCT"), "dataType", "is STRUCT, but there are no members"),
    (prop("a", "ARRAY"), "elementDataType", "is required without a member 'a._item'"),
    (
        prop("a", "ARRAY", elementDataType="STRUCT"),
        "elementDataType",
        "requires a member 'a._item'",
    ),
    (prop("a", "ARRAY", elementDataType="BLOB"), "elementDataType", "must be one of"),
    (prop("a", "ARRAY", elementDataType="ENUM"), "mapping", "is required for"),
    (prop("a", parentId="b"), "parentId", "must be '', the prefix of the id. Got 'b'"),
    (prop("a", unitName="\x00"), "unitName", "must not contain NUL or half a surrogate pair"),
    (prop("a", unitName="\ud800"), "unitName", "must not contain NUL or half a surrogate pair"),
]


@pytest.mark.parametrize(("entry", "path", "reason"), SPECS)
def test_a_wrong_data_spec_is_named(entry, path, reason):
    """One property with one thing wrong gives that fault and no other."""
    found = faults(document(entry))

    assert list(found) == [f"properties[0].dataSpec.{path}"]
    assert found[f"properties[0].dataSpec.{path}"].startswith(reason)


@pytest.mark.parametrize(
    ("member_id", "reason"),
    [
        ("", "is required"),
        ("$a", "must not start with '$'"),
        ("a b", "must not contain ' '"),
        ("a\x00", "must not contain"),
        ("a" * 129, "must be at most 128 characters long"),
        ("a..b", "must not be blank"),
        (".".join("a" * (MAX_DEPTH + 1)), "is nested more than 16 levels deep"),
    ],
)
def test_an_id_must_be_storable(member_id, reason):
    """Each segment of an id becomes the name of a field."""
    assert faults(document(prop(member_id)))["properties[0].id"].startswith(reason)


@pytest.mark.parametrize("sign", list(":*,{}"))
def test_an_id_has_no_character_with_a_meaning_in_keys_or_patterns(sign):
    """This holds for ids of all kinds. Stored documents may still have them."""
    odd, deep = f"a{sign}b", f"s.{sign}"
    owners = [{"id": odd, "outputs": [param(f"{odd}.x")]}, {"id": "e", "outputs": [param(sign)]}]
    calls = [{"id": odd}, {"id": "c", "inputs": [param(f"c.{odd}")], "outputs": [param(odd)]}]
    raw = document(prop(odd), prop("s", "STRUCT"), prop(deep), events=owners, services=calls)

    assert faults(raw) == {
        f"{path}.id": f"must not contain {sign!r}"
        for path in (
            *("properties[0]", "properties[2]", "events[0]", "services[0]"),
            *("events[0].outputs[0]", "events[1].outputs[0]"),
            *("services[1].inputs[0]", "services[1].outputs[0]"),
        )
    }
    stored = parse_document(raw, stored=True)
    assert parse_document(to_wire(stored), stored=True) == stored
    assert compile_tsl(stored).check_report({odd: 1, "s": {sign: 2}})[1] == []


def test_ids_are_unique():
    """The second of two equal ids names the first."""
    assert faults(document(prop("a"), prop("a"))) == {
        "properties[1].id": "repeats properties[0].id"
    }


def test_events_and_services_are_unique():
    """So are theirs; an event and a service may share an id."""
    owner = {"id": "x"}
    raw = document(events=[owner, owner], services=[owner, owner])

    assert set(faults(raw)) == {"events[1].id", "services[1].id"}
    assert parse_document(document(events=[owner], services=[owner]))


def test_a_member_lies_in_a_struct():
    """A member of a number cannot be."""
    found = faults(document(prop("a"), prop("a.b")))

    assert found == {"properties[1].dataSpec.parentId": "must be a STRUCT or ARRAY. Got INT"}


def test_only_an_item_lies_in_an_array_and_only_there():
    """`_item` describes elements, other keys members."""
    item = prop("a._item", "STRUCT")
    wrong = [prop("a", "STRUCT"), item, prop("a._item.x")]

    assert list(faults(document(*wrong))) == ["properties[1].id"]
    assert "properties[1].id" in faults(document(prop("b", "ARRAY"), prop("b.x")))


def test_an_item_defines_the_element_type():
    """The type is filled in. A contradiction is a fault."""
    parsed = parse_document(document(prop("a", "ARRAY"), prop("a._item", "BOOL")))
    wrong = document(prop("a", "ARRAY", elementDataType="INT"), prop("a._item", "BOOL"))

    assert parsed.properties[0].data_spec.element_data_type == "BOOL"
    assert list(faults(wrong)) == ["properties[0].dataSpec.elementDataType"]


def test_members_take_the_access_of_their_parent():
    """A member that says nothing is accessed as its parent is, whichever comes first."""
    parsed = parse_document(document(prop("s.a", access=None), prop("s", "STRUCT", "rw")))

    assert [entry.access_mode for entry in parsed.properties] == ["RW", "RW"]


def test_members_of_a_read_only_struct_cannot_be_writable():
    """A writable one is a fault."""
    found = faults(document(prop("s", "STRUCT", "R"), prop("s.a", "INT", "RW")))

    assert found == {"properties[1].accessMode": "must be R inside a read-only parent. Got RW"}


def test_a_property_says_how_it_is_accessed():
    """There is no default."""
    assert faults(document(prop("a", access=None))) == {"properties[0].accessMode": "is required"}


@pytest.mark.parametrize(
    "given", [{"mapping": {"0": "x"}}, {"mappings": [{"key": "0", "value": "x"}]}]
)
def test_a_mapping_comes_as_object_or_list_and_leaves_as_both(given):
    """Clients read either."""
    wire = to_wire(parse_document(document(prop("a", "ENUM", **given))))["properties"][0][
        "dataSpec"
    ]

    assert wire["mapping"] == {"0": "x"}
    assert wire["mappings"] == [{"key": "0", "value": "x"}]


def test_mappings_that_contradict_are_refused():
    """Nobody could tell which of the two holds."""
    entry = prop("a", "ENUM", mapping={"0": "x"}, mappings=[{"key": "0", "value": "y"}])

    assert faults(document(entry)) == {"properties[0].dataSpec.mappings": "contradicts mapping"}


def test_a_key_given_twice_is_refused():
    """In a list as in a JSON object, where a decoder would hide it."""
    twice = [{"key": "0", "value": "x"}, {"key": "0", "value": "y"}]
    entry = json.dumps(document(prop("a", "ENUM", mapping={"0": "x"})))

    listed = faults(document(prop("a", "ENUM", mappings=twice)))
    written = faults(entry.replace('"0": "x"', '"0": "x", "0": "y"').encode())

    assert listed == {"properties[0].dataSpec.mappings[1].key": "is given twice"}
    assert written == {"properties[0].dataSpec.mapping.0": "is given twice"}


def test_spellings_are_brought_to_one_form():
    """Types and encodings of any case; the property key is the id."""
    entry = parse_document(document(prop("a", "string", "rw", encoding="utf-8"))).properties[0]

    assert (entry.data_spec.data_type, entry.data_spec.encoding) == ("STRING", "UTF8")
    assert (entry.property_key, entry.access_mode) == ("a", "RW")


@pytest.mark.parametrize("default", [5, "5"])
def test_a_default_may_be_a_scalar_or_text(default):
    """The documented form is text."""
    entry = parse_document(document(prop("a", defaultValue=default))).properties[0]

    assert entry.data_spec.default_value == "5"


def test_parameters_get_the_prefix_of_their_owner():
    """Vendors leave it out, or write it; nested ones too."""
    raw = document(
        events=[event(param("e.a"), param("b", "STRUCT"), param("b.c", parentId="b"))],
        services=[{"id": "s", "inputs": [param("x")], "outputs": [param("y")]}],
    )
    parsed = parse_document(raw)

    ids = [(entry.id, entry.data_spec.parent_id) for entry in parsed.events[0].outputs]
    assert ids == [("e.a", "e"), ("e.b", "e"), ("e.b.c", "e.b")]
    assert parsed.services[0].inputs[0].id == parsed.services[0].inputs[0].property_key == "s.x"
    assert parsed.services[0].outputs[0].id == "s.y"


def test_an_owner_without_an_id_is_one_fault():
    """Its parameters are not at fault as well."""
    assert list(faults(document(events=[{"outputs": [param("a")]}]))) == ["events[0].id"]


def test_a_ref_supplies_missing_rules_of_a_parameter():
    """Its own rules have precedence. `required` and the default are not copied."""
    source = prop("t", "FLOAT", min=-20, max=70, unitName="C", required=True, defaultValue="1")
    own = {"ref": "t", "dataSpec": {"validator": {"max": 50}}}
    parsed = parse_document(document(source, events=[event(own)]))

    output = parsed.events[0].outputs[0]
    rules = output.data_spec.validator
    assert (output.id, output.data_spec.data_type, output.data_spec.unit_name) == (
        "e.t",
        "FLOAT",
        "C",
    )
    assert (rules.min, rules.max, rules.required) == (-20, 50, None)
    assert output.data_spec.default_value is None


def test_a_ref_to_a_property_of_another_type_supplies_nothing():
    """The range of a number is not that of a text."""
    source, own = prop("t", min=5), param("t", "STRING") | {"ref": "t"}
    parsed = parse_document(document(source, events=[event(own)]))

    assert parsed.events[0].outputs[0].data_spec.validator is None


def test_a_ref_to_a_struct_supplies_its_members():
    """They lie under the parameter, at any depth."""
    raw = document(
        prop("s", "STRUCT"),
        prop("s.a", "ARRAY"),
        prop("s.a._item", "INT", max=3),
        events=[event({"id": "p", "ref": "s", "dataSpec": {"dataType": "STRUCT"}})],
    )

    ids = [entry.id for entry in parse_document(raw).events[0].outputs]
    assert ids == ["e.p", "e.p.a", "e.p.a._item"]


def test_a_struct_cannot_refer_to_an_array():
    """There would be no members to take."""
    raw = document(
        prop("l", "ARRAY", elementDataType="INT"),
        events=[event(param("p", "STRUCT") | {"ref": "l"})],
    )

    assert list(faults(raw)) == ["events[0].outputs[0].ref"]


def test_a_document_has_so_many_members_and_no_more():
    """Properties, events, services and parameters count together."""
    most = [prop(f"p{at}") for at in range(MAX_MEMBERS)]

    assert len(parse_document(document(*most)).properties) == MAX_MEMBERS
    assert faults(document(*most, events=[{"id": "e"}])) == {
        "": "has 2001 members, at most 2000 are allowed"
    }


def test_members_behind_references_count():
    """A small document cannot grow large by way of `ref`."""
    members = [prop(f"s.m{at}") for at in range(900)]
    outputs = [param(key, "STRUCT") | {"ref": "s"} for key in "abc"]

    assert "" in faults(document(prop("s", "STRUCT"), *members, events=[event(*outputs)]))


def test_deep_values_of_vendors_are_refused():
    """The bound applies to uninterpreted values, too, even if they are decoded already."""
    deep: dict = {}
    for _ in range(900):
        deep = {"a": deep}
    entry = prop("a", assist={"dependsOnValue": deep})

    assert list(faults(document(entry))) == ["properties[0].dataSpec.assist.dependsOnValue"]
