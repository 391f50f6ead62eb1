"""Members of a TSL that have entities: two levels, each member with a number.

A STRUCT is an OBJECT whose children are its leaves of all levels (`wifi` and `wifi.ap.ssid`). The
children of a service are its inputs, those of an event its outputs; both are OBJECTs. An ARRAY is
one entity, an OBJECT whose value is the array. An event with the id of a property gets the suffix
`@event` in its key. A service with the id of a property or an event gets the suffix `@service`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from libs.common.things import AccessMod, EntityType, ValueType
from libs.common.tsl import (
    DataSpec,
    ParamSpec,
    PropertyOrParamSpec,
    PropertySpec,
    TslDocument,
    ids_from_keys,
)
from libs.common.tsl.document import ITEM_KEY

_VALUE_TYPE_BY_DATA_TYPE: dict[str, ValueType] = {
    "INT": "LONG",
    "LONG": "LONG",
    "DATE": "LONG",
    "FLOAT": "DOUBLE",
    "DOUBLE": "DOUBLE",
    "BOOL": "BOOLEAN",
    "STRING": "STRING",
    "STRUCT": "OBJECT",
    "ARRAY": "OBJECT",
}


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a thing, as its entity shows it."""

    number: int
    path: str
    """Path after the key of the thing; empty for a custom entity itself."""
    type: EntityType
    name: str
    declared: str | None = None
    """The name in the TSL if users have renamed the entity, otherwise None."""
    value_type: ValueType
    access_mod: AccessMod | None = None
    """Access mode of a property. Events and services have `W`, because editors offer no events and
    services without an access mode, and show no field for them."""
    attribute: dict[str, Any] = {}
    """`value_attribute` of the entity in the management API."""
    parent: str | None = None
    """Path of the OBJECT that contains the member; None at the top level."""
    description: str | None = None
    visible: bool = True
    concealed: list[str] = []
    """Paths of write-only members in the elements of an ARRAY, such as `user.code`."""

    def __post_init__(self) -> None:
        """Set the access mode of events and services, which older documents lack."""
        if self.type != "PROPERTY":
            msgspec.structs.force_setattr(self, "access_mod", "W")

    @property
    def number_key(self) -> str:
        """Return the key under which the member's number is stored; independent of suffixes."""
        return f"{self.type}:{self.path.replace(f'@{self.type.lower()}', '', 1)}"

    @property
    def write_only(self) -> bool:
        """Return whether the member is a property whose value cannot be read."""
        return self.type == "PROPERTY" and self.access_mod == "W"

    @property
    def writable(self) -> bool:
        """Return whether the member is a property that can be written."""
        return self.type == "PROPERTY" and self.access_mod in ("W", "RW")


class MemberSet:
    """The immutable members of a thing, shared by all things of a model."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = tuple(sorted(members, key=lambda member: member.path))
        """Sorted by path, so that children follow their parent."""
        self.by_number = {member.number: member for member in self.members}
        self.by_path = {member.path: member for member in self.members}

    def rename(self, names: Mapping[str, str]) -> "MemberSet":
        """Return a copy whose members have the names in `names`, by path."""
        return MemberSet(
            msgspec.structs.replace(member, name=names[member.path], declared=member.name)
            if member.path in names
            else member
            for member in self.members
        )

    def children(self, path: str) -> list[Member]:
        """Return the children of a member, sorted by path."""
        return [member for member in self.members if member.parent == path]

    def list_in_tree_order(self) -> list[Member]:
        """Return all members by number, with each parent followed by its children."""
        children: dict[str | None, list[Member]] = defaultdict(list)
        for member in sorted(self.members, key=lambda member: member.number):
            children[member.parent].append(member)
        return [member for top in children[None] for member in (top, *children[top.path])]


def number_keys(document: TslDocument) -> list[str]:
    """Return the `number_key` of each member: of properties, then events, then services."""
    return [member.number_key for member in _list_declared(document)]


def build_members(document: TslDocument, numbers: Mapping[str, int]) -> MemberSet:
    """Return the members of a TSL document, numbered by `numbers`.

    `numbers` maps the `number_key` of a member to its number. Members without one are omitted.
    """
    return MemberSet(
        msgspec.structs.replace(member, number=numbers[member.number_key])
        for member in _list_declared(document)
        if member.number_key in numbers
    )


def _list_declared(document: TslDocument) -> Iterator[Member]:
    """Yield the members of a document, all with number 0; paths consist of property keys."""
    document = ids_from_keys(document)
    access = _effective_access_modes(document.properties)
    for entry in _filter_entries_with_entity(document.properties):
        yield _property_member(entry, access)
    used_ids = {entry.id for entry in document.properties}
    for event in document.events:
        path = f"{event.id}@event" if event.id in used_ids else event.id
        yield _event_or_service_member("EVENT", path, event.name or event.id, event.description)
        yield from _parameter_members("EVENT", event.id, path, event.outputs)
    used_ids |= {event.id for event in document.events}
    for service in document.services:
        path = f"{service.id}@service" if service.id in used_ids else service.id
        yield _event_or_service_member(
            "SERVICE", path, service.name or service.id, service.description
        )
        yield from _parameter_members("SERVICE", service.id, path, service.inputs)


def _filter_entries_with_entity(
    entries: Sequence[PropertyOrParamSpec], parent_id: str = ""
) -> Iterator[Any]:
    """Yield the entries that have an entity.

    An entry inside an ARRAY has none, and a STRUCT has one only as a top-level property.
    `parent_id` is the id of the event or service whose parameters `entries` are.
    """
    arrays = {entry.id for entry in entries if entry.data_spec.data_type == "ARRAY"}
    for entry in entries:
        parts = entry.id.split(".")
        ancestors = {".".join(parts[:end]) for end in range(1, len(parts))}
        is_top_level = not ancestors - {parent_id}
        is_inner_struct = entry.data_spec.data_type == "STRUCT" and (parent_id or not is_top_level)
        if not is_inner_struct and arrays.isdisjoint(ancestors):
            yield entry


def _effective_access_modes(entries: Sequence[PropertySpec]) -> dict[str, str]:
    """Return access modes by id.

    Members of a write-only member are write-only, and so is an ARRAY with write-only elements.
    """
    access_modes: dict[str, str] = {}
    for entry in sorted(entries, key=lambda entry: entry.id.count(".")):
        parent_mode = access_modes.get(entry.id.rpartition(".")[0])
        access_modes[entry.id] = "W" if parent_mode == "W" else entry.access_mode
    for entry in sorted(entries, key=lambda entry: -entry.id.count(".")):
        array_path, _, key = entry.id.rpartition(".")
        if key == ITEM_KEY and access_modes[entry.id] == "W":
            access_modes[array_path] = "W"
    return access_modes


def _property_member(entry: PropertySpec, access_modes: Mapping[str, str]) -> Member:
    parent, _, _ = entry.id.partition(".")
    access: Any = access_modes[entry.id]
    attribute = value_attribute(entry.data_spec)
    if access == "W":  # a form cannot show its value, so it must not require one
        attribute["optional"] = True
    return Member(
        number=0,
        path=entry.id,
        type="PROPERTY",
        name=entry.name or entry.id.rpartition(".")[2],
        value_type=select_value_type(entry.data_spec),
        access_mod=access or None,
        attribute=attribute,
        parent=parent if parent != entry.id else None,
        description=entry.description,
        concealed=_list_write_only_paths(entry, access_modes),
    )


def _list_write_only_paths(entry: PropertySpec, access_modes: Mapping[str, str]) -> list[str]:
    """Return the paths of write-only members in the elements of an ARRAY."""
    if entry.data_spec.data_type != "ARRAY":
        return []
    prefix = f"{entry.id}.{ITEM_KEY}."
    paths = [
        path.removeprefix(prefix).replace(f".{ITEM_KEY}", "")
        for path, access in access_modes.items()
        if path.startswith(prefix) and access == "W"
    ]
    return sorted(paths)


def _event_or_service_member(
    kind: EntityType, path: str, name: str, description: str | None
) -> Member:
    return Member(
        number=0, path=path, type=kind, name=name, value_type="OBJECT", description=description
    )


def _parameter_members(
    kind: EntityType, parent_id: str, path: str, params: Sequence[ParamSpec]
) -> Iterator[Member]:
    for entry in _filter_entries_with_entity(params, parent_id):
        attribute = value_attribute(entry.data_spec)
        rules = entry.data_spec.validator
        if kind == "SERVICE" and not (rules and rules.required):
            attribute["optional"] = True
        yield Member(
            number=0,
            path=path + entry.id.removeprefix(parent_id),
            type=kind,
            name=entry.name or entry.id.rpartition(".")[2],
            value_type=select_value_type(entry.data_spec),
            attribute=attribute,
            parent=path,
            description=entry.description,
        )


def select_value_type(spec: DataSpec) -> ValueType:
    """Return the value type of an entity."""
    if spec.data_type == "ENUM":
        return "LONG" if all(map(_is_integer_key, spec.mapping or {})) else "STRING"
    if spec.data_type == "STRING" and spec.encoding == "BASE64":
        return "BINARY"
    return _VALUE_TYPE_BY_DATA_TYPE[spec.data_type]


def _is_integer_key(key: str) -> bool:
    """Return whether the key of an ENUM is a whole number in canonical form."""
    return len(key) < 16 and key.removeprefix("-").isdecimal() and key == str(int(key))  # noqa: PLR2004 - below 2^53


def value_attribute(spec: DataSpec) -> dict[str, Any]:
    """Return the `value_attribute` of an entity: unit, bounds, choices, format, decimal places."""
    rules = spec.validator
    text = spec.data_type == "STRING"
    attribute = {
        "unit": spec.unit_name or None,
        "min": rules.min if rules else None,
        "max": rules.max if rules else None,
        "min_length": rules.min_size if rules and text else None,
        "max_length": rules.max_size if rules and text else None,
        "enum": spec.mapping if spec.data_type == "ENUM" else None,
        "format": spec.encoding if spec.encoding == "HEX" else None,
        "fraction_digits": spec.fraction_digits,
    }
    return {key: value for key, value in attribute.items() if value is not None}


def convert_stored_value(member: Member, value: Any) -> Any:
    """Return a stored value in the type of the entity.

    ENUM keys are stored as text. Values of the product `generic` that had several types are text. A
    value that is not a number, from a TSL version with another type, stays as it is. Elements of an
    ARRAY lack their write-only members, which another TSL version may have stored.
    """
    for path in member.concealed:
        value = _remove_member(value, path.split("."))
    if member.value_type == "LONG" and isinstance(value, str):
        return int(value) if _is_integer_key(value) else value
    if member.value_type == "STRING" and not isinstance(value, str):
        return msgspec.json.encode(value).decode()
    return value


def _remove_member(value: Any, path: Sequence[str]) -> Any:
    """Return a value without the member at a path, in each element of arrays."""
    if isinstance(value, list):
        return [_remove_member(item, path) for item in value]
    if not isinstance(value, dict) or path[0] not in value:
        return value
    if len(path) == 1:
        return {key: item for key, item in value.items() if key != path[0]}
    return {**value, path[0]: _remove_member(value[path[0]], path[1:])}
