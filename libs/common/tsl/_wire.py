"""The outer shape of what devices send, read without knowing the members."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from libs.common.tsl._fast import Timestamp
from libs.common.tsl.faults import Fault, MalformedReport
from libs.common.tsl.interface import Report, Values
from libs.common.tsl.limits import MAX_KEY

_T = TypeVar("_T")


class EventWire(msgspec.Struct, rename="camel"):
    """`{ts?, eventId, outputs?}`."""

    event_id: str
    ts: Timestamp | None = None
    outputs: dict[str, Any] | None = None


class ReportWire(msgspec.Struct):
    """`{ts?, properties}`, each property still as its bytes, so that one cannot spoil all."""

    properties: dict[str, msgspec.Raw]
    ts: Timestamp | None = None


_MISSING = "Object missing required field `"

_event_decoder = msgspec.json.Decoder(EventWire)
_report_decoder = msgspec.json.Decoder(ReportWire)


def read_event(raw: bytes) -> EventWire:
    """Read the shape of an event; raises `MalformedReport`."""
    return _decoded(_event_decoder, raw)


def read_report(raw: bytes) -> tuple[int | None, dict[str, Any], list[Fault]]:
    """Read `ts`, the readable properties, and a fault for each unreadable one.

    Raises `MalformedReport` when the shape is wrong or there is no property.
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
            faults.append(Fault(f"properties.{key[:MAX_KEY]}", f"cannot be read: {error}"))
    return wire.ts, values, faults


def checked_report(raw: bytes, check: Callable[[Values], tuple[Values, list[Fault]]]) -> Report:
    """Read a report and `check` what is readable of it; raises `MalformedReport`."""
    ts, values, faults = read_report(raw)
    good, bad = check(values)
    return Report(ts, good, faults + bad)


def _decoded(decoder: msgspec.json.Decoder[_T], raw: bytes) -> _T:
    try:
        return decoder.decode(raw)
    except ValueError as error:
        raise MalformedReport(*_named(str(error))) from error
    except RecursionError as error:
        raise MalformedReport(str(error)) from error


def _named(text: str) -> tuple[str, str]:
    """The reason that msgspec gives, and the field that it names, if any."""
    if text.startswith(_MISSING):
        return "is required", text.removeprefix(_MISSING).rstrip("`")
    reason, _, place = text.partition(" - at `$.")
    return reason, place.rstrip("`")
