"""Public device templates become products."""

from textwrap import dedent
from typing import Any

import pytest

from libs.common.tsl import to_wire
from services.device.lorawan.codec_context import LoadedCodec
from services.device.lorawan.codec_scripts import nest_keys
from services.device.registry.products.template_parser import TemplateInvalid, read_template

PATH = "th1/device-template.yaml"
TEMPLATE = dedent("""
    definition:
      input: {type: object, properties: [{key: state, type: boolean, entity_mapping: lock}]}
      output: {type: object, properties: [{key: bolt, type: long, entity_mapping: lock}]}
    initial_entities:
      - {identifier: temperature, name: Temperature, type: property, access_mod: R,
         value_type: double, attributes: {unit: °C, min: -20, max: 60}}
      - {identifier: interval, name: Interval, type: property, access_mod: RW, value_type: long}
      - {identifier: serial, type: property, access_mod: R, value_type: string,
         attributes: {max_length: 16}}
      - {identifier: lock, type: property, access_mod: RW, value_type: boolean,
         attributes: {enum: {'false': open, 'true': locked}}}
      - {identifier: kind, type: property, access_mod: R, value_type: long,
         attributes: {enum: {'0': Class A, '2': Class C}}}
      - identifier: plan
        name: Plan
        type: property
        access_mod: RW
        value_type: object
        children:
          - {identifier: enable, value_type: boolean}
          - {identifier: days#sunday, value_type: boolean}
      - {identifier: reboot, name: Reboot, type: service, access_mod: W, value_type: boolean}
      - {identifier: clock, type: service, access_mod: W, value_type: long}
      - identifier: fetch
        type: service
        access_mod: W
        value_type: object
        children: [{identifier: from, value_type: long, attributes: {unit: s}}]
    codec: {id: default, ref: th1/codec/device-codec.yaml}
""")
CODECS = dedent("""
    codecs:
      - id: default
        decoder:
          chain:
            - {script: th1/codec/decoder.js, entry: Decode,
               args: [{id: fPort}, {id: bytes, is_payload: true}]}
            - {script: common/flatten.js, entry: process, args: [{id: obj, is_payload: true}]}
        encoder:
          chain:
            - {script: th1/codec/encoder.js, entry: Encode,
               args: [{id: fPort}, {id: obj, is_payload: true}]}
""")
FILES = {
    PATH: TEMPLATE.encode(),
    "th1/codec/device-codec.yaml": CODECS.encode(),
    "th1/codec/decoder.js": b"function Decode(p, bytes) { return {temperature: bytes[0] / 10} }",
    "th1/codec/encoder.js": b"function Encode(p, o) { return [o.interval] }",
    "common/flatten.js": b"function process(o) { return o }",
}

MEMBERS = "\n  - {identifier: a.b.c.d, value_type: long}" * 3000


def properties() -> dict[str, dict[str, Any]]:
    document = to_wire(read_template(FILES, PATH).document)
    return {one["id"]: one for one in document["properties"]}


def test_entities_become_properties() -> None:
    """With their types, units, bounds, enumerations and access modes."""
    found = properties()
    temperature = found["temperature"]["dataSpec"]
    assert temperature["dataType"] == "DOUBLE"
    assert temperature["unitName"] == "°C"
    assert temperature["validator"] == {"min": -20, "max": 60}
    assert found["interval"]["accessMode"] == "RW"
    assert found["serial"]["dataSpec"]["validator"] == {"maxSize": 16}
    assert found["lock"]["dataSpec"]["dataType"] == "BOOL"
    assert found["kind"]["dataSpec"]["mapping"] == {"0": "Class A", "2": "Class C"}


def test_nested_members_become_structs() -> None:
    """A separator in the name of a member is a level, too."""
    found = properties()
    assert found["plan"]["dataSpec"]["dataType"] == "STRUCT"
    assert found["plan.days"]["dataSpec"] == {"dataType": "STRUCT", "parentId": "plan"}
    assert found["plan.days.sunday"]["accessMode"] == "RW"


def test_services_have_their_inputs() -> None:
    """The inputs of a service are the members below it."""
    services = {service.id: service for service in read_template(FILES, PATH).document.services}
    assert services["reboot"].inputs == []
    assert [one.id for one in services["fetch"].inputs] == ["fetch.from"]
    assert [one.id for one in services["clock"].inputs] == ["clock.value"]


def test_its_codec_decodes_and_encodes() -> None:
    """The scripts that it names come along and follow each other."""
    codec = read_template(FILES, PATH).codec
    loaded = LoadedCodec(codec)
    assert loaded.decode(b"\xd7", 85, 0) == {"temperature": 21.5}
    assert loaded.encode({"interval": 9}, 85, 0) == [9]


def test_its_scripts_have_numbers_where_the_tsl_has_booleans_and_choices() -> None:
    """And other names in either direction, if its definition says so."""
    scripts = {
        "th1/codec/decoder.js": b"function Decode() { return {state: 1, 'plan.days#sunday': 0} }",
        "th1/codec/encoder.js": (
            b"function Encode(p, o) { return [o.bolt, o.kind, o['plan.enable']] }"
        ),
    }
    loaded = LoadedCodec(read_template(FILES | scripts, PATH).codec)
    assert loaded.decode(b"", 85, 0) == {"lock": 1, "plan.days.sunday": 0}
    assert loaded.encode({"lock": True, "kind": "2", "plan": {"enable": False}}, 85, 0) == [1, 2, 0]


def test_two_values_of_one_name_are_both_there_to_be_judged() -> None:
    """The second one has a level below the first, so that it is a fault of the frame."""
    script = b"function Decode() { return {'plan.on': 1, plan: {on: 2}, lock: 1, state: 0} }"
    loaded = LoadedCodec(read_template(FILES | {"th1/codec/decoder.js": script}, PATH).codec)
    given, faults = nest_keys(loaded.decode(b"", 85, 0))
    assert given == {"plan": {"on": 1}, "lock": 1}
    assert [fault.path for fault in faults] == ["properties.plan.on#", "properties.lock#"]


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        (PATH, None, "does not exist"),
        (PATH, b"{", "no YAML"),
        (PATH, b"initial_entities: 7", "array"),
        (PATH, TEMPLATE.replace("value_type: double", "value_type: float8").encode(), "dataType"),
        (PATH, TEMPLATE.replace("id: default", "id: other").encode(), "no codec 'other'"),
        ("th1/codec/device-codec.yaml", None, "does not exist"),
        ("common/flatten.js", None, "common/flatten.js does not exist"),
        ("th1/codec/device-codec.yaml", CODECS.replace("Decode", "De-code").encode(), "entry"),
    ],
)
def test_faults_are_named(path: str, content: bytes | None, reason: str) -> None:
    """With the file and the place in it."""
    files = {name: one for name, one in FILES.items() if name != path}
    if content is not None:
        files[path] = content
    with pytest.raises(TemplateInvalid, match=reason):
        read_template(files, PATH)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("definition:", "a: [" + "[], " * 20_000 + "]\ndefinition:", "more than 30000 parts"),
        ("interval", ".".join("x" * 20_000), "length <= 256"),
        ("interval", ".".join("x" * 99), "16 levels"),
        ("initial_entities:", f"initial_entities:{MEMBERS}", "has 2006 members"),
    ],
    ids=["parts", "identifier", "levels", "members"],
)
def test_templates_have_bounds(old: str, new: str, reason: str) -> None:
    """What a small file would make much work of is not begun."""
    with pytest.raises(TemplateInvalid, match=reason):
        read_template(FILES | {PATH: TEMPLATE.replace(old, new).encode()}, PATH)


def test_faults_of_both_files_are_returned_together() -> None:
    """The author of a template sees all of them at once."""
    files = FILES | {PATH: TEMPLATE.replace("value_type: double", "value_type: odd").encode()}
    del files["th1/codec/decoder.js"]
    with pytest.raises(TemplateInvalid) as refused:
        read_template(files, PATH)
    assert len(refused.value.faults) == 2
