"""NATS: reachable, its servers in good health, its streams complete and not full."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from deploy.checkup.findings import CHECK_SECONDS, Finding, failed, found
from deploy.checkup.stores import MOST_SKEW
from libs.common.bus import DEAD, UPLINK, Bus
from libs.common.bus.stream_metrics import StreamReading, read_stream
from libs.common.bus.streams import EVENTS, STREAMS

CONNECT_SECONDS = 3.0
SERVERS_SECONDS = 1.0
"""How long servers may take to say how they are."""
MOST_LAG = 60.0
"""Seconds that a message may wait to be stored."""
FULL = 0.7
"""Part of a stream's bound from which on it is nearly full."""
DROPPING = frozenset({EVENTS, DEAD})
"""Streams that drop the oldest when they are full."""


class _Server(msgspec.Struct):
    name: str
    ver: str
    time: datetime


class _Data(msgspec.Struct):
    status: str = ""
    error: str = ""


class _Health(msgspec.Struct):
    """What a server answers to `$SYS.REQ.SERVER.PING.HEALTHZ`."""

    server: _Server
    data: _Data = msgspec.field(default_factory=_Data)


async def check_streams(url: str, user: str, password: str) -> list[Finding]:
    """What the login of a service sees of JetStream."""
    try:
        bus = await Bus.connect(
            url, user=user, password=password, name="doctor", wait=CONNECT_SECONDS
        )
    except (NatsError, OSError, TimeoutError, APIError) as error:
        return [failed("nats", error, "stores")]
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            readings = {name: await read_stream(bus, name) for name in STREAMS}
    except (NatsError, TimeoutError, msgspec.DecodeError) as error:
        return [failed("jetstream", error, "stores")]
    finally:
        await bus.close()
    return [one for name, reading in readings.items() for one in judged(name, reading)]


def judged(name: str, reading: StreamReading) -> Iterator[Finding]:
    """What is to be said of a stream."""
    subject, most, held = f"stream {name}", reading.config.max_bytes, reading.state.bytes
    text = f"{reading.state.messages} messages, {reading.config.num_replicas} copies"
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


async def check_servers(url: str, user: str, password: str) -> list[Finding]:
    """What each nats-server says of itself to the system account: JetStream, its leader, time."""
    heard: list[tuple[datetime, _Health]] = []

    async def hear(message: Msg) -> None:
        heard.append((datetime.now(UTC), msgspec.json.decode(message.data, type=_Health)))

    try:
        bus = await Bus.connect(
            url, user=user, password=password, name="doctor", wait=CONNECT_SECONDS
        )
    except (NatsError, OSError, TimeoutError, APIError) as error:
        return [failed("nats servers", error, "stores")]
    try:
        inbox, before = bus.client.new_inbox(), datetime.now(UTC)
        await bus.client.subscribe(inbox, cb=hear)
        await bus.client.publish("$SYS.REQ.SERVER.PING.HEALTHZ", reply=inbox)
        await asyncio.sleep(SERVERS_SECONDS)
    finally:
        await bus.close()
    if not heard:
        return [found("nats servers", "none says how it is", "", "stores")]
    return [_server(before, *one) for one in heard]


def _server(before: datetime, after: datetime, health: _Health) -> Finding:
    subject = f"nats-server {health.server.name}"
    theirs = health.server.time
    skew = max((before - theirs).total_seconds(), (theirs - after).total_seconds())
    if skew > MOST_SKEW:
        return found(f"{subject} clock", f"differs by {skew:.1f} s", "", "clock")
    well = health.data.status == "ok"
    wrong = "" if well else f"{health.data.status or 'not ok'}: {health.data.error}"
    return found(subject, wrong, f"{health.server.ver}, JetStream is well", "stores")
