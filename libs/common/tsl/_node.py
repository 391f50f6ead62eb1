"""The tree of members of a document, and the conversion of their values.

Codecs of manufacturers send booleans as 0 and 1. Numbers are rounded once, when they are decoded:
half up, away from zero, by their decimal representation. With `fractionDigits` 2, 2.675 becomes
2.68, regardless of its nearest float. Bounds apply to the value before rounding, and rounding does
not exceed them.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import msgspec

from libs.common.decoding import parse_number
from libs.common.tsl.document import (
    ITEM_KEY,
    NUMBER_TYPES,
    DataSpec,
    MappingItem,
    ParamSpec,
    PropertyOrParamSpec,
    PropertySpec,
    Validator,
)
from libs.common.tsl.faults import Faults
from libs.common.tsl.limits import INT_RANGE, LONG_RANGE, MAX_DATE_SECONDS

_INTEGER_RANGE_BY_TYPE = {"INT": INT_RANGE, "LONG": LONG_RANGE, "DATE": (0, MAX_DATE_SECONDS)}


class Node(msgspec.Struct, kw_only=True):
    """A value of a thing: its type, its inclusive bounds, and its members.

    `low` and `high` are always set for INT, LONG and DATE. `min_size` and `max_size` count
    characters of a STRING or elements of an ARRAY.
    """

    kind: str
    writable: bool = True
    readable: bool = True
    conceals: bool = False
    """Whether it, or a part of it, is write-only."""
    required: bool = False
    low: int | float | None = None
    high: int | float | None = None
    min_size: int = 0
    max_size: int | None = None
    encoding: str | None = None
    choices: dict[str, str] = msgspec.field(default_factory=dict)
    digits: int | None = None
    default: str | None = None
    members: dict[str, "Node"] = msgspec.field(default_factory=dict)
    element: "Node | None" = None


def build_tree(entries: Iterable[PropertyOrParamSpec], owner: str = "") -> dict[str, Node]:
    """Return top-level nodes by key for a flat list of entries with dotted ids.

    `owner` is the id of the event or service of the parameters.
    """
    nodes = {entry.id: _node(entry) for entry in entries}
    top: dict[str, Node] = {}
    for path, node in nodes.items():
        parent, _, key = path.rpartition(".")
        if parent == owner:
            top[key] = node
        elif key == ITEM_KEY:
            nodes[parent].element = node
        else:
            nodes[parent].members[key] = node
    for node in top.values():
        _set_readable(node, above=True)
    return top


def _set_readable(node: Node, *, above: bool) -> None:
    """Set `readable` and `conceals` of a node and its members.

    Members of a write-only node are write-only, and so is an ARRAY of write-only elements.
    """
    node.readable = node.readable and above
    inner = [*node.members.values(), *([node.element] if node.element else [])]
    for child in inner:
        _set_readable(child, above=node.readable)
    if node.element and not node.element.readable:
        node.readable = False
    node.conceals = not node.readable or any(child.conceals for child in inner)


def _node(entry: PropertyOrParamSpec) -> Node:
    node = value_node(entry.data_spec)
    if isinstance(entry, PropertySpec):
        node.writable = "W" in entry.access_mode
        node.readable = "R" in entry.access_mode
    return node


def value_node(spec: DataSpec) -> Node:
    """Return the node of one entry, without its members.

    An ARRAY of scalars may lack its `_item`. Then its bounds, encoding and mapping apply to each
    element, and its sizes to the array.
    """
    rules = spec.validator or Validator()
    kind = spec.data_type
    node = Node(
        kind=kind,
        required=bool(rules.required),
        digits=spec.fraction_digits,
        default=spec.default_value,
        min_size=rules.min_size or 0,
        max_size=rules.max_size,
    )
    if kind == "ARRAY" and spec.element_data_type:
        node.element = value_node(element_spec(spec))
    elif kind in NUMBER_TYPES:
        node.low, node.high = find_number_bounds(kind, rules)
    elif kind == "STRING":
        node.encoding = spec.encoding
    elif kind == "ENUM":
        node.choices = spec.mapping or {}
    return node


def element_spec(spec: DataSpec) -> DataSpec:
    """Return the specification of the elements of an ARRAY without an `_item`."""
    rules = spec.validator or Validator()
    return msgspec.structs.replace(
        spec,
        data_type=spec.element_data_type or "",
        element_data_type=None,
        default_value=None,
        validator=Validator(min=rules.min, max=rules.max),
    )


def find_number_bounds(
    kind: str, rules: Validator
) -> tuple[int | float | None, int | float | None]:
    """Return the minimum and maximum of a number of type `kind`."""
    if kind not in _INTEGER_RANGE_BY_TYPE:
        low, high = rules.min, rules.max
        return None if low is None else float(low), None if high is None else float(high)
    least, greatest = _INTEGER_RANGE_BY_TYPE[kind]
    if rules.min is not None:
        least = max(least, math.ceil(rules.min))
    if rules.max is not None:
        greatest = min(greatest, math.floor(rules.max))
    return least, greatest


def find_boolean_places(members: Mapping[str, Node]) -> dict[str, Any]:
    """Return the places of booleans in a tree: True for a boolean, else nested places."""
    places_by_key = {key: _boolean_places(node) for key, node in members.items()}
    return {key: below for key, below in places_by_key.items() if below}


def _boolean_places(node: Node) -> Any:
    if node.kind == "BOOL":
        return True
    if node.element is not None:
        return [below] if (below := _boolean_places(node.element)) else None
    return find_boolean_places(node.members)


def convert_to_booleans(places: Any, value: Any) -> Any:
    """Return `value` with 0 and 1 replaced by booleans at `places`."""
    if places is True:
        return bool(value) if type(value) in {int, float} and value in {0, 1} else value
    if isinstance(places, list) and isinstance(value, list):
        return [convert_to_booleans(places[0], element) for element in value]
    if isinstance(places, dict) and isinstance(value, dict):
        made = {key: convert_to_booleans(places[key], value[key]) for key in places if key in value}
        return {**value, **made}
    return value


def parse_members(members: Mapping[str, Node], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with numeric text parsed where `members` are numbers."""
    return {
        key: _parse(members[key], value) if key in members else value
        for key, value in values.items()
    }


def _parse(node: Node, value: Any) -> Any:
    if isinstance(value, str) and node.kind in NUMBER_TYPES:
        number = parse_number(value)
        return value if number is None else number
    if isinstance(value, dict):
        return parse_members(node.members, value)
    if isinstance(value, list) and node.element is not None:
        return [_parse(node.element, item) for item in value]
    return value


Rounder = Callable[[Any], Any]
"""Returns a checked value with rounded numbers; modifies objects and arrays."""

_EXACT = Context(prec=40)
"""A float below 2^53 with 15 places has at most 31 digits; a larger float is an integer."""


def round_number(node: Node, number: float) -> float:
    """Return `number`, which is within the bounds of `node`, rounded to its places."""
    digits = node.digits
    if digits is None or round(number, digits) == number:
        return number
    place = Decimal(1).scaleb(-digits)
    near = float(Decimal(repr(number)).quantize(place, ROUND_HALF_UP, _EXACT)) + 0.0  # no -0.0
    if node.high is not None and near > node.high:
        return node.high
    return near if node.low is None or near >= node.low else node.low


def build_rounders(members: Mapping[str, Node]) -> dict[str, Rounder]:
    """Return rounders for the members with `fractionDigits`."""
    made = {key: _rounder(node) for key, node in members.items()}
    return {key: rounder for key, rounder in made.items() if rounder is not None}


def round_members(members: Mapping[str, Rounder], values: dict[str, Any]) -> dict[str, Any]:
    """Round the `members` among `values`, in place."""
    for key, rounder in members.items():
        if key in values:
            values[key] = rounder(values[key])
    return values


def _rounder(node: Node) -> Rounder | None:
    if node.kind in {"FLOAT", "DOUBLE"}:
        return None if node.digits is None else lambda number: round_number(node, number)
    if node.kind == "STRUCT":
        inner = build_rounders(node.members)
        return (lambda values: round_members(inner, values)) if inner else None
    element = _rounder(node.element) if node.kind == "ARRAY" and node.element else None
    return None if element is None else lambda items: [element(item) for item in items]


def normalise_member(entry: PropertyOrParamSpec, path: str, faults: Faults) -> None:
    """Normalise types, encoding and mapping of a property or parameter, in place."""
    spec = entry.data_spec
    spec.data_type = spec.data_type.upper()
    spec.element_data_type = (spec.element_data_type or "").upper() or None
    spec.encoding = (spec.encoding or "").upper().replace("-", "") or None
    spec.parent_id = spec.parent_id or None
    if spec.data_type != "STRING" and not spec.default_value:
        spec.default_value = None
    entry.property_key = entry.property_key or entry.id or None
    _unite_mappings(spec, f"{path}.dataSpec", faults)


def _unite_mappings(spec: DataSpec, path: str, faults: Faults) -> None:
    """Complete the object or list form of an enumeration from the other."""
    listed: dict[str, str] = {}
    for at, item in enumerate(spec.mappings or []):
        if item.key in listed:
            faults.add(f"{path}.mappings[{at}].key", "is given twice")
        listed[item.key] = item.value
    if spec.mapping and listed and spec.mapping != listed:
        faults.add(f"{path}.mappings", "contradicts mapping")
    spec.mapping = spec.mapping or listed or None
    if spec.mapping:
        spec.mappings = [MappingItem(key=key, value=name) for key, name in spec.mapping.items()]
    else:
        spec.mappings = None


def qualify_params(params: Sequence[ParamSpec], owner: str) -> None:
    """Complete parameter ids to `<owner>.<key>`; set both `ref` and `dataSpec.ref`.

    Vendors omit the owner, or the complete id of a parameter with a `ref`.
    """
    for param in params:
        spec = param.data_spec
        param.ref = spec.ref = param.ref or spec.ref or None
        key = param.id or (param.ref or "").rpartition(".")[2]
        if key and not key.startswith(f"{owner}."):
            if param.property_key in {None, key}:
                param.property_key = f"{owner}.{key}"
            key = f"{owner}.{key}"
        param.id = key
        param.property_key = param.property_key or key or None
        if spec.parent_id and spec.parent_id != owner:
            spec.parent_id = f"{owner}.{spec.parent_id.removeprefix(f'{owner}.')}"
