"""The tree of members behind the flat list of a document, ready to check values with."""

import math
from collections.abc import Iterable

import msgspec

from libs.common.tsl.document import ITEM, NUMBERS, DataSpec, MemberSpec, PropertySpec, Validator
from libs.common.tsl.limits import INT_RANGE, LONG_RANGE, MAX_DATE

_INTEGER_RANGES = {"INT": INT_RANGE, "LONG": LONG_RANGE, "DATE": (0, MAX_DATE)}


class Node(msgspec.Struct, kw_only=True):
    """One value of a thing: its type, its bounds (inclusive), and what it holds.

    `low` and `high` are always set for INT, LONG and DATE, whose types bound them.
    `min_size` and `max_size` count characters of a STRING or elements of an ARRAY.
    """

    kind: str
    writable: bool = True
    readable: bool = True
    conceals: bool = False
    """Whether it, or something in it, is write-only."""
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


def build_tree(entries: Iterable[MemberSpec], owner: str = "") -> dict[str, Node]:
    """Turn flat entries with dotted ids into top-level nodes by key.

    `owner` is the id of the event or service whose parameters these are.
    """
    nodes = {entry.id: _node(entry) for entry in entries}
    top: dict[str, Node] = {}
    for path, node in nodes.items():
        parent, _, key = path.rpartition(".")
        if parent == owner:
            top[key] = node
        elif key == ITEM:
            nodes[parent].element = node
        else:
            nodes[parent].members[key] = node
    for node in top.values():
        _settle_reading(node, above=True)
    return top


def _settle_reading(node: Node, *, above: bool) -> None:
    """Note what cannot be read: what is in a write-only member, and an ARRAY of such elements."""
    node.readable = node.readable and above
    inner = [*node.members.values(), *([node.element] if node.element else [])]
    for one in inner:
        _settle_reading(one, above=node.readable)
    if node.element and not node.element.readable:
        node.readable = False
    node.conceals = not node.readable or any(one.conceals for one in inner)


def _node(entry: MemberSpec) -> Node:
    node = value_node(entry.data_spec)
    if isinstance(entry, PropertySpec):
        node.writable = "W" in entry.access_mode
        node.readable = "R" in entry.access_mode
    return node


def value_node(spec: DataSpec) -> Node:
    """Make the node of one entry alone, without its members.

    An ARRAY of scalars may lack its `_item`; then bounds, encoding and mapping of the
    array hold for each element, and its sizes for the array.
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
    elif kind in NUMBERS:
        node.low, node.high = bounds(kind, rules)
    elif kind == "STRING":
        node.encoding = spec.encoding
    elif kind == "ENUM":
        node.choices = spec.mapping or {}
    return node


def element_spec(spec: DataSpec) -> DataSpec:
    """Give what an ARRAY without an `_item` says of its elements."""
    rules = spec.validator or Validator()
    return msgspec.structs.replace(
        spec,
        data_type=spec.element_data_type or "",
        element_data_type=None,
        default_value=None,
        validator=Validator(min=rules.min, max=rules.max),
    )


def bounds(kind: str, rules: Validator) -> tuple[int | float | None, int | float | None]:
    """Give the least and the greatest value that a number of type `kind` may have."""
    if kind not in _INTEGER_RANGES:
        low, high = rules.min, rules.max
        return None if low is None else float(low), None if high is None else float(high)
    least, greatest = _INTEGER_RANGES[kind]
    if rules.min is not None:
        least = max(least, math.ceil(rules.min))
    if rules.max is not None:
        greatest = min(greatest, math.floor(rules.max))
    return least, greatest
