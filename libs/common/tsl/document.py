"""The TSL document on the wire (device open API, section TSL_Model).

`parse_document` checks and normalises the document in these structs; treat them as read-only.
Their empty defaults permit to decode incomplete vendor documents.
Property keys are the names of values if they differ from ids. A key is a path like an id: the key
of a member continues the key of its parent. Documents keep imported ids and keys; code that reads
or checks values uses `ids_from_keys`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from libs.common.tsl.faults import Faults
from libs.common.tsl.limits import find_key_fault, find_sign_fault

NUMBER_TYPES: Final = frozenset({"INT", "LONG", "FLOAT", "DOUBLE", "DATE"})
CONTAINER_TYPES: Final = frozenset({"STRUCT", "ARRAY"})
DATA_TYPES: Final = NUMBER_TYPES | CONTAINER_TYPES | {"BOOL", "STRING", "ENUM"}
ENCODINGS: Final = frozenset({"HEX", "ASCII", "UTF8", "BASE64"})
ACCESS_MODES: Final = frozenset({"R", "W", "RW"})
EVENT_TYPES: Final = frozenset({"INFO", "WARN", "ERROR"})
CALL_TYPES: Final = frozenset({"SYNC", "ASYNC"})
ITEM_KEY: Final = "_item"
"""Key of the member that describes the elements of an ARRAY."""


def _permitted(values: frozenset[str]) -> msgspec.Meta:
    """Return metadata that documents a field's permitted values without checking them."""
    return msgspec.Meta(extra_json_schema={"extra": {"enum": sorted(values)}})


DataType = Annotated[str, _permitted(DATA_TYPES)]
AccessMode = Annotated[str, _permitted(ACCESS_MODES)]


class WireStruct(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Base of the parts of the document: camelCase names, absent fields omitted."""


class Validator(WireStruct):
    """Inclusive bounds of a value; sizes in characters (STRING) or elements (ARRAY)."""

    min: int | float | None = None
    """Minimum of a number."""
    max: int | float | None = None
    """Maximum of a number."""
    min_size: int | None = None
    """Minimum number of characters or elements."""
    max_size: int | None = None
    """Maximum number of characters or elements."""
    required: bool | None = None
    """Whether a service call must contain the value."""


class Assist(WireStruct):
    """Hints for decoders, which are stored but not used."""

    provider_type: str | None = None
    depends_on_value: dict[str, Any] | None = None
    id: str | None = None
    values: list[int] | None = None
    length_by: str | None = None
    index_by: str | None = None
    index_base: int | None = None
    separate_elements: bool | None = None


class MappingItem(WireStruct):
    """An entry of an enumeration in its list form."""

    key: str = ""
    """Value in reports and commands, for example `1`."""
    value: str = ""
    """Text that users see, for example `heat`."""


class DataSpec(WireStruct):
    """Type and bounds of a value, for properties and parameters."""

    data_type: DataType = ""
    """Type of the value."""
    element_data_type: DataType | None = None
    """Type of the elements of an `ARRAY`."""
    parent_id: str | None = None
    """Id of the `STRUCT`, event or service that contains the value."""
    default_value: str | None = None
    """Default value as text."""
    unit_name: str | None = None
    """Unit, for example `°C`."""
    fraction_digits: int | None = None
    """Decimal places to which reported values are rounded."""
    coefficient: int | float | None = None
    """Factor of another raw encoding. The platform does not apply it."""
    validator: Validator | None = None
    """Bounds of the value."""
    encoding: Annotated[str, _permitted(ENCODINGS)] | None = None
    """Encoding of a `STRING`."""
    mapping: dict[str, str] | None = None
    """Names of the values of an `ENUM`, for example `{"0": "off", "1": "heat"}`."""
    mappings: list[MappingItem] | None = None
    """Names of the values of an `ENUM`, as a list."""
    ref: str | None = None
    """Id of the property that defines the type."""
    assist: Assist | None = None
    """Hints for decoders, which the platform does not use."""


class PropertyOrParamSpec(WireStruct):
    """The common fields of properties and parameters; members are flat, with dotted ids."""

    id: str = ""
    property_key: str | None = None
    name: str | None = None
    description: str | None = None
    data_spec: DataSpec = msgspec.field(default_factory=DataSpec)


class PropertySpec(PropertyOrParamSpec):
    """A property or a member of one."""

    access_mode: AccessMode = ""
    """`R` (read only), `W` (write only) or `RW`."""


class ParamSpec(PropertyOrParamSpec):
    """An output of an event, or an input or output of a service; its id is `<owner>.<key>`."""

    ref: str | None = None
    """Id of the property that defines the parameter."""


def _no_params() -> list[ParamSpec]:
    """Return an empty list that is encoded in spite of `omit_defaults`."""
    return []


class EventSpec(WireStruct):
    """An event that a thing can report."""

    id: str = ""
    name: str | None = None
    description: str | None = None
    type: Annotated[str, _permitted(EVENT_TYPES)] | None = None
    """`INFO`, `WARN` or `ERROR`."""
    outputs: list[ParamSpec] = msgspec.field(default_factory=_no_params)
    """Values that the device reports with the event."""


class ServiceSpec(WireStruct):
    """A service of a thing that can be called."""

    id: str = ""
    name: str | None = None
    description: str | None = None
    call_type: Annotated[str, _permitted(CALL_TYPES)] | None = None
    """Whether a caller waits for the outputs: `SYNC` or `ASYNC`."""
    inputs: list[ParamSpec] = msgspec.field(default_factory=_no_params)
    """Values that a call contains."""
    outputs: list[ParamSpec] = msgspec.field(default_factory=_no_params)
    """Values that the device returns."""


class TslDocument(msgspec.Struct, kw_only=True):
    """The model of a thing: its properties, events and services."""

    version: str = "v1.0"
    """Version of the document, for example `v1.0`."""
    properties: list[PropertySpec] = msgspec.field(default_factory=list)
    """States and settings of the thing."""
    events: list[EventSpec] = msgspec.field(default_factory=list)
    """Events that the thing reports."""
    services: list[ServiceSpec] = msgspec.field(default_factory=list)
    """Commands that the thing accepts."""


def to_wire(document: TslDocument) -> dict[str, Any]:
    """Return `document` as plain values for a JSON answer: camelCase, without nulls."""
    wire: dict[str, Any] = msgspec.to_builtins(document)
    return wire


_M = TypeVar("_M", bound=PropertyOrParamSpec)


def complete_keys(
    entries: Sequence[PropertyOrParamSpec],
    path: str,
    owner: str,
    faults: Faults,
    *,
    stored: bool = False,
) -> None:
    """Complete the property keys of entries with valid ids, in place.

    A key may be given completely, or only its last part. It must be unique, and not the id of
    another entry. A `stored` document may have characters that are rejected in new ones.
    """
    keys = {owner: owner}
    places: dict[str, int] = {}
    ids = {entry.id: at for at, entry in enumerate(entries)}
    for at in sorted(ids.values(), key=lambda at: entries[at].id.count(".")):
        entry, place = entries[at], f"{path}[{at}].propertyKey"
        parent, _, last = entry.id.rpartition(".")
        last_part = _own_key(entry, {parent, keys[parent]}, last)
        reason = _key_fault(last_part, last, stored=stored)
        if reason is not None:
            faults.add(
                place,
                reason if last_part else f"must be a single key, or begin with '{keys[parent]}.'",
            )
            last_part = last
        key = f"{keys[parent]}.{last_part}" if keys[parent] else last_part
        keys[entry.id] = entry.property_key = key
        if places.setdefault(key, at) != at:
            faults.add(place, f"repeats {path}[{places[key]}].propertyKey")
        elif ids.get(key, at) != at:
            faults.add(place, f"is the id of {path}[{ids[key]}]")


def _own_key(entry: PropertyOrParamSpec, parents: set[str], last: str) -> str:
    """Return the last part of a key; empty if it does not continue the parent's key."""
    property_key = entry.property_key
    if not property_key or property_key == entry.id:
        return last
    above, dot, last_part = property_key.rpartition(".")
    return last_part if not dot or above in parents else ""


def _key_fault(last_part: str, last: str, *, stored: bool) -> str | None:
    if last_part == last:
        return None
    if ITEM_KEY in {last_part, last}:
        return f"must end in '{last}'" if last == ITEM_KEY else f"must not end in '{ITEM_KEY}'"
    return find_key_fault(last_part) or (None if stored else find_sign_fault(last_part))


def ids_from_keys(document: TslDocument) -> TslDocument:
    """Return a document with property keys as ids; the same document if they are equal."""
    if all(entry.property_key in {None, entry.id} for entry in iterate_entries(document)):
        return document
    return replace(
        document,
        properties=keyed_entries(document.properties),
        events=[replace(event, outputs=keyed_entries(event.outputs)) for event in document.events],
        services=[
            replace(
                service,
                inputs=keyed_entries(service.inputs),
                outputs=keyed_entries(service.outputs),
            )
            for service in document.services
        ],
    )


def keys_from_ids(document: TslDocument) -> TslDocument:
    """Return a document whose property keys are its ids, as before keys were supported."""
    if ids_from_keys(document) is document:
        return document
    plain: TslDocument = msgspec.convert(msgspec.to_builtins(document), TslDocument)
    for entry in iterate_entries(plain):
        entry.property_key = entry.id
    return plain


def iterate_entries(document: TslDocument) -> Iterator[PropertyOrParamSpec]:
    """Yield the properties and parameters of a document."""
    yield from document.properties
    for event in document.events:
        yield from event.outputs
    for service in document.services:
        yield from (*service.inputs, *service.outputs)


def keyed_entries(entries: Iterable[_M]) -> list[_M]:
    """Return entries with their keys as ids."""
    return [_with_key(entry, entry.property_key or entry.id) for entry in entries]


def _with_key(entry: _M, key: str) -> _M:
    spec = replace(entry.data_spec, parent_id=key.rpartition(".")[0] or None)
    return replace(entry, id=key, data_spec=spec)
