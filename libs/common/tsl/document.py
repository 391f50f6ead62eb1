"""The TSL document as it is on the wire (device open API, section TSL_Model).

Structs hold a document that `parse_document` has checked and normalised; treat them as
read-only. Blank defaults exist so that an incomplete vendor document can be read at all.
"""

from typing import Annotated, Any, Final

import msgspec

NUMBERS: Final = frozenset({"INT", "LONG", "FLOAT", "DOUBLE", "DATE"})
CONTAINERS: Final = frozenset({"STRUCT", "ARRAY"})
DATA_TYPES: Final = NUMBERS | CONTAINERS | {"BOOL", "STRING", "ENUM"}
ENCODINGS: Final = frozenset({"HEX", "ASCII", "UTF8", "BASE64"})
ACCESS_MODES: Final = frozenset({"R", "W", "RW"})
EVENT_TYPES: Final = frozenset({"INFO", "WARN", "ERROR"})
CALL_TYPES: Final = frozenset({"SYNC", "ASYNC"})
ITEM: Final = "_item"
"""Key of the one member that describes the elements of an ARRAY."""


def _one_of(values: frozenset[str]) -> msgspec.Meta:
    """What a field of a checked document may be; when it is read it may be anything."""
    return msgspec.Meta(extra_json_schema={"extra": {"enum": sorted(values)}})


DataType = Annotated[str, _one_of(DATA_TYPES)]
AccessMode = Annotated[str, _one_of(ACCESS_MODES)]


class Wire(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A part of the document: camelCase names, absent fields left out."""


class Validator(Wire):
    """Bounds of a value: inclusive; sizes in characters (STRING) or elements (ARRAY)."""

    min: int | float | None = None
    max: int | float | None = None
    min_size: int | None = None
    max_size: int | None = None
    required: bool | None = None


class Assist(Wire):
    """Hints for decoders; carried along, never interpreted."""

    provider_type: str | None = None
    depends_on_value: dict[str, Any] | None = None
    id: str | None = None
    values: list[int] | None = None
    length_by: str | None = None
    index_by: str | None = None
    index_base: int | None = None
    separate_elements: bool | None = None


class MappingItem(Wire):
    """One entry of an enumeration in its list form."""

    key: str = ""
    value: str = ""


class DataSpec(Wire):
    """Type and bounds of one value; shared by properties and parameters."""

    data_type: DataType = ""
    element_data_type: DataType | None = None
    parent_id: str | None = None
    default_value: str | None = None
    unit_name: str | None = None
    fraction_digits: int | None = None
    coefficient: int | float | None = None
    validator: Validator | None = None
    encoding: Annotated[str, _one_of(ENCODINGS)] | None = None
    mapping: dict[str, str] | None = None
    mappings: list[MappingItem] | None = None
    ref: str | None = None
    assist: Assist | None = None


class MemberSpec(Wire):
    """What a property and a parameter have in common; members are flat, with dotted ids."""

    id: str = ""
    property_key: str | None = None
    name: str | None = None
    description: str | None = None
    data_spec: DataSpec = msgspec.field(default_factory=DataSpec)


class PropertySpec(MemberSpec):
    """A property or a member of one; `access_mode` is R, W or RW."""

    access_mode: AccessMode = ""


class ParamSpec(MemberSpec):
    """An output of an event, an input or output of a service; id `<owner>.<key>`."""

    ref: str | None = None


def _no_params() -> list[ParamSpec]:
    """A factory of our own: `omit_defaults` then still writes the empty list."""
    return []


class EventSpec(Wire):
    """Something that a thing tells when it happens."""

    id: str = ""
    name: str | None = None
    description: str | None = None
    type: Annotated[str, _one_of(EVENT_TYPES)] | None = None
    outputs: list[ParamSpec] = msgspec.field(default_factory=_no_params)


class ServiceSpec(Wire):
    """Something that a thing can be asked to do."""

    id: str = ""
    name: str | None = None
    description: str | None = None
    call_type: Annotated[str, _one_of(CALL_TYPES)] | None = None
    inputs: list[ParamSpec] = msgspec.field(default_factory=_no_params)
    outputs: list[ParamSpec] = msgspec.field(default_factory=_no_params)


class TslDocument(msgspec.Struct, kw_only=True):
    """The model of a thing: what it reports, tells, and can be asked to do."""

    version: str = "v1.0"
    properties: list[PropertySpec] = msgspec.field(default_factory=list)
    events: list[EventSpec] = msgspec.field(default_factory=list)
    services: list[ServiceSpec] = msgspec.field(default_factory=list)


def to_wire(document: TslDocument) -> dict[str, Any]:
    """Give `document` as plain values, ready for a JSON answer: camelCase, no nulls."""
    wire: dict[str, Any] = msgspec.to_builtins(document)
    return wire
