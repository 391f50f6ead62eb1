"""Decoders of messages from devices, compiled for a document or for any document.

A node becomes a msgspec type, a STRUCT a class whose fields are UNSET by default, so that
`to_builtins` returns plain dicts of the received values. These types are at least as strict as
`_check`, which finds the faults when decoding fails.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from libs.common.tsl._check import PATTERN_BY_ENCODING
from libs.common.tsl._node import Node
from libs.common.tsl.faults import Fault, MalformedReport
from libs.common.tsl.limits import MAX_KEY_LENGTH, MAX_TIME_MS

Timestamp = Annotated[int, Meta(ge=0, le=MAX_TIME_MS)]
"""Epoch milliseconds up to the year 9999."""


def properties_type(members: Mapping[str, Node]) -> Any:
    """Return the class of properties with the top-level `members`."""
    return _struct_type("Properties", members)


def report_decoder(properties: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of `{ts?, properties}` for a class of properties."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        ("properties", properties),
        ("ts", Timestamp | None, None),
    ]
    return msgspec.json.Decoder(msgspec.defstruct("ReportWire", fields))


def _struct_type(name: str, members: Mapping[str, Node]) -> Any:
    """Return a class with fields f0, f1, ..., so that any key may be a wire name."""
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
            return _bounded_type(int, node.low, node.high)
        case "FLOAT" | "DOUBLE":
            return _bounded_type(float, node.low, node.high)
        case "ENUM":
            return Literal[tuple(node.choices)]
        case "STRING":
            pattern = PATTERN_BY_ENCODING.get(node.encoding or "")
            return _sized_type(str, node, pattern=pattern)
        case "STRUCT":
            return _struct_type("Struct", node.members)
        case _:
            element: Any = _value_type(node.element) if node.element else Any
            return _sized_type(list[element], node)


def _bounded_type(kind: type, low: float | None, high: float | None) -> Any:
    return Annotated[kind, Meta(ge=low, le=high)]


def _sized_type(kind: Any, node: Node, pattern: str | None = None) -> Any:
    meta = Meta(min_length=node.min_size or None, max_length=node.max_size, pattern=pattern)
    return Annotated[kind, meta]


_T = TypeVar("_T")


class EventWire(msgspec.Struct, rename="camel"):
    """The message `{ts?, eventId, outputs?}`."""

    event_id: str
    ts: Timestamp | None = None
    outputs: dict[str, Any] | None = None


class ReportWire(msgspec.Struct):
    """The message `{ts?, properties}`; properties are not decoded, so each can fail separately."""

    properties: dict[str, msgspec.Raw]
    ts: Timestamp | None = None


_MISSING = "Object missing required field `"

_event_decoder = msgspec.json.Decoder(EventWire)
_report_decoder = msgspec.json.Decoder(ReportWire)


def read_event(raw: bytes) -> EventWire:
    """Return an event with unchecked outputs; raise `MalformedReport` if invalid."""
    return _decoded(_event_decoder, raw)


def read_report(raw: bytes) -> tuple[int | None, dict[str, Any], list[Fault]]:
    """Return `ts`, the decoded properties, and a fault for each undecodable one.

    Raises `MalformedReport` if the structure is invalid, or there is no property.
    """
    wire = _decoded(_report_decoder, raw)
    if not wire.properties:
        raise MalformedReport("must not be empty", "properties")
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, value in wire.properties.items():
        try:
            values[key] = msgspec.json.decode(value)
        except (ValueError, RecursionError) as error:
            faults.append(Fault(f"properties.{key[:MAX_KEY_LENGTH]}", f"cannot be read: {error}"))
    return wire.ts, values, faults


Values = dict[str, Any]
"""Values by top-level key: STRUCTs are objects, ARRAYs arrays."""


class Report(msgspec.Struct, frozen=True):
    """The valid properties of a report, and a fault for each invalid one.

    `ts` is the device's time in epoch milliseconds, None if it sent none.
    """

    ts: int | None
    properties: Values
    faults: list[Fault]


class Event(msgspec.Struct, frozen=True):
    """An event of a device; `ts` as in a report, `outputs` by short member name."""

    ts: int | None
    event_id: str
    outputs: Values


def decode_checked_report(
    raw: bytes, check: Callable[[Values], tuple[Values, list[Fault]]]
) -> Report:
    """Return a report, with properties checked by `check`; raise `MalformedReport`."""
    ts, values, faults = read_report(raw)
    good, bad = check(values)
    return Report(ts, good, faults + bad)


def _decoded(decoder: msgspec.json.Decoder[_T], raw: bytes) -> _T:
    try:
        return decoder.decode(raw)
    except ValueError as error:
        raise MalformedReport(*_split_message(str(error))) from error
    except RecursionError as error:
        raise MalformedReport(str(error)) from error


def _split_message(text: str) -> tuple[str, str]:
    """Return the reason in a message of msgspec, and the field, if any."""
    if text.startswith(_MISSING):
        return "is required", text.removeprefix(_MISSING).rstrip("`")
    reason, _, place = text.partition(" - at `$.")
    return reason, place.rstrip("`")
