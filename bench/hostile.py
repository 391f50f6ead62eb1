"""A tenant that does ten times what it may, on every protocol at once, as cheaply as can be.

`python -m bench.hostile` reads an `Attack` as a line of JSON, then lines `start` and `stop`; after
each `stop` it prints what it was answered. All frames are made beforehand, answers are counted by
their first bytes, and all comes from an address of its own (127.0.0.2).
"""

import asyncio
import base64
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import cast

import msgspec
import uvloop

from bench.crowd import packet, text

ADDRESS = "127.0.0.2"
AGAIN = 1.0
"""Seconds until a connection that was closed is opened again, and a held one is asked for."""
TICK = 0.05
BODY = b'{"properties":{"at":1.5}}'
_CONNACK, _PUBACK = 0x20, 0x40

Counts = Counter[str]


class Login(msgspec.Struct):
    """A device or an application."""

    name: str
    key: str


class Attack(msgspec.Struct):
    """Whom it is done as, and how much of it; rates are per second."""

    http_port: int
    mqtt_port: int
    nats_port: int
    device_id: int
    mqtt: list[Login]
    nats: list[Login]
    http: list[Login]
    """Devices that report, by protocol."""
    application: Login
    token: str
    """Of the application."""
    person: str
    """Token of a user."""
    sign_in: str
    """The form with which the user signs in."""
    hook: str
    reports: int
    """Of each device."""
    requests: int
    requests_at_once: int
    polls: int
    """Of each device that speaks HTTP."""
    websockets: int
    connections: int
    """Of one device, over each protocol of the bus."""
    questions: int
    """Of the application on NATS: requests for events, and twice as many acknowledgements."""
    hooks: int
    sign_ins: int


class Wire(asyncio.Protocol):
    """One connection that says hello, and what it is given once it is let in."""

    def __init__(self, name: str, counts: Counts) -> None:
        self.name = name
        self.counts = counts
        self.ready = False
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    def hello(self) -> bytes:
        """What is said first."""
        return b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello."""
        self.transport = cast("asyncio.Transport", transport)
        if hello := self.hello():
            self.transport.write(hello)

    def connection_lost(self, error: Exception | None) -> None:
        """Count it."""
        self.counts[f"{self.name}: closed"] += 1
        self.ready = False
        if not self.over.done():
            self.over.set_result(None)

    def say(self, content: bytes, number: int = 1) -> bool:
        """Write, when it is let in and the server reads."""
        if not self.ready or self.transport is None or self.transport.get_write_buffer_size():
            return False
        self.transport.write(content)
        self.counts[f"{self.name}: sent"] += number
        return True


class Mqtt(Wire):
    """A device over MQTT."""

    def __init__(self, name: str, counts: Counts, login: Login, client: str) -> None:
        super().__init__(name, counts)
        self._login, self._client = login, client

    def hello(self) -> bytes:
        head = text("MQTT") + bytes([4, 0xC2, 0, 120])
        login = text(self._client) + text(self._login.name) + text(self._login.key)
        return packet(0x10, head + login)

    def data_received(self, data: bytes) -> None:
        """Count what is acknowledged."""
        if data[0] == _CONNACK:
            self.ready = data[3] == 0
        elif data[0] == _PUBACK:
            self.counts[f"{self.name}: acknowledged"] += len(data) // 4


class Nats(Wire):
    """A device or an application on plain NATS."""

    def __init__(self, name: str, counts: Counts, login: Login, inbox: str) -> None:
        super().__init__(name, counts)
        self._login, self._inbox = login, inbox

    def data_received(self, data: bytes) -> None:
        """Log in, stay, and count answers."""
        assert self.transport is not None
        if data.startswith(b"INFO"):
            login = {"user": self._login.name, "pass": self._login.key, "verbose": False}
            more = {"lang": "bench", "version": "1", "headers": True, "no_responders": True}
            said = json.dumps(login | more | {"protocol": 1})
            subscribed = f"SUB {self._inbox}.> 1\r\nPING\r\n"
            self.transport.write(f"CONNECT {said}\r\n{subscribed}".encode())
        elif data.startswith(b"PONG"):
            self.ready = True
        elif b"PING\r\n" in data:
            self.transport.write(b"PONG\r\n")
        self.counts[f"{self.name}: answers"] += data.count(b"MSG ")


class Http(Wire):
    """A kept connection with one request at a time."""

    def __init__(self, name: str, counts: Counts, request: bytes) -> None:
        super().__init__(name, counts)
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.ready = True

    def ask(self) -> None:
        """Send the request unless one is in hand."""
        if self.say(self._request):
            self.ready = False

    def data_received(self, data: bytes) -> None:
        """Count by status; a WebSocket stays."""
        if data.startswith(b"HTTP/1.1 "):
            status = data[9:12].decode()
            self.counts[f"{self.name}: {status}"] += 1
            self.ready = status != "101"


class Load:
    """All of it, from `start` to `stop`."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self._tasks: list[asyncio.Task[None]] = []
        self.counts: Counts = Counter()

    def start(self) -> None:
        """Begin."""
        self.counts = Counter()
        for begin in (self._reports, self._connections, self._questions, self._asking):
            begin()

    async def stop(self) -> None:
        """End, and close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _do(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    def _kept(self, make: Callable[[], Wire], port: int, number: int = 1) -> "list[Wire | None]":
        """Connections that come back; each place holds the one of the moment."""
        places: list[Wire | None] = [None] * number
        for at in range(number):
            self._do(_keep(places, at, make, port))
        return places

    def _reports(self) -> None:
        attack, each = self._attack, self._attack.reports
        for login in attack.mqtt:
            said = packet(0x32, text(f"thing/{login.name}/up/report") + b"\0\1" + BODY)
            places = self._kept(
                lambda login=login: Mqtt("mqtt report", self.counts, login, login.name),  # type: ignore[misc]
                attack.mqtt_port,
            )
            self._do(_pace(places, each, said))
        for login in attack.nats:
            inbox = f"_INBOX.sn.{login.name}"
            head = f"PUB thing.{login.name}.up.report {inbox}.1 {len(BODY)}\r\n"
            places = self._kept(
                lambda login=login, inbox=inbox: Nats("nats report", self.counts, login, inbox),  # type: ignore[misc]
                attack.nats_port,
            )
            self._do(_pace(places, each, head.encode() + BODY + b"\r\n"))
        for login in attack.http:
            path = f"POST /ingest/v1/{login.name}/report"
            self._pulse("http report", _request(path, _basic(login), BODY), 10, each)

    def _connections(self) -> None:
        """More connections of one device than it may have, over MQTT and NATS."""
        attack, number = self._attack, self._attack.connections
        login, other = attack.mqtt[0], attack.nats[0]
        clients = iter(range(10**9))
        self._kept(
            lambda: Mqtt(
                "mqtt connection", self.counts, login, f"{login.name}-{next(clients) % 8}"
            ),
            attack.mqtt_port,
            number,
        )
        inbox = f"_INBOX.sn.{other.name}"
        make = lambda: Nats("nats connection", self.counts, other, inbox)  # noqa: E731
        self._kept(make, attack.nats_port, number)

    def _questions(self) -> None:
        """Requests for events and acknowledgements by the application."""
        attack = self._attack
        client = attack.application.name
        inbox = f"_INBOX.app.{client}"
        make = lambda: Nats("nats pull", self.counts, attack.application, inbox)  # noqa: E731
        places = self._kept(make, attack.nats_port)
        wanted = b'{"batch":1,"no_wait":true}'
        pull = f"PUB $JS.API.CONSUMER.MSG.NEXT.EVENTS.{client} {inbox}.1 {len(wanted)}\r\n"
        self._do(_pace(places, attack.questions, pull.encode() + wanted + b"\r\n"))
        done = f"PUB $JS.ACK.EVENTS.{client}.1.1.1.1.0 4\r\n+ACK\r\n"
        self._do(_pace(places, attack.questions, 2 * done.encode()))

    def _asking(self) -> None:
        """GETs, long polls, WebSockets, hooks and log-ins."""
        attack = self._attack
        bearer = f"Bearer {attack.token}"
        path = f"GET /device/openapi/v1/devices/{attack.device_id}/properties/history?startTime=0"
        self._pulse("get", _request(path, bearer), attack.requests_at_once, attack.requests)
        for login in attack.http:
            poll = f"GET /ingest/v1/{login.name}/commands?wait=20"
            self._pulse("poll", _request(poll, _basic(login)), attack.polls, attack.polls / AGAIN)
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        upgrade += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        socket = _request("GET /websocket", f"Bearer {attack.person}", more=upgrade)
        self._pulse("websocket", socket, attack.websockets, attack.websockets / AGAIN)
        hook = _request(f"POST /workflow/hooks/{attack.hook}", "", b"{}")
        self._pulse("hook", hook, 20, attack.hooks)
        form = "Content-Type: application/x-www-form-urlencoded\r\n"
        sign_in = _request("POST /oauth2/token", "", attack.sign_in.encode(), form)
        self._pulse("log-in", sign_in, 10, attack.sign_ins)

    def _pulse(self, name: str, request: bytes, wires: int, rate: float) -> None:
        """So many requests at once, as often as makes the rate."""
        make = lambda: Http(name, self.counts, request)  # noqa: E731
        places = self._kept(make, self._attack.http_port, wires)
        self._do(_ask(places, wires / rate))


async def _keep(places: "list[Wire | None]", at: int, make: Callable[[], Wire], port: int) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(AGAIN * at / len(places) / 2)
    while True:
        try:
            _, wire = await loop.create_connection(make, "127.0.0.1", port, local_addr=(ADDRESS, 0))
        except OSError:
            await asyncio.sleep(AGAIN)
            continue
        places[at] = wire
        try:
            await wire.over
        finally:
            places[at] = None
            if wire.transport is not None:
                wire.transport.abort()
        await asyncio.sleep(AGAIN)


def _ticks(seconds: float) -> Iterator[float]:
    """How long to wait before each tick; one that is late is not made up for."""
    due = time.monotonic()
    while True:
        due = max(due + seconds, time.monotonic() - seconds)
        yield max(0.0, due - time.monotonic())


async def _pace(places: "list[Wire | None]", rate: int, said: bytes) -> None:
    number = max(1, round(rate * TICK))
    frames = said * number
    for pause in _ticks(number / rate):
        await asyncio.sleep(pause)
        for wire in places:
            if wire is not None:
                wire.say(frames, number)


async def _ask(places: "list[Wire | None]", seconds: float) -> None:
    for pause in _ticks(seconds):
        await asyncio.sleep(pause)
        for wire in places:
            if isinstance(wire, Http):
                wire.ask()


def _basic(login: Login) -> str:
    return "Basic " + base64.b64encode(f"{login.name}:{login.key}".encode()).decode()


def _request(line: str, login: str, body: bytes = b"", more: str = "") -> bytes:
    head = f"{line} HTTP/1.1\r\nHost: bench\r\n{more}"
    if login:
        head += f"Authorization: {login}\r\n"
    if body:
        kind = "" if "Content-Type" in more else "Content-Type: application/json\r\n"
        head += f"{kind}Content-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


async def main() -> None:
    """Do as the input says until it ends."""
    reader = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    load = Load(msgspec.json.decode(await reader.readline(), type=Attack))
    while line := await reader.readline():
        if line == b"start\n":
            load.start()
        else:
            await load.stop()
            print(json.dumps(load.counts), flush=True)
    await load.stop()


if __name__ == "__main__":
    uvloop.run(main())
