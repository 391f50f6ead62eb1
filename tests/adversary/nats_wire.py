"""The NATS protocol by hand: https://docs.nats.io/reference/reference-protocols/nats-protocol."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.adversary.logins import Login
from tests.adversary.town import Town
from tests.adversary.wire import Wire

TRIES = 5
"""Log-ins before an attack goes on without."""
PONG = b"PONG\r\n"


@dataclass(frozen=True)
class Publication:
    """PUB, or HPUB with headers; names of the town are filled in when it is sent."""

    subject: str
    reply: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    payload: str | bytes = b""

    def frame(self, town: Town) -> bytes:
        """Return the bytes of the message."""
        content = self.payload
        payload = town.fill(content).encode() if isinstance(content, str) else content
        target = f"{town.fill(self.subject)} {town.fill(self.reply)}".strip()
        if not self.headers:
            return f"PUB {target} {len(payload)}\r\n".encode() + payload + b"\r\n"
        fields = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        head = f"NATS/1.0\r\n{town.fill(fields)}\r\n".encode()
        sizes = f"{len(head)} {len(head) + len(payload)}"
        return f"HPUB {target} {sizes}\r\n".encode() + head + payload + b"\r\n"


@dataclass(frozen=True)
class Subscription:
    """A SUB; `Wire.heard` keeps the messages that it receives."""

    subject: str
    queue: str = ""
    id: str = "7"
    """The server ignores a second one with the same id."""

    def frame(self, town: Town) -> bytes:
        """Return the bytes of the message."""
        subject, queue = town.fill(self.subject), town.fill(self.queue)
        return " ".join(filter(None, ("SUB", subject, queue, self.id))).encode() + b"\r\n"


@dataclass(frozen=True)
class Garbage:
    """Bytes that are no protocol at all."""

    content: bytes

    def frame(self, town: Town) -> bytes:
        """Return the bytes of the message."""
        del town
        return self.content + b"\r\n"


Frame = Publication | Subscription | Garbage


class NatsWire(Wire):
    """A connection that may have logged in."""

    async def log_in(self, login: Login | None) -> bool:
        """Say who is there; nobody when it is None."""
        options: dict[str, Any] = {"verbose": False, "pedantic": False, "headers": True}
        options |= {"no_responders": True, "protocol": 1, "lang": "raw", "version": "0"}
        if login is not None:
            options |= {"user": login.user, "pass": login.password}
        return await self.say(f"CONNECT {json.dumps(options)}\r\n".encode())

    async def say(self, frame: bytes) -> bool:
        """Send, and wait until the server has read it; False when it hangs up instead."""
        await self.send(frame, b"PING\r\n")
        return await self.hear_until(PONG)


async def _logged_in(port: int, login: Login | None) -> NatsWire:
    """Open a connection; a valid login retries while the rate limit refuses it."""
    for _ in range(TRIES):
        wire = await NatsWire(port).__aenter__()
        if await wire.log_in(login) or login is None or not login.right:
            break
        await asyncio.sleep(1)
    return wire


@asynccontextmanager
async def attacking(
    port: int, login: Login | None, town: Town, frames: Sequence[Frame]
) -> AsyncIterator[list[NatsWire]]:
    """Send the frames one by one, on a new connection after each that ended the old one.

    The last connection goes on listening until the block ends.
    """
    wires: list[NatsWire] = []
    try:
        for frame in frames:
            if not wires or not wires[-1].open:
                wires.append(await _logged_in(port, login))
            await wires[-1].say(frame.frame(town))
        yield wires
    finally:
        for wire in wires:
            wire.close()


async def received(wires: Sequence[NatsWire]) -> bytes:
    """Return everything that the connections have received."""
    for wire in wires:
        if wire.open:
            await wire.say(b"")
    return b"".join(bytes(wire.heard) for wire in wires)
