"""Many MQTT 3.1.1 devices in one process, with one minimal protocol object each.

`python -m bench.crowd PORT` reads lines `FIRST LAST` and keeps exactly these devices connected
(LAST excluded). It prints the number of connected devices when it changes. Disconnected devices
reconnect after individual pauses, as real devices do.
"""

import asyncio
import random
import struct
import sys
from collections.abc import Callable

KEEP_ALIVE = 120
"""Seconds of silence after which the server disconnects a device."""
PING = 60.0
FIRST_PAUSE = (0.2, 3.0)
"""Range of the first pause before a reconnect in seconds; it doubles up to `MAX_PAUSE`."""
MAX_PAUSE = 8.0
AT_ONCE = 400
"""Devices that log in concurrently."""
CHECK_SECONDS = 0.05
"""Seconds between two checks of the number of connected devices."""
CONNACK, SUBACK = 0x20, 0x90


def device_sn(number: int) -> str:
    """Return the SN of a simulated device."""
    return f"CROWD{number:07d}"


def device_key(number: int) -> str:
    """Return the first key of a simulated device."""
    return f"key-of-{number}"


def text(content: str) -> bytes:
    """Return a string in MQTT encoding."""
    raw = content.encode()
    return struct.pack("!H", len(raw)) + raw


def packet(kind: int, body: bytes) -> bytes:
    """Return an MQTT packet."""
    length, size = b"", len(body)
    while True:
        size, digit = divmod(size, 128)
        length += bytes([digit | (128 if size else 0)])
        if not size:
            return bytes([kind]) + length + body


class Device(asyncio.Protocol):
    """A connection that logs in and subscribes to commands."""

    def __init__(self, sn: str, key: str, changed: Callable[[int], None]) -> None:
        self._sn, self._key, self._changed = sn, key, changed
        self._up = False
        self._transport: asyncio.Transport | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection ends."""
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when subscribed; cancelled if the login is rejected."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Log in."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        head = text("MQTT") + bytes([4, 0xC2]) + struct.pack("!H", KEEP_ALIVE)
        login = text(f"c-{self._sn}") + text(self._sn) + text(self._key)
        transport.write(packet(0x10, head + login))

    def data_received(self, data: bytes) -> None:
        """Continue after a reply; replies are short and arrive in one piece."""
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
        """Report the end of the connection."""
        if self._up:
            self._changed(-1)
        self.ready.cancel()
        self.over.set_result(None)

    def ping(self) -> None:
        """Send a keep-alive packet."""
        if self._transport is not None:
            self._transport.write(b"\xc0\0")

    def close(self) -> None:
        """Disconnect abruptly, like a device without power."""
        if self._transport is not None:
            self._transport.abort()


class Crowd:
    """A set of devices that stay connected."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.connected = 0

    def connect_only(self, first: int, last: int) -> None:
        """Connect the devices from `first` to before `last`, and disconnect all others."""
        for number in [each for each in self._tasks if not first <= each < last]:
            self._tasks.pop(number).cancel()
        for number in range(first, last):
            if number not in self._tasks:
                self._tasks[number] = asyncio.ensure_future(self._stay(number))

    def _count(self, change: int) -> None:
        self.connected += change

    async def _stay(self, number: int) -> None:
        pause = random.uniform(*FIRST_PAUSE)
        while True:
            device = await self._log_in(number)
            if device is not None:
                pause = random.uniform(*FIRST_PAUSE)
                try:
                    while not device.over.done():
                        await asyncio.wait([device.over], timeout=PING)
                        device.ping()
                finally:
                    device.close()
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)

    async def _log_in(self, number: int) -> Device | None:
        loop = asyncio.get_running_loop()

        def device() -> Device:
            return Device(device_sn(number), device_key(number), self._count)

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
    """Follow the commands on standard input."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    crowd = Crowd(port)

    async def print_count() -> None:
        printed = -1
        while True:
            if crowd.connected != printed:
                printed = crowd.connected
                print(printed, flush=True)
            await asyncio.sleep(CHECK_SECONDS)

    printing = asyncio.ensure_future(print_count())
    while line := await reader.readline():
        first, last = map(int, line.split())
        crowd.connect_only(first, last)
    printing.cancel()
    crowd.connect_only(0, 0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
