"""Devices that report without pause over every protocol, and what they were promised.

Each report says its number and which attempt at it this is. An attempt that is not
acknowledged is followed by another, so the pair names one message for ever: it may be
stored once at most, and must be stored when it was acknowledged.
"""

import asyncio
import contextlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import NamedTuple

import aiohttp
import aiomqtt
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from tests.e2e.callers import Application
from tests.e2e.devices import Device
from tests.e2e.platform import Platform
from tests.e2e.waiting import until

WINDOW = 5
"""Reports of a device that wait for their acknowledgement at the same time."""
PACE = 0.05
"""Seconds between a device's windows."""
ANSWER = 5.0
EVERY_BAD = 10
"""Each tenth report over MQTT and NATS is one that must end in `DEAD`."""
FAULTS = (aiomqtt.MqttError, aiohttp.ClientError, NatsError, OSError, TimeoutError)


class Attempt(NamedTuple):
    """One message: the number of a report, and which attempt at it this is."""

    number: int
    attempt: int = 1

    def good(self) -> bytes:
        """A report that is to be stored."""
        return json.dumps(
            {"properties": {"counter": self.number, "attempt": self.attempt}}
        ).encode()

    def bad(self) -> bytes:
        """A report that is to be refused."""
        return json.dumps({"properties": {"nope": self}}).encode()


class Unacknowledged(OSError):
    """The platform did not take a report."""


Send = Callable[[bytes], Awaitable[object]]


class Load:
    """Devices of one application at work."""

    def __init__(self, platform: Platform, application: Application) -> None:
        self._platform = platform
        self._application = application
        self._stopping = asyncio.Event()
        self.promised: dict[int, set[Attempt]] = defaultdict(set)
        self.promised_dead: dict[int, set[Attempt]] = defaultdict(set)
        self.devices: list[Device] = []
        self.failures: Counter[str] = Counter()

    @property
    def acknowledged(self) -> int:
        """How many reports were acknowledged until now."""
        both = (*self.promised.values(), *self.promised_dead.values())
        return sum(map(len, both))

    @contextlib.asynccontextmanager
    async def running(self, each: int = 3) -> AsyncIterator[None]:
        """Report with `each` devices over each protocol inside, until acknowledged after it."""
        jobs = []
        for speak, _ in itertools.product((self._mqtt, self._http, self._nats), range(each)):
            device = await self._application.add_device()
            self.devices.append(device)
            jobs.append(asyncio.create_task(self._keep(device, speak)))
        try:
            await self.goes_on()
            yield
            await self.goes_on(60)
        finally:
            self._stopping.set()
            await asyncio.gather(*jobs)

    async def goes_on(self, seconds: float = 30) -> None:
        """Wait until every device has been given a further acknowledgement."""
        before = {device.id: len(self.promised[device.id]) for device in self.devices}

        async def all_heard() -> bool:
            return all(len(self.promised[key]) > count for key, count in before.items())

        await until(all_heard, seconds)

    async def _keep(self, device: Device, speak: Callable[[Device], AsyncIterator[Send]]) -> None:
        """Connect, report until something breaks, and begin again."""
        numbers = itertools.count()
        has_bad = speak != self._http  # HTTP refuses it at once
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
            else:
                promises[device.id].add(one)
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

    async def _http(self, device: Device) -> AsyncIterator[Send]:
        headers = {"Authorization": aiohttp.encode_basic_auth(device.sn, device.key)}
        timeout = aiohttp.ClientTimeout(total=ANSWER)
        async with aiohttp.ClientSession(
            self._platform.base_url, headers=headers, timeout=timeout
        ) as session:

            async def post(body: bytes) -> None:
                async with session.post(f"/ingest/v1/{device.sn}/report", data=body) as answer:
                    if answer.status != 202:
                        self.failures[f"HTTP {answer.status}"] += 1
                        raise Unacknowledged(await answer.text())

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
        """Close what the application had open."""
        await self._application.close()

    async def check(self, before: dict[str, int]) -> None:
        """Every promise is kept, nothing is there twice, and the counts agree.

        `before` is what the metrics said when nothing was on its way.
        """
        now = await settled(self._platform)
        kept = rejected = 0
        async with self._platform.admin() as client:
            for device in self.devices:
                records = await stored(device)
                events = await _read(client, "EVENTS", f"event.*.device.{device.id}.reported")
                told = {_attempt(json.loads(one)["properties"]) for one in events}
                dead = await refused(client, device)
                assert _repeated(records) == {}
                assert _repeated(dead) == {}
                assert self.promised[device.id] - records.keys() == set()
                assert self.promised_dead[device.id] - dead.keys() == set()
                assert told == records.keys()
                kept += records.total()
                rejected += dead.total()
        assert now["stored"] - before["stored"] == kept
        assert now["rejected"] - before["rejected"] == rejected
        assert now["accepted"] == now["stored"] + now["rejected"]


async def stored(device: Device) -> Counter[Attempt]:
    """What is in the history of a device, and how often."""
    return Counter([_attempt(one["properties"]) for one in await device.history()])


async def refused(client: NatsClient, device: Device) -> Counter[Attempt]:
    """What `DEAD` has of a device, and how often."""
    return Counter(
        Attempt(*json.loads(json.loads(one)["payload"])["properties"]["nope"])
        for one in await _read(client, "DEAD", f"dead.uplink.{device.sn}")
    )


async def settled(platform: Platform) -> dict[str, int]:
    """The metrics of ingest when nothing waits; they are read once a second."""
    last: dict[str, int] = {}

    async def same_twice() -> dict[str, int] | None:
        nonlocal last
        with contextlib.suppress(aiohttp.ClientError):
            before, last = last, await platform.metrics()
            if last and last == before and last["waiting"] == 0 and last["accepted"]:
                return last
        await asyncio.sleep(1.2)
        return None

    return await until(same_twice, 240) or {}


def _attempt(properties: dict[str, int]) -> Attempt:
    return Attempt(properties["counter"], properties["attempt"])


def _repeated(counts: Counter[Attempt]) -> dict[Attempt, int]:
    return {one: count for one, count in counts.items() if count > 1}


async def _read(client: NatsClient, stream: str, subject: str) -> list[bytes]:
    """Every message of a stream on `subject`."""
    consumer = await client.jetstream().pull_subscribe(
        subject,
        stream=stream,
        config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE),
    )
    left = (await consumer.consumer_info()).num_pending
    found: list[bytes] = []
    while left > len(found):
        try:
            messages = await consumer.fetch(min(500, left - len(found)), timeout=5)
        except Exception as e:
            ci = await consumer.consumer_info()
            si = await client.jetstream().stream_info(stream, subjects_filter=subject)
            raise AssertionError((stream, subject, left, len(found), ci, si)) from e
        found += [message.data for message in messages]
    await consumer.unsubscribe()
    return found
