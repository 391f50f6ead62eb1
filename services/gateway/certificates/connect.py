"""MQTT 3.1.1's CONNECT: as much of it as it takes to put a login in (OASIS, 3.1)."""

import struct
from typing import NamedTuple

LARGEST = 128 * 1024
"""Bytes of a CONNECT: client id, will and login of 64 KiB at most, and not all of them so long."""
_CONNECT = 0x10
_HEAD = b"\x00\x04MQTT\x04"
"""Name and level of the protocol; others are nats-server's to refuse."""
_USER, _PASSWORD, _WILL = 0x80, 0x40, 0x04
_MOST_LENGTH_BYTES = 4


class NotConnectError(ValueError):
    """What a client says first is no CONNECT."""


class Connect(NamedTuple):
    """The first packet of a connection."""

    flags: int
    keep_alive: bytes
    fields: tuple[bytes, ...]
    """Client id, and the will's topic and message when there is one; user and password apart."""
    user: bytes | None
    password: bytes | None

    def with_login(self, user: str, password: str) -> bytes:
        """The packet with another user and password."""
        flags = bytes([self.flags | _USER | _PASSWORD])
        fields = b"".join(map(_field, (*self.fields, user.encode(), password.encode())))
        body = _HEAD + flags + self.keep_alive + fields
        return bytes([_CONNECT]) + _length(len(body)) + body


def packet_end(data: bytes) -> int | None:
    """Where the first packet in `data` ends; None while its length is not there.

    Raises `NotConnectError` for what is no CONNECT or too long.
    """
    if data and data[0] != _CONNECT:
        raise NotConnectError("an MQTT connection begins with CONNECT")
    size = 0
    for place, byte in enumerate(data[1 : 1 + _MOST_LENGTH_BYTES]):
        size |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            end = 2 + place + size
            if end > LARGEST:
                raise NotConnectError(f"a CONNECT of more than {LARGEST} bytes")
            return end
    if len(data) > _MOST_LENGTH_BYTES:
        raise NotConnectError("the length of a packet has four bytes at most")
    return None


def read_connect(packet: bytes) -> Connect | None:
    """Read a whole CONNECT; None for another version of MQTT. Raises `NotConnectError`."""
    start = packet.index(_HEAD) if _HEAD in packet[: 5 + len(_HEAD)] else None
    if start is None:
        return None
    at = start + len(_HEAD)
    flags, keep_alive = packet[at], packet[at + 1 : at + 3]
    if flags & _PASSWORD and not flags & _USER:
        raise NotConnectError("a password without a user (MQTT-3.1.2-22)")
    fields = _fields(packet[at + 3 :])
    most = 3 if flags & _WILL else 1
    wanted = most + bool(flags & _USER) + bool(flags & _PASSWORD)
    if len(fields) != wanted:
        raise NotConnectError("a CONNECT has the fields that its flags tell of")
    login = (*fields[most:], None, None)
    return Connect(flags, keep_alive, tuple(fields[:most]), login[0], login[1])


def _fields(data: bytes) -> list[bytes]:
    found = []
    while data:
        if len(data) < 2 or len(data) < 2 + (size := struct.unpack("!H", data[:2])[0]):  # noqa: PLR2004 - two bytes of length
            raise NotConnectError("a field of a CONNECT is cut short")
        found.append(data[2 : 2 + size])
        data = data[2 + size :]
    return found


def _field(content: bytes) -> bytes:
    return struct.pack("!H", len(content)) + content


def _length(size: int) -> bytes:
    digits = bytearray()
    while True:
        size, low = divmod(size, 0x80)
        digits.append(low | 0x80 if size else low)
        if not size:
            return bytes(digits)
