"""Devices that report without pause over every protocol, and what they were promised.

Each report says its number and which attempt at it this is. An attempt that is not
acknowledged is followed by another, so the pair names one message for ever: it may be
stored once at most, and must be stored when it was acknowledged.
"""

import asyncio
import contextlib
import itertools
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import NamedTuple

import aiohttp
import aiomqtt
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import ServiceUnavailableError

from libs.common.bus.streams import read_event_partitions
from tests.e2e.callers import Application
from tests.e2e.devices import Device
from tests.e2e.platform import Platform
from tests.e2e.waiting import until
from tests.faults.operations import Operations, Verdict

WINDOW = 5
"""Reports of a device that wait for their acknowledgement at the same time."""
PACE = 0.05
"""Seconds between a device's windows."""
ANSWER = 5.0
STORED = 35.0
"""Seconds within which the platform says whether a report is stored."""
EVERY_BAD = 10
"""Each tenth report over MQTT and NATS is one that must end in `DEAD`."""
FAULTS = (aiomqtt.MqttError, aiohttp.ClientError, NatsError, OSError, TimeoutError)


class Attempt(NamedTuple):
    """One message: the number of a report, and which attempt at it this is."""

    number: int
    attempt: int = 1

    def good(self) -> bytes:
        """Return a report that is to be stored."""
        return json.dumps(
            {"properties": {"counter": self.number, "attempt": self.attempt}}
        ).encode()

    def bad(self) -> bytes:
        """Return a report that is to be refused."""
        return json.dumps({"properties": {"nope": self}}).encode()


class Unacknowledged(OSError):
    """The platform did not say that it took a report; it has `refused` it, or nobody knows."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.refused = status < 500


Send = Callable[[bytes], Awaitable[object]]


class Load:
    """Devices of one application at work."""

    def __init__(self, platform: Platform, application: Application) -> None:
        self._platform = platform
        self._application = application
        self._stopping = asyncio.Event()
        self.promised: dict[int, set[Attempt]] = defaultdict(set)
        self.promised_dead: dict[int, set[Attempt]] = defaultdict(set)
        self.ways: dict[int, str] = {}
        """How devices report, by id."""
        self.devices: list[Device] = []
        self.connected: list[Device] = []
        """Those of them that hold a connection."""
        self.failures: Counter[str] = Counter()
        self.operations = Operations()

    @property
    def acknowledged(self) -> int:
        """Return the number of acknowledged reports."""
        both = (*self.promised.values(), *self.promised_dead.values())
        return sum(map(len, both))

    @contextlib.asynccontextmanager
    async def running(self, each: int = 3) -> AsyncIterator[None]:
        """Report with `each` devices in each way inside, until acknowledged after it.

        The ways are MQTT, NATS, and HTTP that waits until a report is accepted, or stored.
        """
        jobs: list[asyncio.Task[None]] = []
        ways = {
            "MQTT": self._mqtt,
            "HTTP": self._http,
            "HTTP, stored": partial(self._http, wait="stored"),
            "NATS": self._nats,
        }
        try:
            for (way, speak), _ in itertools.product(ways.items(), range(each)):
                device = await self._application.add_device()
                self.devices.append(device)
                self.ways[device.id] = way
                if way in {"MQTT", "NATS"}:
                    self.connected.append(device)
                has_bad = way in {"MQTT", "NATS"}  # HTTP refuses it at once
                jobs.append(asyncio.create_task(self._keep(device, speak, has_bad)))
            await self.goes_on()
            yield
            await self.goes_on(60)
        finally:
            self._stopping.set()
            await asyncio.gather(*jobs)

    async def goes_on(self, seconds: float = 30, more: int = 0, way: str = "") -> None:
        """Wait until every device has been given a further acknowledgement, and `more`.

        With `way`, until all that report in this way have.
        """
        wanted = (key for key, one in self.ways.items() if way in {"", one})
        before = {key: len(self.promised[key]) for key in wanted}

        async def all_heard() -> bool:
            return all(len(self.promised[key]) > count + more for key, count in before.items())

        await until(all_heard, seconds)

    async def _keep(
        self, device: Device, speak: Callable[[Device], AsyncIterator[Send]], has_bad: bool
    ) -> None:
        """Connect, report until something breaks, and begin again."""
        numbers = itertools.count()
        waiting: list[Attempt] = []
        while not self._stopping.is_set():
            try:
                async with contextlib.aclosing(speak(device)) as connection:
                    async for send in connection:
                        await self._report(device, numbers, waiting, send, has_bad)
            except FAULTS as error:
                self.failures[type(error).__name__] += 1
                await asyncio.sleep(PACE)

    async def _report(
        self,
        device: Device,
        numbers: Iterable[int],
        waiting: list[Attempt],
        send: Send,
        has_bad: bool,
    ) -> None:
        fresh = itertools.islice(numbers, WINDOW - len(waiting))
        waiting += [Attempt(number) for number in fresh]
        bodies = [
            (one.bad(), self.promised_dead)
            if has_bad and one.number % EVERY_BAD == EVERY_BAD - 1
            else (one.good(), self.promised)
            for one in waiting
        ]
        outcomes = await asyncio.gather(*(send(body) for body, _ in bodies), return_exceptions=True)
        failed = []
        for one, (_, promises), outcome in zip(waiting, bodies, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                failed.append(Attempt(one.number, one.attempt + 1))
                refused = isinstance(outcome, Unacknowledged) and outcome.refused
                self.operations.unanswered(refused=refused)
            else:
                promises[device.id].add(one)
                self.operations.acknowledge()
        waiting[:] = failed
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        await asyncio.sleep(PACE)

    async def _mqtt(self, device: Device) -> AsyncIterator[Send]:
        async with device.mqtt() as mqtt:

            async def publish(body: bytes) -> None:
                await mqtt.send("report", body)

            while not self._stopping.is_set():
                yield publish

    async def _http(self, device: Device, wait: str = "") -> AsyncIterator[Send]:
        headers = {"Authorization": aiohttp.encode_basic_auth(device.sn, device.key)}
        timeout = aiohttp.ClientTimeout(total=STORED if wait == "stored" else ANSWER)
        path = f"/ingest/v1/{device.sn}/report"
        query = {"wait": wait} if wait else {}
        async with self._platform.session(headers=headers, timeout=timeout) as session:

            async def post(body: bytes) -> None:
                async with session.post(path, data=body, params=query) as answer:
                    if not answer.ok:
                        self.failures[f"HTTP {answer.status}"] += 1
                        raise Unacknowledged(answer.status)

            while not self._stopping.is_set():
                yield post

    async def _nats(self, device: Device) -> AsyncIterator[Send]:
        async with device.nats(reconnect=False) as client:
            stream = client.jetstream()

            async def publish(body: bytes) -> None:
                await stream.publish(f"thing.{device.sn}.up.report", body, timeout=ANSWER)

            while not self._stopping.is_set():
                yield publish

    async def close(self) -> None:
        """Close the application's connections."""
        await self._application.close()

    async def check(self, before: dict[str, int]) -> None:
        """Check that no report is lost or stored twice, and that the counts agree.

        `before` is the metrics of the idle platform. A slow service may still accept a report whose
        sender no longer waits, so the comparison is repeated until nothing changes.
        """
        last: dict[str, int] = {}
        while (now := await settled(self._platform)) != last:
            last = now
            assert await self._compare() == Verdict()
        grown = {name: count - before[name] for name, count in now.items()}
        counted = {"stored": self.stored, "rejected": self.rejected, "waiting": 0}
        counted["accepted"] = self.stored + self.rejected
        assert grown == counted, (grown, counted)

    async def judge(self) -> Verdict:
        """Compare the promised reports with history, events and `DEAD` when idle."""
        await settled(self._platform)
        return await self._compare()

    async def _compare(self) -> Verdict:
        verdict = Verdict()
        self.stored = self.rejected = 0
        async with self._platform.admin() as client:
            for device in self.devices:
                records = await stored(device)
                subject = f"event.*.device.{device.id}.reported"
                streams = await event_streams(client)
                events = [one for stream in streams for one in await _read(client, stream, subject)]
                published = {_attempt(json.loads(event)["properties"]) for event in events}
                dead = await refused(client, device)
                sn, lost = device.sn, verdict.lost
                lost += [f"{sn} {one}" for one in self.promised[device.id] - records.keys()]
                lost += [f"{sn} {one}" for one in self.promised_dead[device.id] - dead.keys()]
                lost += [f"{sn} {key}: no event" for key in records.keys() - published]
                verdict.doubled.extend(f"{sn} {one}" for one in _repeated(records + dead))
                self.stored += records.total()
                self.rejected += dead.total()
        return verdict


async def event_streams(client: NatsClient) -> list[str]:
    """Return the streams with events."""
    return (await read_event_partitions(client.jetstream())).streams


async def stored(device: Device) -> Counter[Attempt]:
    """Count each attempt in the history of a device."""
    return Counter([_attempt(one["properties"]) for one in await device.history()])


async def refused(client: NatsClient, device: Device) -> Counter[Attempt]:
    """Count each attempt of a device in `DEAD`."""
    return Counter(
        Attempt(*json.loads(json.loads(one)["payload"])["properties"]["nope"])
        for one in await _read(client, "DEAD", f"dead.uplink.{device.sn}")
    )


async def settled(platform: Platform) -> dict[str, int]:
    """Wait until two readings of an idle ingest agree; return the metrics.

    Reports of integrations about themselves, such as that a network server is connected, come at
    any time and are not counted. A reading that began earlier may hold old counts; on a slow disk
    it takes seconds. Version 0.1.0 does not count readings: a second stands for one.
    """
    first: dict[str, int] = {}
    begun = 0.0

    async def same_twice() -> dict[str, int] | None:
        nonlocal first, begun
        with contextlib.suppress(aiohttp.ClientError):
            counts = await platform.metrics()
            readings = counts.pop("readings", time.monotonic())
            own = await _own_reports(client)
            counts |= {name: counts[name] - own for name in ("accepted", "stored")}
            if counts != first or readings < begun:
                first, begun = counts, readings
            elif readings > begun + 1 and counts["waiting"] == 0 and counts["accepted"] + own:
                return counts
        await asyncio.sleep(0.5)
        return None

    async with platform.admin() as client:
        return await until(same_twice, 240) or {}


async def _own_reports(client: NatsClient) -> int:
    """Return how many stored reports are of things that are not devices."""
    subjects = "event.*.thing.*.reported"
    states = [
        (await client.jetstream().stream_info(stream, subjects_filter=subjects)).state
        for stream in await event_streams(client)
    ]
    return sum(sum((state.subjects or {}).values()) for state in states)


def _attempt(properties: dict[str, int]) -> Attempt:
    return Attempt(properties["counter"], properties["attempt"])


def _repeated(counts: Counter[Attempt]) -> dict[Attempt, int]:
    return {one: count for one, count in counts.items() if count > 1}


async def _read(client: NatsClient, stream: str, subject: str) -> list[bytes]:
    """Return every message of a stream on `subject`.

    In a cluster, no server may answer for a consumer in the first moments after its creation.
    """
    consumer = await client.jetstream().pull_subscribe(
        subject,
        stream=stream,
        config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE),
    )
    left = (await consumer.consumer_info()).num_pending
    found: list[bytes] = []

    async def fetch() -> list[Msg] | None:
        with contextlib.suppress(ServiceUnavailableError):
            return await consumer.fetch(min(500, left - len(found)), timeout=5)
        return None

    while left > len(found):
        try:
            messages = await until(fetch)
        except Exception as e:
            ci = await consumer.consumer_info()
            si = await client.jetstream().stream_info(stream, subjects_filter=subject)
            raise AssertionError((stream, subject, left, len(found), ci, si)) from e
        found += [message.data for message in messages]
    await consumer.unsubscribe()
    return found
