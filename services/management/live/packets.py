"""Packets of MQTT 3.1.1 for a broker that only sends: decoding and encoding.

OASIS Standard "MQTT Version 3.1.1", 2014; numbers in brackets are its sections. Packets form a
stream of bytes, regardless of WebSocket frames [6.0].
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from libs.common.mqtt import Connect, PacketError, encode_packet, find_body_bounds, read_connect

MAX_PACKET_BYTES = 16 * 1024
"""Maximum bytes of a received packet; the longest is a SUBSCRIBE."""
MAX_FILTERS = 20
"""Maximum topic filters of a packet."""
SUBACK_FAILURE = 0x80
"""The return code of a rejected subscription [3.9.3]."""
PINGRESP = b"\xd0\x00"

_CONNECT, _PUBLISH, _SUBSCRIBE, _UNSUBSCRIBE, _PINGREQ, _DISCONNECT = 1, 3, 8, 10, 12, 14
_FLAGS_BY_PACKET_TYPE = {_CONNECT: 0, _SUBSCRIBE: 2, _UNSUBSCRIBE: 2, _PINGREQ: 0, _DISCONNECT: 0}


class ConnackCode(IntEnum):
    """Return codes of CONNACK [3.2.2.3]."""

    ACCEPTED = 0
    VERSION = 1
    CLIENT_ID = 2
    UNAVAILABLE = 3
    NOT_AUTHORIZED = 5


class Subscribe(NamedTuple):
    """A SUBSCRIBE packet [3.8]."""

    packet_id: bytes
    filters: list[str]


class Unsubscribe(NamedTuple):
    """An UNSUBSCRIBE packet [3.10]."""

    packet_id: bytes
    filters: list[str]


class Ping(NamedTuple):
    """A PINGREQ packet [3.12]."""


class Disconnect(NamedTuple):
    """A DISCONNECT packet [3.14]."""


class Publish(NamedTuple):
    """A PUBLISH packet [3.3], which is rejected without decoding."""


class UnsupportedConnect(NamedTuple):
    """A CONNECT packet of another version of the protocol."""


Packet = Connect | UnsupportedConnect | Subscribe | Unsubscribe | Ping | Disconnect | Publish


class PacketStream:
    """Splits a stream of bytes into packets, and keeps the beginning of an incomplete one."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def split(self, data: bytes) -> Iterator[Packet]:
        """Add received bytes and yield complete packets; raise `PacketError` at an invalid one.

        A packet is yielded before the next one is examined. A PUBLISH and packets of unsupported
        types are recognized by their first byte.
        """
        self._rest += data
        while self._rest:
            _check_first_byte(self._rest[0])
            if self._rest[0] >> 4 == _PUBLISH:
                yield Publish()
            body_bounds = find_body_bounds(self._rest, MAX_PACKET_BYTES)
            if body_bounds is None or body_bounds[1] > len(self._rest):
                return
            start, end = body_bounds
            packet, self._rest = self._rest[:end], self._rest[end:]
            yield _decode_packet(packet, start)


def encode_connack(code: ConnackCode) -> bytes:
    """Return a CONNACK without a previous session [3.2]."""
    return bytes((0x20, 2, 0, code))


def encode_suback(packet_id: bytes, codes: Sequence[int]) -> bytes:
    """Return a SUBACK [3.9]."""
    return encode_packet(0x90, packet_id + bytes(codes))


def encode_unsuback(packet_id: bytes) -> bytes:
    """Return an UNSUBACK [3.11]."""
    return encode_packet(0xB0, packet_id)


def encode_publish(topic: str, payload: bytes) -> bytes:
    """Return a PUBLISH with QoS 0, not retained [3.3]."""
    name = topic.encode()
    return encode_packet(0x30, len(name).to_bytes(2, "big") + name + payload)


def _check_first_byte(first: int) -> None:
    """Raise `PacketError` if clients may not send a packet with this first byte."""
    kind, flags = first >> 4, first & 0x0F
    if kind != _PUBLISH and _FLAGS_BY_PACKET_TYPE.get(kind) != flags:
        raise PacketError(f"a packet of type {kind} and flags {flags} is not supported")


def _decode_packet(packet: bytes, start: int) -> Packet:
    kind = packet[0] >> 4
    if kind == _CONNECT:
        return read_connect(packet) or UnsupportedConnect()
    fields = _FieldReader(packet[start:])
    if kind == _SUBSCRIBE:
        return Subscribe(fields.read_bytes(2), fields.read_filters(with_qos=True))
    if kind == _UNSUBSCRIBE:
        return Unsubscribe(fields.read_bytes(2), fields.read_filters(with_qos=False))
    fields.check_end()
    return Ping() if kind == _PINGREQ else Disconnect()


class _FieldReader:
    """The fields of a packet's body; raises `PacketError` if one is incomplete."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def read_bytes(self, size: int) -> bytes:
        content = self._body[self._at : self._at + size]
        if len(content) < size:
            raise PacketError("a packet is incomplete")
        self._at += size
        return content

    def read_text(self) -> str:
        try:
            content = self.read_bytes(int.from_bytes(self.read_bytes(2), "big")).decode()
        except UnicodeDecodeError as error:
            raise PacketError("a text must be UTF-8") from error
        if "\0" in content:
            raise PacketError("a text must not have the character U+0000")
        return content

    def read_filters(self, *, with_qos: bool) -> list[str]:
        filters = []
        while self._at < len(self._body):
            filters.append(self.read_text())
            if with_qos and self.read_bytes(1)[0] > 2:  # noqa: PLR2004 - QoS 0 to 2
                raise PacketError("the QoS must be 0, 1 or 2")
            if len(filters) > MAX_FILTERS:
                raise PacketError(f"a packet must have at most {MAX_FILTERS} topic filters")
        if not filters:
            raise PacketError("a packet must have a topic filter")
        return filters

    def check_end(self) -> None:
        if self._at != len(self._body):
            raise PacketError("a packet has data after its fields")
