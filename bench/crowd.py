"""A crowd of MQTT 3.1.1 devices in one process, as light as can be: one protocol for each.

`python -m bench.crowd PORT` reads lines `FIRST LAST` from its input and keeps just the devices
of these numbers (the last not among them) connected; it prints how many of them are, whenever
that changes. Devices come back by themselves, each after a while of its own, as real ones do.
"""

import asyncio
import random
import struct
import sys
from collections.abc import Callable

KEEP_ALIVE = 120
"""Seconds after which the server takes a silent device for dead."""
PING = 60.0
AGAIN = (0.2, 3.0)
"""Seconds until a device comes back: evenly between these, doubling to `LONGEST`."""
LONGEST = 8.0
AT_ONCE = 400
"""Devices that are logging in at the same time."""
TOLD = 0.05
"""Seconds between two looks at how many are connected."""
CONNACK, SUBACK = 0x20, 0x90


def sn_of(number: int) -> str:
    """The SN of a device of the crowd."""
    return f"CROWD{number:07d}"


def key_of(number: int) -> str:
    """Its first key."""
    return f"key-of-{number}"


def text(content: str) -> bytes:
    """A text as MQTT has it."""
    raw = content.encode()
    return struct.pack("!H", len(raw)) + raw


def packet(kind: int, body: bytes) -> bytes:
    """A packet of MQTT."""
    length, size = b"", len(body)
    while True:
        size, digit = divmod(size, 128)
        length += bytes([digit | (128 if size else 0)])
        if not size:
            return bytes([kind]) + length + body


class Device(asyncio.Protocol):
    """One connection: it logs in, subscribes to its commands, and stays."""

    def __init__(self, sn: str, key: str, changed: Callable[[int], None]) -> None:
        self._sn, self._key, self._changed = sn, key, changed
        self._up = False
        self._transport: asyncio.Transport | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection has ended."""
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it is subscribed; cancelled when it is turned away."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Log in."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        head = text("MQTT") + bytes([4, 0xC2]) + struct.pack("!H", KEEP_ALIVE)
        login = text(f"c-{self._sn}") + text(self._sn) + text(self._key)
        transport.write(packet(0x10, head + login))

    def data_received(self, data: bytes) -> None:
        """Go on; answers are short, so each comes whole."""
        assert self._transport is not None
        if data[0] == CONNACK and data[3] == 0:
            topic = text(f"thing/{self._sn}/down/#") + b"\0"
            self._transport.write(packet(0x82, struct.pack("!H", 1) + topic))
        elif data[0] == CONNACK:
            self._transport.close()
        elif data[0] == SUBACK and not self._up:
            self._up = True
            self._changed(1)
            if not self.ready.done():
                self.ready.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Say so."""
        if self._up:
            self._changed(-1)
        self.ready.cancel()
        self.over.set_result(None)

    def ping(self) -> None:
        """Stay alive."""
        if self._transport is not None:
            self._transport.write(b"\xc0\0")

    def close(self) -> None:
        """Leave without a word, as a device does that loses its power."""
        if self._transport is not None:
            self._transport.abort()


class Crowd:
    """Keeps devices connected."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.connected = 0

    def keep(self, first: int, last: int) -> None:
        """Keep these connected, and no other."""
        for number in [one for one in self._tasks if not first <= one < last]:
            self._tasks.pop(number).cancel()
        for number in range(first, last):
            if number not in self._tasks:
                self._tasks[number] = asyncio.ensure_future(self._stay(number))

    def _count(self, change: int) -> None:
        self.connected += change

    async def _stay(self, number: int) -> None:
        pause = random.uniform(*AGAIN)
        while True:
            device = await self._log_in(number)
            if device is not None:
                pause = random.uniform(*AGAIN)
                try:
                    while not device.over.done():
                        await asyncio.wait([device.over], timeout=PING)
                        device.ping()
                finally:
                    device.close()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST)

    async def _log_in(self, number: int) -> Device | None:
        loop = asyncio.get_running_loop()

        def device() -> Device:
            return Device(sn_of(number), key_of(number), self._count)

        async with self._slots:
            try:
                async with asyncio.timeout(10):
                    _, made = await loop.create_connection(device, "127.0.0.1", self._port)
            except (OSError, TimeoutError):
                return None
            try:
                async with asyncio.timeout(10):
                    await asyncio.wait([made.ready])
            finally:
                if not made.ready.done() or made.ready.cancelled():
                    made.close()
        return None if made.ready.cancelled() or not made.ready.done() else made


async def main(port: int) -> None:
    """Do as the input says until it ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    crowd = Crowd(port)

    async def tell() -> None:
        told = -1
        while True:
            if crowd.connected != told:
                told = crowd.connected
                print(told, flush=True)
            await asyncio.sleep(TOLD)

    telling = asyncio.ensure_future(tell())
    while line := await reader.readline():
        first, last = map(int, line.split())
        crowd.keep(first, last)
    telling.cancel()
    crowd.keep(0, 0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
