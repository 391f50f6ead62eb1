"""Public device templates (beaver-iot-blueprint): the TSL and the codec of a product. No I/O.

A template is a folder with `device-template.yaml`, which names a file of codecs, which names
scripts; both are named from the folder above, where the scripts are that several templates share.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import yaml

from libs.common.tsl import Fault, TslDocument, TslInvalid, parse_document
from services.device.codecs.model import Argument, Codec, Entry, Step

TYPES = {
    "string": "STRING",
    "long": "LONG",
    "double": "DOUBLE",
    "boolean": "BOOL",
    "object": "STRUCT",
}
BOUNDS = {"min": "min", "max": "max", "min_length": "minSize", "max_length": "maxSize"}
TYPES_SCRIPT = Path(__file__).with_name("types.js")
VALUE = "value"
"""The input of a service of a template that takes one value; a boolean one takes none."""
_Part = dict[str, Any]
T = TypeVar("T")


class Template(NamedTuple):
    """What a template says of a product."""

    document: TslDocument
    codec: Codec


class TemplateInvalid(Exception):
    """A template with faults, each with the place where it is."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(f"{one.path}: {one.reason}" for one in faults))
        self.faults = faults


class _Attributes(msgspec.Struct):
    unit: str | None = None
    enum: dict[str, str] | None = None
    min: float | None = None
    max: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    optional: bool = False


class _Entity(msgspec.Struct):
    identifier: str
    value_type: str
    name: str | None = None
    type: str = "property"
    access_mod: str | None = None
    attributes: _Attributes | None = None
    children: list["_Entity"] = []


class _CodecRef(msgspec.Struct):
    ref: str
    id: str = "default"


class _Field(msgspec.Struct):
    """A value as the scripts know it, and the entity that it is."""

    key: str
    entity_mapping: str | None = None


class _Fields(msgspec.Struct):
    properties: list[_Field] = []


class _Definition(msgspec.Struct):
    input: _Fields = msgspec.field(default_factory=_Fields)
    output: _Fields = msgspec.field(default_factory=_Fields)


class _Head(msgspec.Struct):
    initial_entities: list[_Entity]
    codec: _CodecRef
    definition: _Definition = msgspec.field(default_factory=_Definition)


class _Argument(msgspec.Struct):
    id: str
    is_payload: bool = False


class _Step(msgspec.Struct):
    script: str
    entry: Entry
    args: list[_Argument]


class _Steps(msgspec.Struct):
    chain: list[_Step]


class _Chains(msgspec.Struct):
    id: str
    decoder: _Steps
    encoder: _Steps | None = None


class _Codecs(msgspec.Struct):
    codecs: list[_Chains]


def read_template(files: Mapping[str, bytes], path: str) -> Template:
    """The template at `path` of `files`; raise `TemplateInvalid` with every fault."""
    head = _yaml(files, path, _Head)
    faults: list[Fault] = []
    document = codec = None
    try:
        document = parse_document(_document(head.initial_entities))
    except TslInvalid as error:
        faults += [Fault(f"{path}: {one.path}", one.reason) for one in error.faults]
    try:
        codec = _codec(files, head)
    except TemplateInvalid as error:
        faults += error.faults
    if document is None or codec is None:
        raise TemplateInvalid(faults)
    return Template(document, codec)


def _yaml(files: Mapping[str, bytes], path: str, wanted: type[T]) -> T:
    content = files.get(path)
    if content is None:
        raise TemplateInvalid([Fault(path, "there is no such file")])
    try:
        return msgspec.convert(yaml.safe_load(content), wanted)
    except yaml.YAMLError as error:
        raise TemplateInvalid([Fault(path, f"is no YAML: {error}")]) from error
    except msgspec.ValidationError as error:
        raise TemplateInvalid([Fault(path, str(error))]) from error


def _codec(files: Mapping[str, bytes], head: _Head) -> Codec:
    ref = head.codec
    found = {one.id: one for one in _yaml(files, ref.ref, _Codecs).codecs}.get(ref.id)
    if found is None:
        raise TemplateInvalid([Fault(ref.ref, f"has no codec {ref.id!r}")])
    encoder = found.encoder.chain if found.encoder else []
    names = dict.fromkeys(step.script for step in (*found.decoder.chain, *encoder))
    missing = [name for name in names if name not in files]
    if missing:
        raise TemplateInvalid([Fault(ref.ref, f"{name} is not there") for name in missing])
    scripts = {name: files[name].decode(errors="replace") for name in names}
    scripts[TYPES_SCRIPT.name] = _types(head)
    decoder = [*map(_step, found.decoder.chain), _typed("decoded")]
    encode = [_typed("encoded"), *map(_step, encoder)] if encoder else []
    return Codec(scripts=scripts, decoder=decoder, encoder=encode)


def _types(head: _Head) -> str:
    """The script that knows types and names, with what the template says of them."""
    kinds = dict(kind for one in head.initial_entities for kind in _kinds(one))
    plain = {path: (path, kind) for path, kind in kinds.items()}
    decoded, encoded = plain.copy(), plain.copy()
    for one in head.definition.input.properties:
        path = _path(one.entity_mapping or one.key)
        decoded[_path(one.key)] = path, kinds.get(path)
    for one in head.definition.output.properties:
        path = _path(one.entity_mapping or one.key)
        encoded[path] = one.key, kinds.get(path)
    script = TYPES_SCRIPT.read_text()
    for name, table in (("DECODED", decoded), ("ENCODED", encoded)):
        told = {path: to for path, to in table.items() if to != (path, None)}
        script = script.replace(f"{name} = {{}}", f"{name} = {msgspec.json.encode(told).decode()}")
    return script


def _kinds(entity: _Entity, above: str = "") -> Iterator[tuple[str, str | None]]:
    """Which values scripts have as numbers that the TSL has otherwise, by path."""
    path = above + _path(entity.identifier)
    chosen = entity.value_type == "long" and entity.attributes and entity.attributes.enum
    yield path, "boolean" if entity.value_type == "boolean" else "number" if chosen else None
    for child in entity.children:
        yield from _kinds(child, f"{path}.")


def _path(key: str) -> str:
    """Where a value stands; `#` stands in names for a further level."""
    return key.replace("#", ".")


def _typed(entry: str) -> Step:
    return Step(TYPES_SCRIPT.name, entry, [Argument("values", payload=True)])


def _step(step: _Step) -> Step:
    args = [Argument(one.id, payload=one.is_payload) for one in step.args]
    return Step(step.script, step.entry, args)


def _document(entities: list[_Entity]) -> _Part:
    services = [one for one in entities if one.type == "service"]
    properties = [one for one in entities if one.type != "service"]
    return {
        "version": "v1.0",
        "properties": list(_with_parents(part for one in properties for part in _members(one))),
        "services": [_service(one) for one in services],
    }


def _service(entity: _Entity) -> _Part:
    above = f"{entity.identifier}."
    children = entity.children
    if entity.value_type not in {"object", "boolean"}:
        children = [msgspec.structs.replace(entity, identifier=VALUE)]
    inputs = [part for child in children for part in _members(child, above)]
    return {
        "id": entity.identifier,
        "name": entity.name,
        "callType": "ASYNC",
        "inputs": [{k: v for k, v in part.items() if k != "accessMode"} for part in inputs],
        "outputs": [],
    }


def _members(entity: _Entity, above: str = "", mode: str = "R") -> Iterator[_Part]:
    """A property and what is below it."""
    path, mode = above + _path(entity.identifier), entity.access_mod or mode
    yield {"id": path, "name": entity.name, "accessMode": mode, "dataSpec": _spec(entity)}
    for child in entity.children:
        yield from _members(child, f"{path}.", mode)


def _with_parents(parts: Iterator[_Part]) -> Iterator[_Part]:
    """Levels that a template leaves out become STRUCTs before what is in them."""
    there = set()
    for part in parts:
        levels = part["id"].split(".")
        for depth in range(1, len(levels)):
            above = ".".join(levels[:depth])
            if above not in there:
                there.add(above)
                names = {"id": above, "name": levels[depth - 1]}
                yield {**part, **names, "dataSpec": {"dataType": "STRUCT"}}
        there.add(part["id"])
        yield part


def _spec(entity: _Entity) -> _Part:
    known = entity.attributes or _Attributes()
    kind = TYPES.get(entity.value_type, entity.value_type)
    spec: _Part = {"dataType": "ENUM" if known.enum and kind == "LONG" else kind}
    if known.enum:
        spec["mapping"] = known.enum
    if known.unit:
        spec["unitName"] = known.unit
    bounds = {to: getattr(known, name) for name, to in BOUNDS.items()}
    if validator := {name: one for name, one in bounds.items() if one is not None}:
        spec["validator"] = validator
    return spec
