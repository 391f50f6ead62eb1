"""MQTT 3.1.1 by hand: https://docs.oasis-open.org/mqtt/mqtt/v3.1.1/."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.adversary.logins import Login
from tests.adversary.town import Town
from tests.adversary.wire import Wire

PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
ACCEPTED = b"\x20\x02\x00\x00"
ACCEPTED_AGAIN = b"\x20\x02\x01\x00"
"""CONNACK of a session that was there before."""


def _text(text: str) -> bytes:
    content = text.encode("utf-8", "surrogatepass")[:65_535]
    return len(content).to_bytes(2, "big") + content


def packet(kind: int, body: bytes) -> bytes:
    """Return a packet: its first byte, its length, its body."""
    length, size = bytearray(), len(body)
    while True:
        size, digit = divmod(size, 128)
        length.append(digit | (0x80 if size else 0))
        if not size:
            return bytes([kind]) + bytes(length) + body


@dataclass(frozen=True)
class Will:
    """A message to publish when the connection breaks."""

    topic: str
    payload: str
    qos: int = 0
    retain: bool = False


@dataclass(frozen=True)
class Connect:
    """CONNECT with the login of the attack; names of the town are filled in."""

    client_id: str
    clean: bool = True
    will: Will | None = None

    def frame(self, town: Town, login: Login | None) -> bytes:
        """Return the bytes of the packet."""
        flags = 0x02 if self.clean else 0
        payload = _text(town.fill(self.client_id))
        if self.will is not None:
            flags |= 0x04 | self.will.qos << 3 | (0x20 if self.will.retain else 0)
            payload += _text(town.fill(self.will.topic)) + _text(town.fill(self.will.payload))
        if login is not None:
            flags |= 0xC0
            payload += _text(login.user) + _text(login.password)
        return packet(0x10, b"\x00\x04MQTT\x04" + bytes([flags]) + b"\x00\x3c" + payload)


@dataclass(frozen=True)
class Publish:
    """PUBLISH, acknowledged for QoS 1."""

    topic: str
    payload: str | bytes = ""
    qos: int = 0
    retain: bool = False
    duplicate: bool = False
    number: int = 1

    def frame(self, town: Town) -> bytes:
        """Return the bytes of the packet."""
        content = self.payload
        payload = town.fill(content).encode() if isinstance(content, str) else content
        kind = 0x30 | self.qos << 1 | (0x01 if self.retain else 0) | (8 if self.duplicate else 0)
        number = self.number.to_bytes(2, "big") if self.qos else b""
        return packet(kind, _text(town.fill(self.topic)) + number + payload)


@dataclass(frozen=True)
class Subscribe:
    """SUBSCRIBE to one filter."""

    topic: str
    qos: int = 0

    def frame(self, town: Town) -> bytes:
        """Return the bytes of the packet."""
        return packet(0x82, b"\x00\x01" + _text(town.fill(self.topic)) + bytes([self.qos]))


@dataclass(frozen=True)
class Odd:
    """A packet of any kind with any body."""

    kind: int
    body: bytes

    def frame(self, town: Town) -> bytes:
        """Return the bytes of the packet."""
        del town
        return packet(self.kind, self.body)


Packet = Publish | Subscribe | Odd


@dataclass(frozen=True)
class Session:
    """A connection and the packets to send on it."""

    connect: Connect
    packets: Sequence[Packet] = field(default=())
    dies: bool = False
    """Without DISCONNECT, so that the will is said."""


class MqttWire(Wire):
    """A connection that speaks MQTT."""

    async def log_in(self, frame: bytes) -> bool:
        """Send a CONNECT; False when it is refused."""
        await self.send(frame)
        while self.open and len(self.heard) < len(ACCEPTED):
            await self.hear()
        return bytes(self.heard[: len(ACCEPTED)]) in {ACCEPTED, ACCEPTED_AGAIN}

    async def say(self, frame: bytes) -> bool:
        """Send, and wait until the server has read it; False when it hangs up instead."""
        await self.send(frame, PINGREQ)
        return await self.hear_until(PINGRESP)

    async def leave(self) -> None:
        """DISCONNECT, and wait until the server has closed."""
        await self.send(b"\xe0\x00")
        await self.hear_out()


@asynccontextmanager
async def attacking(
    port: int, login: Login | None, town: Town, sessions: Sequence[Session]
) -> AsyncIterator[list[MqttWire]]:
    """Go through sessions, one connection each; those that neither end nor die listen on."""
    wires: list[MqttWire] = []
    try:
        for session in sessions:
            wires.append(await MqttWire(port).__aenter__())
            if await wires[-1].log_in(session.connect.frame(town, login)):
                for one in session.packets:
                    if not await wires[-1].say(one.frame(town)):
                        break
            if session.dies:
                wires[-1].close()
        yield wires
    finally:
        for wire in wires:
            wire.close()


async def received(wires: Sequence[MqttWire]) -> bytes:
    """Return everything that the connections have received."""
    for wire in wires:
        if wire.open:
            await wire.say(b"")
    return b"".join(bytes(wire.heard) for wire in wires)
