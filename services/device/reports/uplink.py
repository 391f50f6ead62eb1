"""A message of `UPLINK`, read: who said what on which channel, and when it came."""

import msgspec
from nats.aio.msg import Msg

from libs.common.bus.rpc import TENANT
from libs.common.bus.streams import UPLINKS
from services.device.things.model import Thing

MAX_PAYLOAD = 256 * 1024
"""Bytes of one report, event or reply."""

SUBJECT_PARTS = 4
PARTITION_BITS = 44
"""Of a sequence; above them stands the partition. Together they stay below 2^53."""
MQTT_PREFIX = "$MQTT.msgs."
QOS_1 = "1"
ACK_PARTS_WITH_DOMAIN = 11


INTEGRATION = "Thingway-Integration"
"""Header: the integration that handed a frame over, for a device of the tenant in `TENANT`."""


class Uplink(msgspec.Struct, frozen=True):
    """One message of a device, as the stream received it."""

    sn: str
    channel: str
    payload: bytes
    sequence: int
    """Of all partitions together: no two messages have the same."""
    received: int
    """When the stream took it, ms: the same at every redelivery."""
    delivered: int
    """How often it was delivered, this time included."""
    message: Msg
    trace: str = ""
    """The `traceparent` of what it leads to; empty when it belongs to no recorded trace."""

    @property
    def key(self) -> str:
        """Names this message for ever: ids of its events are made from it."""
        return f"{self.received:x}-{self.sequence:x}"

    def is_sent_for(self, thing: Thing) -> bool:
        """Whether who handed it over meant this device, and not an earlier one of its SN."""
        headers = self.message.headers or {}
        sender = headers.get(TENANT), headers.get(INTEGRATION)
        return INTEGRATION not in headers or sender == (thing.tenant, thing.integration)


def sender_headers(tenant: str, integration: str) -> dict[str, str]:
    """Headers that say for whose device an integration hands a frame over."""
    return {TENANT: tenant, INTEGRATION: integration}


def read_uplink(message: Msg) -> Uplink:
    """Read subject and acknowledgement subject (`$JS.ACK.…`, NATS ADR-15)."""
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
        sequence=sequence_in(ack[2], int(ack[5])),
        received=int(ack[7]) // 1_000_000,
        delivered=int(ack[4]),
        message=message,
    )


def sequence_in(stream: str, sequence: int) -> int:
    """A sequence of `stream` as one of all partitions: that of `UPLINK` as it is."""
    return UPLINKS.index(stream) << PARTITION_BITS | sequence


def is_second_copy(message: Msg) -> bool:
    """Whether this is the plain copy of an MQTT message of QoS 1.

    nats-server puts such a message on its own subject too, without waiting for it; the
    copy under `$MQTT.msgs.`, which its PUBACK waited for, is the one that counts.
    """
    headers = message.headers
    return (
        headers is not None
        and headers.get("Nmqtt-Pub") == QOS_1
        and not message.subject.startswith(MQTT_PREFIX)
    )
