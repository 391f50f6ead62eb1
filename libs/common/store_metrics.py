"""Metrics of streams and of the stores' disks and memory, measured for `/metrics`."""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from datetime import UTC, datetime
from functools import partial

import msgspec
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.errors import NotFoundError
from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from libs.common.bus.connection import Bus
from libs.common.bus.consumer import measure_backlog, recreated_gauge
from libs.common.bus.streams import EVENT_CONSUMERS, RETAINED
from libs.common.scheduling.turns import repeat
from libs.common.settings import StorageSize
from libs.common.store.mongo import Database
from libs.common.store.redis import Redis

log = logging.getLogger(__name__)

_create_gauge = metrics.get_meter("thingway").create_gauge

MEASURE_INTERVAL_SECONDS = 15.0
"""Seconds between two measurements."""
STALE_SECONDS = 60.0
"""Seconds after which an outdated measurement is no longer shown."""
READ_TIMEOUT_SECONDS = 5.0


class StreamReplica(msgspec.Struct):
    """A server with a copy of a stream, other than the leader."""

    name: str = ""
    current: bool = False
    offline: bool = False
    lag: int = 0


class StreamServers(msgspec.Struct):
    """The servers that store a stream."""

    leader: str = ""
    replicas: list[StreamReplica] = []


class StreamContent(msgspec.Struct):
    """The content of a stream."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    first_ts: datetime | None = None


class StreamLimits(msgspec.Struct):
    """The limits of a stream (-1 without a limit), and its number of copies."""

    max_bytes: int = -1
    num_replicas: int = 1
    max_msgs: int = -1


class _ApiError(msgspec.Struct):
    description: str = ""


class StreamReading(msgspec.Struct):
    """The used fields of JetStream's answer about a stream."""

    state: StreamContent = msgspec.field(default_factory=StreamContent)
    config: StreamLimits = msgspec.field(default_factory=StreamLimits)
    cluster: StreamServers | None = None
    """None on a single server."""
    created: datetime = datetime.fromtimestamp(0, UTC)
    ts: datetime | None = None
    error: _ApiError | None = None

    @property
    def oldest_age_seconds(self) -> float:
        """Return the age of the stream's oldest message in seconds, by the server's clock."""
        first = self.state.first_ts
        if not self.state.messages or first is None:
            return 0.0
        return max(0.0, ((self.ts or datetime.now(UTC)) - first).total_seconds())

    @property
    def missing_replicas(self) -> int:
        """Return the number of copies that are missing or outdated."""
        if self.cluster is None:
            return 0
        good = sum(replica.current and not replica.offline for replica in self.cluster.replicas)
        return max(0, self.config.num_replicas - good - bool(self.cluster.leader))


_decode_reading = msgspec.json.Decoder(StreamReading).decode


async def read_stream(bus: Bus, name: str) -> StreamReading:
    """Return the current state of a stream; raise `NatsError` or `TimeoutError`."""
    answer = await bus.client.request(f"$JS.API.STREAM.INFO.{name}", timeout=READ_TIMEOUT_SECONDS)
    reading = _decode_reading(answer.data)
    if reading.error is not None:
        raise NatsError(f"{name}: {reading.error.description}")
    return reading


class StreamMetrics:
    """Measures streams in the background, and notices streams that were created again."""

    def __init__(
        self,
        bus: Bus,
        streams: Collection[str],
        database: Database,
        set_limits: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`database` stores when each stream was created.

        `set_limits` sets missing limits of streams. It is called after a stream was created,
        because nats-server creates its streams for MQTT without limits.
        """
        self._bus = bus
        self._streams = streams
        self._set_limits = set_limits
        self._records = database["streams"]
        self._known: dict[str, datetime] = {}
        self._last: dict[str, StreamReading] = {}
        self._read_at = float("-inf")
        meter = metrics.get_meter("thingway")
        gauges: Iterable[tuple[str, str, Callable[[StreamReading], float]]] = (
            ("messages", "Messages of a stream", lambda stream: stream.state.messages),
            ("bytes", "Bytes of a stream", lambda stream: stream.state.bytes),
            ("limit_bytes", "Maximum bytes of a stream", lambda stream: stream.config.max_bytes),
            ("limit_messages", "Maximum messages of a stream", lambda o: o.config.max_msgs),
            (
                "oldest_seconds",
                "Age of a stream's oldest message",
                lambda stream: stream.oldest_age_seconds,
            ),
            (
                "replicas_missing",
                "Missing or outdated copies of a stream",
                lambda stream: stream.missing_replicas,
            ),
        )
        for name, text, value in gauges:
            meter.create_observable_gauge(
                f"thingway_stream_{name}", [self._observer(value)], description=text
            )

    def _observer(
        self, value: Callable[[StreamReading], float]
    ) -> Callable[[CallbackOptions], list[Observation]]:
        def observe(_: CallbackOptions) -> list[Observation]:
            if time.monotonic() - self._read_at > STALE_SECONDS:
                return []
            return [
                Observation(value(stream), {"stream": name}) for name, stream in self._last.items()
            ]

        return observe

    async def run(self) -> None:
        """Measure the streams periodically, for ever."""
        await repeat(self._read, MEASURE_INTERVAL_SECONDS, "metrics of streams")

    async def _read(self) -> None:
        events = (await self._bus.read_partitions(MEASURE_INTERVAL_SECONDS)).streams
        names = {*self._streams, *events}
        self._last = {name: await read_stream(self._bus, name) for name in names}
        self._read_at = time.monotonic()
        created = {name: reading.created for name, reading in self._last.items()}
        if created != self._known and self._set_limits is not None:
            await self._set_limits()
        for name, at in created.items():
            if self._known.get(name) != at:
                await self._compare(name, at)
                self._known[name] = at

    async def _compare(self, name: str, created: datetime) -> None:
        """Compare a stream's creation with the stored one; record and log a new creation."""
        text = created.isoformat()
        stored = await self._records.find_one({"_id": name}) or {"created": text}
        if stored["created"] != text and name != RETAINED:  # it has no messages that anyone reads
            log.error(
                "stream %s was deleted and created again at %s: messages that waited in it are "
                "lost",
                name,
                text,
            )
            stored["recreated"] = created.timestamp()
        new = {"_id": name, **stored, "created": text}
        await self._records.replace_one({"_id": name}, new, upsert=True)
        if stored.get("recreated"):
            recreated_gauge.set(stored["recreated"], {"stream": name})


async def measure_event_readers(bus: Bus) -> None:
    """Measure for ever the backlog of each service that reads events, even if it is stopped."""
    read = partial(read_backlogs, bus)
    await repeat(read, MEASURE_INTERVAL_SECONDS, "metrics of the consumers of events")


async def read_backlogs(bus: Bus) -> None:
    """Measure the backlog of each service that reads events."""
    for stream in (await bus.read_partitions(MEASURE_INTERVAL_SECONDS)).streams:
        for name in EVENT_CONSUMERS:
            try:
                await measure_backlog(bus, stream, name)
            except NotFoundError:
                continue  # its service has not started, or does not know the partition yet


DISK_INTERVAL_SECONDS = 30.0
"""Seconds between two measurements."""


class _JetStreamBounds(msgspec.Struct):
    max_storage: int = 0


class _JetStream(msgspec.Struct):
    storage: int = 0
    config: _JetStreamBounds = msgspec.field(default_factory=_JetStreamBounds)


class _Server(msgspec.Struct):
    name: str = ""


class _JetStreamAnswer(msgspec.Struct):
    """The answer of a server to `$SYS.REQ.SERVER.PING.JSZ`."""

    server: _Server = msgspec.field(default_factory=_Server)
    data: _JetStream = msgspec.field(default_factory=_JetStream)


def storage_bytes(size: StorageSize) -> float:
    """Return the bytes of a size such as `20Gi`; infinity if it is empty."""
    return int(size[:-2]) * 1024.0 ** ("KMGT".index(size[-2]) + 1) if size else math.inf


_decode_jetstream_answer = msgspec.json.Decoder(_JetStreamAnswer).decode
_storage_used_gauge = _create_gauge(
    "thingway_jetstream_used_bytes", description="Bytes that the streams of a nats-server use"
)
_storage_size_gauge = _create_gauge(
    "thingway_jetstream_limit_bytes", description="Bytes that its streams may use"
)


async def measure_jetstream(system: Bus, volume: StorageSize = "") -> None:
    """Measure for ever the storage of each nats-server, as user of the system account.

    `volume` is the size of a server's volume, if it is known.
    """
    read = partial(_read_jetstream, system, storage_bytes(volume))
    await repeat(read, DISK_INTERVAL_SECONDS, "metrics of JetStream's storage")


async def _read_jetstream(system: Bus, largest: float) -> None:
    client = system.client
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    try:
        await client.publish("$SYS.REQ.SERVER.PING.JSZ", b"", inbox)
        while True:
            answer = _decode_jetstream_answer(
                (await answers.next_msg(timeout=READ_TIMEOUT_SECONDS)).data
            )
            server = {"server": answer.server.name}
            _storage_used_gauge.set(answer.data.storage, server)
            _storage_size_gauge.set(min(answer.data.config.max_storage, largest), server)
    except NatsTimeout:
        return  # every server has answered
    finally:
        await answers.unsubscribe()


_disk_used_gauge = _create_gauge(
    "thingway_mongo_disk_used_bytes", description="Used bytes of MongoDB's volume"
)
_disk_size_gauge = _create_gauge(
    "thingway_mongo_disk_bytes", description="Size of MongoDB's volume"
)


async def read_disk(database: Database) -> tuple[float, float]:
    """Return used and total bytes of the file system of `database` on its primary."""
    statistics = await database.command("dbStats")
    return float(statistics.get("fsUsedSize", 0)), float(statistics.get("fsTotalSize", 0))


async def measure_disk(database: Database) -> None:
    """Measure MongoDB's disk for ever, in one process of the platform."""

    async def read() -> None:
        used, size = await read_disk(database)
        _disk_used_gauge.set(used)
        _disk_size_gauge.set(size)

    await repeat(read, DISK_INTERVAL_SECONDS, "metrics of MongoDB's disk")


_memory_used_gauge = _create_gauge(
    "thingway_redis_memory_used_bytes", description="Bytes that Redis uses"
)
_memory_size_gauge = _create_gauge(
    "thingway_redis_memory_limit_bytes", description="Bytes that Redis may use"
)


async def measure_redis(redis: Redis) -> None:
    """Measure Redis' memory for ever."""

    async def read() -> None:
        memory = await redis.info("memory")
        _memory_used_gauge.set(memory["used_memory"])
        _memory_size_gauge.set(memory["maxmemory"] or memory["total_system_memory"])

    await repeat(read, DISK_INTERVAL_SECONDS, "metrics of Redis' memory")
