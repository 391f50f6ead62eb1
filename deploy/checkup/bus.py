"""Checks of NATS: reachable, healthy servers, complete streams with free space."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from deploy.checkup.findings import (
    MAX_CHECKUP_SECONDS,
    Finding,
    build_error_finding,
    build_finding,
    run_check,
)
from deploy.checkup.stores import MAX_SKEW_SECONDS, clock_skew_seconds
from libs.common.bus import DEAD, UPLINK, Bus
from libs.common.bus.streams import (
    EVENT_PARTITION_NAMES,
    EVENTS,
    STREAM_CONFIGS,
    UPLINK_STREAM_NAMES,
    find_uplink_streams,
)
from libs.common.settings import SettingsInvalid
from libs.common.store_metrics import StreamReading, read_stream

HEALTH_REPLY_SECONDS = 1.0
"""Seconds in which health replies of all nats-servers are collected."""
MAX_LAG_SECONDS = 60.0
"""Seconds that a report may wait in `UPLINK` before a fault is reported."""
NEARLY_FULL_SHARE = 0.7
"""Fraction of its size limit above which a stream counts as nearly full."""
PARTITION_READER_USERS = ("device", "device-ingest")
"""NATS users (of services) that may read the partitions of `UPLINK`."""
HEALTH_SUBJECT = "$SYS.REQ.SERVER.PING.HEALTHZ"
CONNECTION_ERRORS = (NatsError, APIError, OSError, ValueError, SettingsInvalid)
"""Errors of a NATS connection and its requests."""
DROPPING_STREAMS = frozenset({EVENTS, *EVENT_PARTITION_NAMES, DEAD})
"""Streams that delete their oldest messages when full."""


class _ServerInfo(msgspec.Struct):
    name: str
    ver: str
    time: datetime


class _HealthError(msgspec.Struct):
    error: str = ""


class _HealthData(msgspec.Struct):
    status: str = ""
    error: str = ""
    errors: list[_HealthError] = []


class _HealthReply(msgspec.Struct):
    """Reply of a server to `$SYS.REQ.SERVER.PING.HEALTHZ`."""

    server: _ServerInfo
    data: _HealthData = msgspec.field(default_factory=_HealthData)


@dataclass(frozen=True)
class BusLogin:
    """Address and credentials for NATS."""

    url: str
    user: str
    password: str = field(repr=False)
    ca_file: str = ""

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Bus]:
        """Yield a connection; raise the errors of `Bus.connect`."""
        bus = await Bus.connect(
            self.url,
            user=self.user,
            password=self.password,
            name="doctor",
            ca_file=self.ca_file,
            wait=MAX_CHECKUP_SECONDS,
        )
        try:
            yield bus
        finally:
            await bus.close()


async def check_streams(login: BusLogin, deadline: float) -> list[Finding]:
    """Check all streams as the user of a service."""
    return await run_check("nats", "stores", _check_streams(login), deadline, *CONNECTION_ERRORS)


async def _check_streams(login: BusLogin) -> list[Finding]:
    async with login.connect() as bus:
        names = dict.fromkeys([*STREAM_CONFIGS, *(await bus.read_partitions()).streams])
        if login.user in PARTITION_READER_USERS:
            names |= dict.fromkeys(await find_uplink_streams(bus.js))
        findings = await asyncio.gather(*(_check_stream(bus, name) for name in names))
    return [*chain.from_iterable(findings)]


async def _check_stream(bus: Bus, name: str) -> list[Finding]:
    try:
        return [*assess_stream(name, await read_stream(bus, name))]
    except NatsError as error:
        return [build_error_finding(f"stream {name}", error, "thingwaystreamrecreated")]


def assess_stream(name: str, reading: StreamReading) -> Iterator[Finding]:
    """Yield the findings for a stream."""
    subject, maximum, used_bytes = f"stream {name}", reading.config.max_bytes, reading.state.bytes
    text = f"{reading.state.messages} messages, replicas: {reading.config.num_replicas}"
    if maximum > 0:
        text += f", {used_bytes / maximum:.0%} full"
    lacks = (
        f"{reading.missing_replicas} replicas are missing or behind"
        if reading.missing_replicas
        else ""
    )
    yield build_finding(subject, lacks, text, "thingwaystreamreplicasmissing", minor=True)
    if name not in DROPPING_STREAMS and maximum > 0 and used_bytes > NEARLY_FULL_SHARE * maximum:
        yield build_finding(f"{subject} fill", text, "", "thingwaystreamfilling")
    if name in UPLINK_STREAM_NAMES:
        late = reading.oldest_age_seconds if reading.oldest_age_seconds > MAX_LAG_SECONDS else 0
        wrong = f"the oldest report has waited for {late:.0f} s" if late else ""
        yield build_finding(
            f"ingest lag of {name}" if name != UPLINK else "ingest lag",
            wrong,
            f"{reading.oldest_age_seconds:.0f} s",
            "thingwayingestlag",
        )
    if name == DEAD and reading.state.messages:
        wrong = f"{reading.state.messages} messages were rejected in the last 30 days"
        yield build_finding("rejected messages", wrong, "", "thingwaymessagesrefused", minor=True)


async def check_servers(login: BusLogin, deadline: float) -> list[Finding]:
    """Check JetStream, its leader and the clock of each nats-server, as system user."""
    return await run_check(
        "nats servers", "stores", _check_servers(login), deadline, *CONNECTION_ERRORS
    )


async def _check_servers(login: BusLogin) -> list[Finding]:
    responses: list[tuple[datetime, _HealthReply]] = []

    async def collect(message: Msg) -> None:
        responses.append((datetime.now(UTC), msgspec.json.decode(message.data, type=_HealthReply)))

    async with login.connect() as bus:
        inbox, before = bus.client.new_inbox(), datetime.now(UTC)
        await bus.client.subscribe(inbox, cb=collect)
        await bus.client.publish(HEALTH_SUBJECT, b'{"details":true}', reply=inbox)
        await asyncio.sleep(HEALTH_REPLY_SECONDS)
    if not responses:
        return [build_finding("nats servers", "no server replies", "", "stores")]
    return [_assess_server(before, *response) for response in responses]


def _assess_server(before: datetime, after: datetime, health: _HealthReply) -> Finding:
    subject = f"nats-server {health.server.name}"
    differs = clock_skew_seconds(before, health.server.time, after)
    if differs > MAX_SKEW_SECONDS:
        return build_finding(f"{subject} clock", f"differs by {differs:.1f} s", "", "clock")
    well = health.data.status == "ok"
    faults = "; ".join(fault.error for fault in health.data.errors) or health.data.error
    wrong = "" if well else f"{health.data.status or 'not ok'}: {faults}"
    return build_finding(subject, wrong, f"{health.server.ver}, JetStream is healthy", "stores")
