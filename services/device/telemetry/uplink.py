"""Messages of `UPLINK`, and the validation of messages of devices. No I/O."""

from collections.abc import Sequence
from typing import Any

import msgspec
from nats.aio.msg import Msg

from libs.common.bus.rpc import TENANT_HEADER
from libs.common.bus.streams import UPLINK_STREAM_NAMES
from libs.common.decoding import parse_validation_error
from libs.common.errors import InvalidInput
from libs.common.http.ids import parse_id
from libs.common.telemetry.tracing import TRACE_HEADER
from libs.common.tsl import Event, Fault, InvalidValues, Rejection, Report
from services.device.things.model import Thing

MAX_PAYLOAD_BYTES = 256 * 1024
"""Maximum bytes of one report, event or reply."""

SUBJECT_PARTS = 4
SEQUENCE_BITS = 44
"""Bits of a stream's sequence in a global sequence, which is below 2^53. The bits above are the
partition."""
MQTT_PREFIX = "$MQTT.msgs."
QOS_1_VALUE = "1"
ACK_PARTS_WITH_DOMAIN = 11


INTEGRATION_HEADER = "Thingway-Integration"
"""Header with the integration that sent a frame; `TENANT_HEADER` has the device's tenant."""


class Uplink(msgspec.Struct, frozen=True):
    """One message of a device, as the stream received it."""

    sn: str
    channel: str
    payload: bytes
    sequence: int
    """Unique in all partitions together."""
    received: int
    """Arrival in the stream, ms; equal for every redelivery."""
    delivered: int
    """Number of deliveries, including this one."""
    message: Msg
    trace: str = ""
    """The `traceparent` for subsequent spans; empty without a recorded trace."""

    @property
    def key(self) -> str:
        """Return the unique key of the uplink, from which the ids of its events derive."""
        return f"{self.received:x}-{self.sequence:x}"

    def is_addressed_to(self, thing: Thing) -> bool:
        """Return whether the sender meant this device, not an earlier one with its SN."""
        headers = self.message.headers or {}
        sender = headers.get(TENANT_HEADER), headers.get(INTEGRATION_HEADER)
        return INTEGRATION_HEADER not in headers or sender == (thing.tenant, thing.integration)


def sender_headers(tenant: str, integration: str) -> dict[str, str]:
    """Return headers that name the tenant and integration that send a frame."""
    return {TENANT_HEADER: tenant, INTEGRATION_HEADER: integration}


def read_uplink(message: Msg) -> Uplink:
    """Read an uplink from a message and its acknowledgement subject (`$JS.ACK.…`, NATS ADR-15)."""
    parts = message.subject.removeprefix(MQTT_PREFIX).split(".")
    if len(parts) != SUBJECT_PARTS:
        sn, channel = parts[1], ""
    elif parts[0] == "thing":
        sn, channel = parts[1], parts[3]
    else:
        sn, channel = parts[2], parts[3]
    ack = message.reply.split(".")
    if len(ack) >= ACK_PARTS_WITH_DOMAIN:
        ack = ack[2:]
    return Uplink(
        sn=sn,
        channel=channel,
        payload=message.data,
        sequence=global_sequence(ack[2], int(ack[5])),
        received=int(ack[7]) // 1_000_000,
        delivered=int(ack[4]),
        message=message,
    )


def global_sequence(stream: str, sequence: int) -> int:
    """Return a sequence that is unique in all partitions."""
    return UPLINK_STREAM_NAMES.index(stream) << SEQUENCE_BITS | sequence


def is_second_copy(message: Msg) -> bool:
    """Return whether this is the plain copy of an MQTT message of QoS 1.

    nats-server stores such a message twice: under `$MQTT.msgs.`, before it sends the PUBACK, and
    under its plain subject. Only the first copy counts.
    """
    headers = message.headers
    return (
        headers is not None
        and headers.get("Nmqtt-Pub") == QOS_1_VALUE
        and not message.subject.startswith(MQTT_PREFIX)
    )


FULL_BATCH_MESSAGES = 50
"""Messages from which a batch need not wait: with more, each message costs the same."""
_BATCHED_CHANNELS = frozenset({"report", "event"})
"""Channels whose messages may wait for others."""


def may_linger(messages: Sequence[Msg]) -> bool:
    """Return whether a batch may wait for more: it is small, without MQTT messages and replies.

    Messages over MQTT have another subject or a header, and messages of flows have a header.
    """
    return len(messages) < FULL_BATCH_MESSAGES and all(
        not message.subject.startswith(MQTT_PREFIX)
        and message.subject.rpartition(".")[2] in _BATCHED_CHANNELS
        and (message.headers is None or message.headers.keys() <= {TRACE_HEADER})
        for message in messages
    )


MAX_CLOCK_AHEAD_MS = 5 * 60_000
"""Maximum ms by which the time of a report may be ahead of its arrival."""


class WrongTime(Rejection):
    """The time of a report or an event is not acceptable."""

    def __str__(self) -> str:
        return f"ts {self.faults[0].reason}"


class Reply(msgspec.Struct, rename="camel"):
    """The reply of a device on `up/reply`; other fields are ignored."""

    command_id: Any
    status: str
    outputs: dict[str, Any] | None = None
    error: Any = None


def read_report(thing: Thing, raw: bytes, received: int, retention_ms: int) -> tuple[int, Report]:
    """Return the time (ms) and content of a valid report; raise `Rejection`.

    The time defaults to `received`. At least one property is valid.
    """
    report = thing.tsl.decode_report(raw)
    ts = _choose_time(report.ts, received, retention_ms)
    if not report.properties:
        raise InvalidValues(report.faults)
    return ts, report


def read_event(thing: Thing, raw: bytes, received: int, retention_ms: int) -> tuple[int, Event]:
    """Return the time (ms) and content of an event of the TSL; raise `Rejection`."""
    event = thing.tsl.decode_event(raw)
    return _choose_time(event.ts, received, retention_ms), event


def read_reply(raw: bytes) -> tuple[Reply, int]:
    """Return a reply and its command id; raise `InvalidInput`.

    The id may be decimal text.
    """
    try:
        reply = msgspec.json.decode(raw, type=Reply)
    except (ValueError, RecursionError) as error:
        wrong = parse_validation_error(str(error))
        raise InvalidInput(wrong.reason, field=wrong.place or "reply") from error
    command_id = parse_id(reply.command_id, "commandId")
    if reply.status not in {"SUCCESS", "FAILED"}:
        raise InvalidInput("must be SUCCESS or FAILED", field="status")
    return reply, command_id


def check_message(
    channel: str, thing: Thing, raw: bytes, now: int, retention_ms: int
) -> list[Fault]:
    """Validate a message of a thing; return the faults of single properties.

    Whether the command of a reply exists is checked later. Raises `InvalidInput` when the whole
    message is rejected.
    """
    try:
        if channel == "report":
            return read_report(thing, raw, now, retention_ms)[1].faults
        if channel == "event":
            read_event(thing, raw, now, retention_ms)
        else:
            read_reply(raw)
    except Rejection as error:
        fault = error.faults[0]
        rejection = InvalidInput(fault.reason, field=fault.path or "body")
        rejection.faults = error.faults
        raise rejection from error
    return []


def choose_frame_time(ts: int | None, received: int, retention_ms: int) -> int:
    """Return the time of a frame: that of its gateway if plausible.

    A time that is older than the retention or more than five minutes ahead is replaced by
    `received`: a reading is never rejected for the clock of a gateway.
    """
    if ts is None or not received - retention_ms <= ts <= received + MAX_CLOCK_AHEAD_MS:
        return received
    return ts


def _choose_time(ts: int | None, received: int, retention_ms: int) -> int:
    if ts is None:
        return received
    if ts > received + MAX_CLOCK_AHEAD_MS:
        raise WrongTime([Fault("ts", "is more than five minutes in the future")])
    if ts < received - retention_ms:
        raise WrongTime([Fault("ts", "is older than the retention")])
    return ts
