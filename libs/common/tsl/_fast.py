"""Decoders made to measure: they parse and validate JSON bytes in one pass.

A node becomes a type of msgspec, a STRUCT a class whose fields are UNSET by default, so
that `to_builtins` gives plain dicts of what was sent. These types are at least as strict
as `_check`, which names the faults when one of them refuses.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from libs.common.tsl._check import PATTERNS
from libs.common.tsl._node import Node
from libs.common.tsl.limits import MAX_TS

Timestamp = Annotated[int, Meta(ge=0, le=MAX_TS)]
"""Epoch milliseconds up to the year 9999."""


def properties_type(members: Mapping[str, Node]) -> Any:
    """Make the class of properties, closed over the top-level `members`."""
    return _struct_type("Properties", members)


def report_decoder(properties: Any) -> msgspec.json.Decoder[Any]:
    """Make the decoder of `{ts?, properties}` with properties of a class."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        ("properties", properties),
        ("ts", Timestamp | None, None),
    ]
    return msgspec.json.Decoder(msgspec.defstruct("ReportWire", fields))


def _struct_type(name: str, members: Mapping[str, Node]) -> Any:
    """Make a class with fields f0, f1, ..., so that any key will do as a wire name."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for at, node in enumerate(members.values()):
        kind = _value_type(node)
        fields.append((f"f{at}", kind) if node.required else (f"f{at}", kind | UnsetType, UNSET))
    return msgspec.defstruct(
        name,
        fields,
        rename={f"f{at}": key for at, key in enumerate(members)},
        forbid_unknown_fields=True,
        kw_only=True,
    )


def _value_type(node: Node) -> Any:  # noqa: PLR0911 - one type after the other
    match node.kind:
        case "BOOL":
            return bool
        case "INT" | "LONG" | "DATE":
            return _bounded(int, node.low, node.high)
        case "FLOAT" | "DOUBLE":
            return _bounded(float, node.low, node.high)
        case "ENUM":
            return Literal[tuple(node.choices)]
        case "STRING":
            pattern = PATTERNS.get(node.encoding or "")
            return _sized(str, node, pattern=pattern)
        case "STRUCT":
            return _struct_type("Struct", node.members)
        case _:
            element: Any = _value_type(node.element) if node.element else Any
            return _sized(list[element], node)


def _bounded(kind: type, low: float | None, high: float | None) -> Any:
    return Annotated[kind, Meta(ge=low, le=high)]


def _sized(kind: Any, node: Node, pattern: str | None = None) -> Any:
    meta = Meta(min_length=node.min_size or None, max_length=node.max_size, pattern=pattern)
    return Annotated[kind, meta]
