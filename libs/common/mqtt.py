"""Packets of MQTT 3.1.1 (OASIS), and the login of CONNECT."""

import struct
from typing import NamedTuple

MAX_CONNECT_BYTES = 128 * 1024
"""Maximum bytes of a CONNECT: client id, will and login of up to 64 KiB each, but not all at
once."""
_CONNECT_TYPE = 0x10
_PROTOCOL_HEAD = b"\x00\x04MQTT\x04"
"""Name and level of the protocol; nats-server rejects others."""
_USER, _PASSWORD, _WILL = 0x80, 0x40, 0x04
_MAX_LENGTH_BYTES = 4


class PacketError(ValueError):
    """A client sent an invalid or unexpected packet."""


class Connect(NamedTuple):
    """The first packet of a connection."""

    flags: int
    keep_alive: bytes
    fields: tuple[bytes, ...]
    """Client id, and topic and message of a will; without user and password."""
    user: bytes | None
    password: bytes | None

    def with_login(self, user: str, password: str) -> bytes:
        """Return the packet with another user and password."""
        flags = bytes([self.flags | _USER | _PASSWORD])
        fields = b"".join(map(_encode_field, (*self.fields, user.encode(), password.encode())))
        body = _PROTOCOL_HEAD + flags + self.keep_alive + fields
        return encode_packet(_CONNECT_TYPE, body)


def encode_packet(first: int, body: bytes) -> bytes:
    """Return a packet from its first byte (type and flags) and its body."""
    digits, size = bytearray(), len(body)
    while True:
        size, low = divmod(size, 0x80)
        digits.append(low | 0x80 if size else low)
        if not size:
            return bytes([first, *digits]) + body


def find_body_bounds(data: bytes, largest: int) -> tuple[int, int] | None:
    """Return the bounds of the body of the first packet, even if it is incomplete.

    Returns None while the length is incomplete. Raises `PacketError` if the packet exceeds
    `largest` bytes.
    """
    size = 0
    for place, byte in enumerate(data[1 : 1 + _MAX_LENGTH_BYTES]):
        size |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            start = 2 + place
            if start + size > largest:
                raise PacketError(f"a packet of more than {largest} bytes")
            return start, start + size
    if len(data) > _MAX_LENGTH_BYTES:
        raise PacketError("the length of a packet must have at most four bytes")
    return None


def find_connect_end(data: bytes) -> int | None:
    """Return the end of a CONNECT; None while its length is incomplete.

    Raises `PacketError` if the packet is not a CONNECT, or is too long.
    """
    if data and data[0] != _CONNECT_TYPE:
        raise PacketError("an MQTT connection must begin with CONNECT")
    body_bounds = find_body_bounds(data, MAX_CONNECT_BYTES)
    return None if body_bounds is None else body_bounds[1]


def read_connect(packet: bytes) -> Connect | None:
    """Return a complete CONNECT; None for other versions of MQTT; raise `PacketError`."""
    start = (
        packet.index(_PROTOCOL_HEAD)
        if _PROTOCOL_HEAD in packet[: 5 + len(_PROTOCOL_HEAD)]
        else None
    )
    if start is None:
        return None
    at = start + len(_PROTOCOL_HEAD)
    if len(packet) < at + 3:
        raise PacketError("a CONNECT is incomplete")
    flags, keep_alive = packet[at], packet[at + 1 : at + 3]
    if flags & _PASSWORD and not flags & _USER:
        raise PacketError("a password without a user (MQTT-3.1.2-22)")
    fields = _split_fields(packet[at + 3 :])
    maximum = 3 if flags & _WILL else 1
    field_count = maximum + bool(flags & _USER) + bool(flags & _PASSWORD)
    if len(fields) != field_count:
        raise PacketError("the flags of a CONNECT do not match its fields")
    login = (*fields[maximum:], None, None)
    return Connect(flags, keep_alive, tuple(fields[:maximum]), login[0], login[1])


def _split_fields(data: bytes) -> list[bytes]:
    fields = []
    while data:
        if len(data) < 2 or len(data) < 2 + (size := struct.unpack("!H", data[:2])[0]):  # noqa: PLR2004 - two bytes of length
            raise PacketError("a field of a CONNECT is incomplete")
        fields.append(data[2 : 2 + size])
        data = data[2 + size :]
    return fields


def _encode_field(content: bytes) -> bytes:
    return struct.pack("!H", len(content)) + content
