"""Checks what a device sends over HTTP before it is accepted. No I/O."""

from collections.abc import Callable

import msgspec

from libs.common.errors import InvalidInput, MalformedRequest
from libs.common.tsl import Refusal
from services.device.commands.schemas import read_reply
from services.device.edge.schemas import RefusedEntry
from services.device.reports.uplink import MAX_PAYLOAD, time_fault
from services.device.things import Thing

MOST_ENTRIES = 1000

Check = Callable[[Thing, bytes, int, int], list[tuple[str, str]]]
"""(thing, raw entry, now in ms, retention in ms) → (field, reason) of partial refusals;
raises `InvalidInput` when the entry is refused whole."""


def read_entries(body: bytes) -> tuple[list[bytes], bool]:
    """Split a body into raw entries; the flag tells whether it was an array."""
    try:
        if body.lstrip()[:1] == b"[":
            entries = [bytes(raw) for raw in msgspec.json.decode(body, type=list[msgspec.Raw])]
        else:
            msgspec.json.decode(body, type=msgspec.Raw)
            return [body], False
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from error
    if not 1 <= len(entries) <= MOST_ENTRIES:
        raise InvalidInput(f"must hold 1 to {MOST_ENTRIES} entries", field="body")
    return entries, True


def check_report(thing: Thing, raw: bytes, now: int, retention_ms: int) -> list[tuple[str, str]]:
    """Check a report; what is wrong with single properties is returned."""
    try:
        report = thing.tsl.decode_report(raw)
    except Refusal as error:
        raise _refused(error) from error
    _check_time(report.ts, now, retention_ms)
    faults = [(fault.path, fault.reason) for fault in report.faults]
    if not report.properties:
        raise InvalidInput(faults[0][1], field=faults[0][0])
    return faults


def check_event(thing: Thing, raw: bytes, now: int, retention_ms: int) -> list[tuple[str, str]]:
    """Check an event of the TSL."""
    try:
        event = thing.tsl.decode_event(raw)
    except Refusal as error:
        raise _refused(error) from error
    _check_time(event.ts, now, retention_ms)
    return []


def check_reply(thing: Thing, raw: bytes, now: int, retention_ms: int) -> list[tuple[str, str]]:
    """Check the shape of a reply; whether its command exists is found out later."""
    del thing, now, retention_ms
    read_reply(raw)
    return []


def sort_entries(
    check: Check, thing: Thing, entries: list[bytes], now: int, retention_ms: int
) -> tuple[list[bytes], list[RefusedEntry]]:
    """The entries to accept, and what is refused."""
    accepted: list[bytes] = []
    refused: list[RefusedEntry] = []
    for index, raw in enumerate(entries):
        try:
            if len(raw) > MAX_PAYLOAD:
                raise InvalidInput(f"is larger than {MAX_PAYLOAD} bytes", field="entry")  # noqa: TRY301
            faults = check(thing, raw, now, retention_ms)
        except InvalidInput as error:
            refused.append(RefusedEntry(index, error.field or "", error.message))
        else:
            accepted.append(raw)
            refused += [RefusedEntry(index, field, reason) for field, reason in faults]
    return accepted, refused


def _check_time(ts: int | None, now: int, retention_ms: int) -> None:
    late = None if ts is None else time_fault(ts, now, retention_ms)
    if late:
        raise InvalidInput(late, field="ts")


def _refused(error: Refusal) -> InvalidInput:
    fault = error.faults[0]
    return InvalidInput(fault.reason, field=fault.path or "body")
