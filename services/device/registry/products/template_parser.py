"""Parser of public device templates (beaver-iot-blueprint). No I/O.

A template gives the TSL and the codec of a product. It is a folder with `device-template.yaml`,
which names a file of codecs, which names scripts. Paths are relative to the parent folder, where
templates share scripts.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import yaml

from libs.common.tsl import Fault, TslDocument, TslInvalid, parse_document
from libs.common.tsl.limits import MAX_DEPTH, MAX_MEMBERS
from services.device.things.codec_model import (
    MAX_STEPS,
    Codec,
    CodecArgument,
    CodecStep,
    FunctionName,
)

TSL_TYPE_BY_VALUE_TYPE = {
    "string": "STRING",
    "long": "LONG",
    "double": "DOUBLE",
    "boolean": "BOOL",
    "object": "STRUCT",
}
VALIDATOR_BY_ATTRIBUTE = {
    "min": "min",
    "max": "max",
    "min_length": "minSize",
    "max_length": "maxSize",
}
TYPE_CONVERSION_SCRIPT = Path(__file__).with_name("types.js")
MAX_YAML_LEVELS = 64
"""Maximum nesting levels of a YAML file."""
MAX_YAML_EVENTS = 30_000
"""Maximum YAML events (parts) of a file; public templates have at most 6,000."""
MAX_IDENTIFIER_CHARACTERS = 256
"""Maximum characters of an identifier, which may name several levels."""
VALUE_INPUT = "value"
"""The input of a template's service that takes one value; boolean services have none."""
_TslPart = dict[str, Any]
T = TypeVar("T")


class Template(NamedTuple):
    """The TSL and the codec of a template."""

    document: TslDocument
    codec: Codec


class TemplateInvalid(Exception):
    """The template has faults, each with its path."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(f"{fault.path}: {fault.reason}" for fault in faults))
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
    identifier: Annotated[str, msgspec.Meta(max_length=MAX_IDENTIFIER_CHARACTERS)]
    value_type: str
    name: str | None = None
    type: str = "property"
    access_mod: str | None = None
    attributes: _Attributes | None = None
    children: list["_Entity"] = []


class _CodecRef(msgspec.Struct):
    ref: str
    id: str = "default"


class _ScriptValue(msgspec.Struct):
    """A value of the scripts and the entity that it belongs to."""

    key: str
    entity_mapping: str | None = None

    @property
    def path(self) -> str:
        """Return the path of the value in the TSL."""
        return _key_to_path(self.entity_mapping or self.key)


class _ScriptValues(msgspec.Struct):
    properties: list[_ScriptValue] = []


class _ScriptDefinition(msgspec.Struct):
    input: _ScriptValues = msgspec.field(default_factory=_ScriptValues)
    output: _ScriptValues = msgspec.field(default_factory=_ScriptValues)


class _TemplateFile(msgspec.Struct):
    initial_entities: list[_Entity]
    codec: _CodecRef
    definition: _ScriptDefinition = msgspec.field(default_factory=_ScriptDefinition)


class _Argument(msgspec.Struct):
    id: str
    is_payload: bool = False


class _Step(msgspec.Struct):
    script: str
    entry: FunctionName
    args: list[_Argument]


class _StepChain(msgspec.Struct):
    chain: Annotated[list[_Step], msgspec.Meta(max_length=MAX_STEPS)]


class _CodecSteps(msgspec.Struct):
    id: str
    decoder: _StepChain
    encoder: _StepChain | None = None


class _CodecFile(msgspec.Struct):
    codecs: list[_CodecSteps]


def read_template(files: Mapping[str, bytes], path: str) -> Template:
    """Return the template at `path` of `files`; raise `TemplateInvalid`."""
    template = _read_yaml(files, path, _TemplateFile)
    faults: list[Fault] = []
    document = codec = None
    try:
        document = parse_document(_build_tsl(template.initial_entities))
    except TslInvalid as error:
        faults += [Fault(f"{path}: {fault.path}", fault.reason) for fault in error.faults]
    try:
        codec = _build_codec(files, template)
    except TemplateInvalid as error:
        faults += error.faults
    if document is None or codec is None:
        raise TemplateInvalid(faults)
    return Template(document, codec)


def _read_yaml(files: Mapping[str, bytes], path: str, kind: type[T]) -> T:
    content = files.get(path)
    if content is None:
        raise TemplateInvalid([Fault(path, "does not exist")])
    try:
        return parse_yaml(content, kind)
    except ValueError as error:
        raise TemplateInvalid([Fault(path, str(error))]) from error


def parse_yaml(content: bytes, kind: type[T]) -> T:
    """Return the content of a file; raise `ValueError` with its fault.

    `kind` decides the type of a scalar, not its notation.
    """
    try:
        _check_shape(content)
        loaded = yaml.load(content, Loader=yaml.CBaseLoader)  # noqa: S506 - makes strings only
        return msgspec.convert(loaded, kind, strict=False)
    except yaml.YAMLError as error:
        raise ValueError(f"is no YAML: {error}") from error


def _check_shape(content: bytes) -> None:
    """Raise `ValueError` for shapes that slow parsers down.

    These are aliases, many levels and many parts.
    """
    depth = 0
    for number, event in enumerate(yaml.parse(content, Loader=yaml.CBaseLoader)):
        if number > MAX_YAML_EVENTS:
            raise ValueError(f"has more than {MAX_YAML_EVENTS} parts")
        match event:
            case yaml.CollectionStartEvent():
                depth += 1
            case yaml.CollectionEndEvent():
                depth -= 1
            case yaml.AliasEvent():
                raise ValueError("must not have an alias")
        if depth > MAX_YAML_LEVELS:
            raise ValueError(f"has more than {MAX_YAML_LEVELS} levels")


def _build_codec(files: Mapping[str, bytes], template: _TemplateFile) -> Codec:
    ref = template.codec
    found = {codec.id: codec for codec in _read_yaml(files, ref.ref, _CodecFile).codecs}.get(ref.id)
    if found is None:
        raise TemplateInvalid([Fault(ref.ref, f"has no codec {ref.id!r}")])
    encoder = found.encoder.chain if found.encoder else []
    names = dict.fromkeys(step.script for step in (*found.decoder.chain, *encoder))
    missing = [name for name in names if name not in files]
    if missing:
        raise TemplateInvalid([Fault(ref.ref, f"{name} does not exist") for name in missing])
    scripts = {name: files[name].decode(errors="replace") for name in names}
    decoder = [_to_codec_step(step) for step in found.decoder.chain]
    encode = [_to_codec_step(step) for step in encoder]
    renamed, typed = _find_paths_by_script_name(template), _find_script_names_and_types(template)
    if renamed:
        decoder.append(
            CodecStep(
                TYPE_CONVERSION_SCRIPT.name, "decoded", [CodecArgument("values", payload=True)]
            )
        )
    if encode:
        encode.insert(
            0,
            CodecStep(
                TYPE_CONVERSION_SCRIPT.name, "encoded", [CodecArgument("values", payload=True)]
            ),
        )
    if renamed or encode:
        script = TYPE_CONVERSION_SCRIPT.read_text()
        for name, table in (("DECODED", renamed), ("ENCODED", typed)):
            content = msgspec.json.encode(table).decode()
            script = script.replace(f"{name} = {{}}", f"{name} = {content}")
        scripts[TYPE_CONVERSION_SCRIPT.name] = script
    codec = Codec(scripts=scripts, decoder=decoder, encoder=encode)
    try:
        return msgspec.convert(msgspec.to_builtins(codec), Codec)
    except msgspec.ValidationError as error:
        raise TemplateInvalid([Fault(ref.ref, str(error))]) from error


def _find_paths_by_script_name(template: _TemplateFile) -> dict[str, str]:
    """Return the TSL path of each value by its name in the scripts, where these differ."""
    fields = [
        (_key_to_path(mapping.key), mapping.path)
        for mapping in template.definition.input.properties
    ]
    return {key: path for key, path in fields if key != path}


def _find_script_names_and_types(template: _TemplateFile) -> dict[str, Any]:
    """Return by TSL path the name of a value in the scripts, and whether it is a number there."""
    numbers = {
        path for entity in template.initial_entities for path in _list_script_number_paths(entity)
    }
    names = {mapping.path: mapping.key for mapping in template.definition.output.properties}
    paths = numbers | {path for path, name in names.items() if _key_to_path(name) != path}
    return {
        path: {"name": names.get(path, path), "number": path in numbers} for path in sorted(paths)
    }


def _list_script_number_paths(entity: _Entity, above: str = "") -> Iterator[str]:
    """Yield the TSL paths of booleans and choices, which are numbers in the scripts."""
    path = above + _key_to_path(entity.identifier)
    chosen = entity.attributes is not None and bool(entity.attributes.enum)
    if entity.value_type == "boolean" or (entity.value_type == "long" and chosen):
        yield path
    for child in entity.children:
        yield from _list_script_number_paths(child, f"{path}.")


def _key_to_path(key: str) -> str:
    """Return the path of a key; `#` separates levels too."""
    return key.replace("#", ".")


def _to_codec_step(step: _Step) -> CodecStep:
    args = [CodecArgument(argument.id, payload=argument.is_payload) for argument in step.args]
    return CodecStep(step.script, step.entry, args)


def _build_tsl(entities: list[_Entity]) -> _TslPart:
    services = [entity for entity in entities if entity.type == "service"]
    properties = [entity for entity in entities if entity.type != "service"]
    return {
        "version": "v1.0",
        "properties": _limit_members(
            _add_missing_parents(
                part for entity in properties for part in _iterate_properties(entity)
            )
        ),
        "services": _limit_members(_build_service(service) for service in services),
    }


def _limit_members(parts: Iterator[_TslPart]) -> list[_TslPart]:
    """Return members up to the limit of a TSL, and one more to exceed it."""
    return list(islice(parts, MAX_MEMBERS + 1))


def _build_service(entity: _Entity) -> _TslPart:
    above = f"{entity.identifier}."
    children = entity.children
    if entity.value_type not in {"object", "boolean"}:
        children = [msgspec.structs.replace(entity, identifier=VALUE_INPUT)]
    inputs = [part for child in children for part in _iterate_properties(child, above)]
    return {
        "id": entity.identifier,
        "name": entity.name,
        "callType": "ASYNC",
        "inputs": [{k: v for k, v in part.items() if k != "accessMode"} for part in inputs],
        "outputs": [],
    }


def _iterate_properties(entity: _Entity, above: str = "", mode: str = "R") -> Iterator[_TslPart]:
    """Yield a property and the properties below it."""
    path, mode = above + _key_to_path(entity.identifier), entity.access_mod or mode
    yield {
        "id": path,
        "name": entity.name,
        "accessMode": mode,
        "dataSpec": _build_data_spec(entity),
    }
    for child in entity.children:
        yield from _iterate_properties(child, f"{path}.", mode)


def _add_missing_parents(parts: Iterator[_TslPart]) -> Iterator[_TslPart]:
    """Yield the parts, with missing levels as STRUCTs before their members."""
    present_paths = set()
    for part in parts:
        levels = part["id"].split(".")
        for depth in range(1, min(len(levels), MAX_DEPTH + 1)):
            above = ".".join(levels[:depth])
            if above not in present_paths:
                present_paths.add(above)
                names = {"id": above, "name": levels[depth - 1]}
                yield {**part, **names, "dataSpec": {"dataType": "STRUCT"}}
        present_paths.add(part["id"])
        yield part


def _build_data_spec(entity: _Entity) -> _TslPart:
    attributes = entity.attributes or _Attributes()
    kind = TSL_TYPE_BY_VALUE_TYPE.get(entity.value_type, entity.value_type)
    spec: _TslPart = {"dataType": "ENUM" if attributes.enum and kind == "LONG" else kind}
    if attributes.enum:
        spec["mapping"] = attributes.enum
    if attributes.unit:
        spec["unitName"] = attributes.unit
    bounds = {to: getattr(attributes, name) for name, to in VALIDATOR_BY_ATTRIBUTE.items()}
    if validator := {name: bound for name, bound in bounds.items() if bound is not None}:
        spec["validator"] = validator
    return spec
