"""Checks what things say, before it is accepted and again before it is stored. No I/O."""

from typing import Any

import msgspec

from libs.common.decoding import worded
from libs.common.errors import InvalidInput
from libs.common.http.ids import parse_id
from libs.common.tsl import Event, Fault, InvalidValues, Refusal, Report
from services.device.things.model import Thing

FUTURE_MS = 5 * 60_000
"""How far ahead of us a device's clock may be."""


class WrongTime(Refusal):
    """A report or an event is of a time that cannot be taken."""

    def __str__(self) -> str:
        return f"ts {self.faults[0].reason}"


class Reply(msgspec.Struct, rename="camel"):
    """What a device answers on `up/reply`; other fields are ignored."""

    command_id: Any
    status: str
    outputs: dict[str, Any] | None = None
    error: Any = None


def read_report(thing: Thing, raw: bytes, received: int, retention_ms: int) -> tuple[int, Report]:
    """A report with at least one good property, and its time (ms); raise `Refusal`.

    Without a time of its own it is of when it was `received`.
    """
    report = thing.tsl.decode_report(raw)
    ts = _time(report.ts, received, retention_ms)
    if not report.properties:
        raise InvalidValues(report.faults)
    return ts, report


def read_event(thing: Thing, raw: bytes, received: int, retention_ms: int) -> tuple[int, Event]:
    """An event of the TSL, and its time (ms); raise `Refusal`."""
    event = thing.tsl.decode_event(raw)
    return _time(event.ts, received, retention_ms), event


def read_reply(raw: bytes) -> tuple[Reply, int]:
    """Read a reply and the id it names, which may be decimal text; raise `InvalidInput`."""
    try:
        reply = msgspec.json.decode(raw, type=Reply)
    except (ValueError, RecursionError) as error:
        wrong = worded(str(error))
        raise InvalidInput(wrong.reason, field=wrong.place or "reply") from error
    command_id = parse_id(reply.command_id, "commandId")
    if reply.status not in {"SUCCESS", "FAILED"}:
        raise InvalidInput("must be SUCCESS or FAILED", field="status")
    return reply, command_id


def check(channel: str, thing: Thing, raw: bytes, now: int, retention_ms: int) -> list[Fault]:
    """Check what a thing says on `channel`; return what is wrong with single properties.

    Whether the command of a reply exists is found out later. Raises `InvalidInput` when all of
    it is refused.
    """
    try:
        if channel == "report":
            return read_report(thing, raw, now, retention_ms)[1].faults
        if channel == "event":
            read_event(thing, raw, now, retention_ms)
        else:
            read_reply(raw)
    except Refusal as error:
        fault = error.faults[0]
        refusal = InvalidInput(fault.reason, field=fault.path or "body")
        refusal.faults = error.faults
        raise refusal from error
    return []


def frame_time(ts: int | None, received: int, retention_ms: int) -> int:
    """Return the time of a frame: that of its gateway, unless the gateway's clock is wrong.

    A time that is older than the retention or more than five minutes ahead is replaced by
    `received`: a reading is never refused for the clock of a gateway.
    """
    if ts is None or not received - retention_ms <= ts <= received + FUTURE_MS:
        return received
    return ts


def _time(ts: int | None, received: int, retention_ms: int) -> int:
    if ts is None:
        return received
    if ts > received + FUTURE_MS:
        raise WrongTime([Fault("ts", "is more than five minutes ahead")])
    if ts < received - retention_ms:
        raise WrongTime([Fault("ts", "is older than the retention")])
    return ts
