"""NATS: reachable, its servers in good health, its streams complete and not full."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from deploy.checkup.findings import CHECK_SECONDS, Finding, failed, found
from deploy.checkup.stores import MOST_SKEW, skew
from libs.common.bus import DEAD, UPLINK, Bus
from libs.common.bus.streams import EVENTS, STREAMS
from libs.common.settings import SettingsInvalid
from libs.common.store_metrics import StreamReading, read_stream

CONNECT_SECONDS = 3.0
SERVERS_SECONDS = 1.0
"""How long servers may take to say how they are."""
MOST_LAG = 60.0
"""Seconds that a message may wait to be stored."""
FULL = 0.7
"""Part of a stream's bound from which on it is nearly full."""
HEALTH = "$SYS.REQ.SERVER.PING.HEALTHZ"
FAILURES = (NatsError, APIError, OSError, TimeoutError, ValueError, SettingsInvalid)
"""Of a connection, and of what is asked on it."""
DROPPING = frozenset({EVENTS, DEAD})
"""Streams that drop the oldest when they are full."""


class _Server(msgspec.Struct):
    name: str
    ver: str
    time: datetime


class _Fault(msgspec.Struct):
    error: str = ""


class _Data(msgspec.Struct):
    status: str = ""
    error: str = ""
    errors: list[_Fault] = []


class _Health(msgspec.Struct):
    """What a server answers to `$SYS.REQ.SERVER.PING.HEALTHZ`."""

    server: _Server
    data: _Data = msgspec.field(default_factory=_Data)


@dataclass(frozen=True)
class Login:
    """A way into NATS."""

    url: str
    user: str
    password: str = field(repr=False)
    ca_file: str = ""

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Bus]:
        """A connection; raises what `Bus.connect` does."""
        bus = await Bus.connect(
            self.url,
            user=self.user,
            password=self.password,
            name="doctor",
            ca_file=self.ca_file,
            wait=CONNECT_SECONDS,
        )
        try:
            yield bus
        finally:
            await bus.close()


async def check_streams(login: Login) -> list[Finding]:
    """What the login of a service sees of JetStream."""
    try:
        async with login.connected() as bus, asyncio.timeout(CHECK_SECONDS):
            readings = {name: await read_stream(bus, name) for name in STREAMS}
    except FAILURES as error:
        return [failed("nats", error, "stores")]
    return [one for name, reading in readings.items() for one in judged(name, reading)]


def judged(name: str, reading: StreamReading) -> Iterator[Finding]:
    """What is to be said of a stream."""
    subject, most, held = f"stream {name}", reading.config.max_bytes, reading.state.bytes
    text = f"{reading.state.messages} messages, copies: {reading.config.num_replicas}"
    if most > 0:
        text += f", {held / most:.0%} full"
    lacks = f"{reading.missing} copies are missing or behind" if reading.missing else ""
    yield found(subject, lacks, text, "thingwaystreamreplicasmissing", minor=True)
    if name not in DROPPING and most > 0 and held > FULL * most:
        yield found(f"{subject} fill", text, "", "thingwaystreamfilling")
    if name == UPLINK:
        late = reading.oldest if reading.oldest > MOST_LAG else 0
        wrong = f"the oldest message waits for {late:.0f} s" if late else ""
        yield found("lag of ingest", wrong, f"{reading.oldest:.0f} s", "thingwayingestlag")
    if name == DEAD and reading.state.messages:
        wrong = f"{reading.state.messages} messages were refused in the last 30 days"
        yield found("dead letters", wrong, "", "thingwaymessagesrefused", minor=True)


async def check_servers(login: Login) -> list[Finding]:
    """What each nats-server says of itself to the system account: JetStream, its leader, time."""
    heard: list[tuple[datetime, _Health]] = []

    async def hear(message: Msg) -> None:
        heard.append((datetime.now(UTC), msgspec.json.decode(message.data, type=_Health)))

    try:
        async with login.connected() as bus:
            inbox, before = bus.client.new_inbox(), datetime.now(UTC)
            await bus.client.subscribe(inbox, cb=hear)
            await bus.client.publish(HEALTH, b'{"details":true}', reply=inbox)
            await asyncio.sleep(SERVERS_SECONDS)
    except FAILURES as error:
        return [failed("nats servers", error, "stores")]
    if not heard:
        return [found("nats servers", "none says how it is", "", "stores")]
    return [_server(before, *one) for one in heard]


def _server(before: datetime, after: datetime, health: _Health) -> Finding:
    subject = f"nats-server {health.server.name}"
    differs = skew(before, health.server.time, after)
    if differs > MOST_SKEW:
        return found(f"{subject} clock", f"differs by {differs:.1f} s", "", "clock")
    well = health.data.status == "ok"
    faults = "; ".join(one.error for one in health.data.errors) or health.data.error
    wrong = "" if well else f"{health.data.status or 'not ok'}: {faults}"
    return found(subject, wrong, f"{health.server.ver}, JetStream is well", "stores")
