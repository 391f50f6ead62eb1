"""An attacker that exceeds its tenant's limits tenfold on every protocol.

`python -m bench.hostile` reads an `Attack` as a line of JSON, and then lines `start` and `stop`;
after each `stop` it prints counts of the responses. Frames are prepared in advance, responses are
counted by their first bytes, and all connections come from their own address (127.0.0.2).
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
RETRY_SECONDS = 1.0
"""Seconds until a closed connection is opened again, and between long polls."""
TICK = 0.05
BODY = b'{"properties":{"at":1.5}}'
_CONNACK, _PUBACK = 0x20, 0x40

Counts = Counter[str]


class Login(msgspec.Struct):
    """Credentials of a device or an application."""

    name: str
    key: str


class Attack(msgspec.Struct):
    """Targets, credentials and rates (per second) of an attack."""

    http_port: int
    mqtt_port: int
    nats_port: int
    device_id: int
    mqtt: list[Login]
    nats: list[Login]
    http: list[Login]
    """Reporting devices by protocol."""
    application: Login
    token: str
    """Token of the application."""
    person: str
    """Token of a console user."""
    sign_in: str
    """The sign-in form of the user."""
    hook: str
    reports: int
    """Reports per device."""
    requests: int
    requests_at_once: int
    polls: int
    """Long polls per HTTP device."""
    websockets: int
    connections: int
    """Connections of one device per bus protocol."""
    questions: int
    """Pull requests of the application on NATS, and half as many acknowledgements."""
    hooks: int
    sign_ins: int


class Wire(asyncio.Protocol):
    """A connection that logs in and sends frames."""

    def __init__(self, name: str, counts: Counts) -> None:
        self.name = name
        self.counts = counts
        self.ready = False
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    def hello(self) -> bytes:
        """Return the first bytes to send."""
        return b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first bytes."""
        self.transport = cast("asyncio.Transport", transport)
        if hello := self.hello():
            self.transport.write(hello)

    def connection_lost(self, error: Exception | None) -> None:
        """Count the closed connection."""
        self.counts[f"{self.name}: closed"] += 1
        self.ready = False
        if not self.over.done():
            self.over.set_result(None)

    def send(self, content: bytes, number: int = 1) -> bool:
        """Send `content` if logged in and the send buffer is empty."""
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
        """Count acknowledgements."""
        if data[0] == _CONNACK:
            self.ready = data[3] == 0
        elif data[0] == _PUBACK:
            self.counts[f"{self.name}: acknowledged"] += len(data) // 4


class Nats(Wire):
    """A device or application on plain NATS."""

    def __init__(self, name: str, counts: Counts, login: Login, inbox: str) -> None:
        super().__init__(name, counts)
        self._login, self._inbox = login, inbox

    def data_received(self, data: bytes) -> None:
        """Log in, answer pings, and count messages."""
        assert self.transport is not None
        if data.startswith(b"INFO"):
            login = {"user": self._login.name, "pass": self._login.key, "verbose": False}
            more = {"lang": "bench", "version": "1", "headers": True, "no_responders": True}
            frame = json.dumps(login | more | {"protocol": 1})
            subscribed = f"SUB {self._inbox}.> 1\r\nPING\r\n"
            self.transport.write(f"CONNECT {frame}\r\n{subscribed}".encode())
        elif data.startswith(b"PONG"):
            self.ready = True
        elif b"PING\r\n" in data:
            self.transport.write(b"PONG\r\n")
        self.counts[f"{self.name}: answers"] += data.count(b"MSG ")


class Http(Wire):
    """A persistent connection with one request at a time."""

    def __init__(self, name: str, counts: Counts, request: bytes) -> None:
        super().__init__(name, counts)
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.ready = True

    def request(self) -> None:
        """Send the request unless a response is pending."""
        if self.send(self._request):
            self.ready = False

    def data_received(self, data: bytes) -> None:
        """Count responses by status; a WebSocket stays open."""
        if data.startswith(b"HTTP/1.1 "):
            status = data[9:12].decode()
            self.counts[f"{self.name}: {status}"] += 1
            self.ready = status != "101"


class Load:
    """All connections of the attack, from `start` to `stop`."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self._tasks: list[asyncio.Task[None]] = []
        self.counts: Counts = Counter()

    def start(self) -> None:
        """Start the attack."""
        self.counts = Counter()
        for begin in (self._reports, self._connections, self._nats_requests, self._http_requests):
            begin()

    async def stop(self) -> None:
        """Stop, and close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _start_job(self, job: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.ensure_future(job))

    def _keep_connected(
        self, make: Callable[[], Wire], port: int, number: int = 1
    ) -> "list[Wire | None]":
        """Return slots of connections that reconnect; each slot holds the current one."""
        slots: list[Wire | None] = [None] * number
        for at in range(number):
            self._start_job(_keep(slots, at, make, port))
        return slots

    def _reports(self) -> None:
        attack, each = self._attack, self._attack.reports
        for login in attack.mqtt:
            frame = packet(0x32, text(f"thing/{login.name}/up/report") + b"\0\1" + BODY)
            slots = self._keep_connected(
                lambda login=login: Mqtt("mqtt report", self.counts, login, login.name),  # type: ignore[misc]
                attack.mqtt_port,
            )
            self._start_job(_pace(slots, each, frame))
        for login in attack.nats:
            inbox = f"_INBOX.sn.{login.name}"
            head = f"PUB thing.{login.name}.up.report {inbox}.1 {len(BODY)}\r\n"
            slots = self._keep_connected(
                lambda login=login, inbox=inbox: Nats("nats report", self.counts, login, inbox),  # type: ignore[misc]
                attack.nats_port,
            )
            self._start_job(_pace(slots, each, head.encode() + BODY + b"\r\n"))
        for login in attack.http:
            path = f"POST /ingest/v1/{login.name}/report"
            self._pulse("http report", _request(path, _basic(login), BODY), 10, each)

    def _connections(self) -> None:
        """Open more connections of one device than allowed, over MQTT and NATS."""
        attack, number = self._attack, self._attack.connections
        login, other = attack.mqtt[0], attack.nats[0]
        clients = iter(range(10**9))
        self._keep_connected(
            lambda: Mqtt(
                "mqtt connection", self.counts, login, f"{login.name}-{next(clients) % 8}"
            ),
            attack.mqtt_port,
            number,
        )
        inbox = f"_INBOX.sn.{other.name}"
        make = lambda: Nats("nats connection", self.counts, other, inbox)  # noqa: E731
        self._keep_connected(make, attack.nats_port, number)

    def _nats_requests(self) -> None:
        """Send pull requests for events, and acknowledgements, as the application."""
        attack = self._attack
        client = attack.application.name
        inbox = f"_INBOX.app.{client}"
        make = lambda: Nats("nats pull", self.counts, attack.application, inbox)  # noqa: E731
        slots = self._keep_connected(make, attack.nats_port)
        wanted = b'{"batch":1,"no_wait":true}'
        pull = f"PUB $JS.API.CONSUMER.MSG.NEXT.EVENTS.{client} {inbox}.1 {len(wanted)}\r\n"
        self._start_job(_pace(slots, attack.questions, pull.encode() + wanted + b"\r\n"))
        done = f"PUB $JS.ACK.EVENTS.{client}.1.1.1.1.0 4\r\n+ACK\r\n"
        self._start_job(_pace(slots, attack.questions, 2 * done.encode()))

    def _http_requests(self) -> None:
        """Send GETs, long polls, WebSockets, webhooks and logins."""
        attack = self._attack
        bearer = f"Bearer {attack.token}"
        path = f"GET /device/openapi/v1/devices/{attack.device_id}/properties/history?startTime=0"
        self._pulse("get", _request(path, bearer), attack.requests_at_once, attack.requests)
        for login in attack.http:
            poll = f"GET /ingest/v1/{login.name}/commands?wait=20"
            self._pulse(
                "poll", _request(poll, _basic(login)), attack.polls, attack.polls / RETRY_SECONDS
            )
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        upgrade += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        socket = _request("GET /websocket", f"Bearer {attack.person}", more=upgrade)
        self._pulse("websocket", socket, attack.websockets, attack.websockets / RETRY_SECONDS)
        hook = _request(f"POST /workflow/hooks/{attack.hook}", "", b"{}")
        self._pulse("hook", hook, 20, attack.hooks)
        form = "Content-Type: application/x-www-form-urlencoded\r\n"
        sign_in = _request("POST /oauth2/token", "", attack.sign_in.encode(), form)
        self._pulse("log-in", sign_in, 10, attack.sign_ins)

    def _pulse(self, name: str, request: bytes, wires: int, rate: float) -> None:
        """Send `wires` requests at once, as often as the rate demands."""
        make = lambda: Http(name, self.counts, request)  # noqa: E731
        slots = self._keep_connected(make, self._attack.http_port, wires)
        self._start_job(_ask(slots, wires / rate))


async def _keep(slots: "list[Wire | None]", at: int, make: Callable[[], Wire], port: int) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(RETRY_SECONDS * at / len(slots) / 2)
    while True:
        try:
            _, wire = await loop.create_connection(make, "127.0.0.1", port, local_addr=(ADDRESS, 0))
        except OSError:
            await asyncio.sleep(RETRY_SECONDS)
            continue
        slots[at] = wire
        try:
            await wire.over
        finally:
            slots[at] = None
            if wire.transport is not None:
                wire.transport.abort()
        await asyncio.sleep(RETRY_SECONDS)


def _ticks(seconds: float) -> Iterator[float]:
    """Yield the pause before each tick; missed ticks are skipped."""
    due = time.monotonic()
    while True:
        due = max(due + seconds, time.monotonic() - seconds)
        yield max(0.0, due - time.monotonic())


async def _pace(slots: "list[Wire | None]", rate: int, frame: bytes) -> None:
    number = max(1, round(rate * TICK))
    frames = frame * number
    for pause in _ticks(number / rate):
        await asyncio.sleep(pause)
        for wire in slots:
            if wire is not None:
                wire.send(frames, number)


async def _ask(slots: "list[Wire | None]", seconds: float) -> None:
    for pause in _ticks(seconds):
        await asyncio.sleep(pause)
        for wire in slots:
            if isinstance(wire, Http):
                wire.request()


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
    """Follow the commands on standard input."""
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
