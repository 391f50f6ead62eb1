"""What reports, commands and presence need, on real servers, with devices written directly."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

from libs.common.bus import (
    DEAD,
    EVENTS,
    UPLINK,
    Bus,
    Outbox,
    OutboxEntry,
    OutgoingMessage,
    RpcClient,
    Wakeups,
)
from libs.common.bus.subjects import uplink_subject
from libs.common.contracts.limits import Limits
from libs.common.limits.tenants import LimitsCache
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from libs.common.tsl import parse_document
from services.device.alarms.rules import RuleStore
from services.device.alarms.store import AlarmStore
from services.device.alarms.trigger import RuleAlarmTrigger, RuleIndexCache
from services.device.commands.completion import CommandCompletion
from services.device.commands.model import Command
from services.device.commands.store import CommandStore
from services.device.lorawan.codec_cache import CodecCache
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.frame_decoder import CodecFrameDecoder
from services.device.lorawan.frame_store import FrameStore
from services.device.members.shapes import ShapeStore, ShapeUpdater
from services.device.migrations import MIGRATIONS
from services.device.telemetry.batch_store import SEEN_COLLECTION, BatchStore
from services.device.telemetry.dead_messages import DeadMessageBuilder
from services.device.telemetry.device_fields import DeviceFieldUpdater
from services.device.telemetry.ingest import Ingest
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.ledger import Ledger, LedgerTotals
from services.device.telemetry.partitions import DAY_MS, Partitions
from services.device.telemetry.quota import MessageQuota
from services.device.telemetry.retention import Retention
from services.device.things.device_store import DeviceStore
from services.device.things.directory import ThingDirectory
from services.device.things.product_store import ProductStore
from services.device.things.specifications import TslStore
from tests.servers import Servers

DURABLE = "ingest"
RETENTION_MS = 30 * DAY_MS


def _property(key: str, kind: str, mode: str = "RW", **more: Any) -> dict[str, Any]:
    return {
        "id": key,
        "name": key,
        "accessMode": mode,
        "dataSpec": {"dataType": kind},
        **more,
    }


TSL = {
    "version": "v1.0",
    "properties": [
        _property("temperature", "FLOAT", "R"),
        _property("interval", "INT"),
        _property("battery", "INT", "R"),
        _property("firmware_version", "STRING", "R"),
        _property("limits", "STRUCT"),
        _property("limits.low", "INT"),
        _property("limits.high", "INT"),
    ],
    "events": [
        {
            "id": "alarm",
            "name": "Alarm",
            "type": "WARN",
            "outputs": [
                {"id": "alarm.level", "name": "level", "dataSpec": {"dataType": "INT"}},
            ],
        }
    ],
    "services": [
        {
            "id": "reboot",
            "name": "Reboot",
            "callType": "ASYNC",
            "inputs": [],
            "outputs": [
                {"id": "reboot.took", "name": "took", "dataSpec": {"dataType": "INT"}},
            ],
        }
    ],
}

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Process:
    """What one `device-ingest` process holds."""

    ledger: Ledger
    devices: DeviceStore
    things: ThingDirectory
    products: ProductStore
    ingest: Ingest
    commands: CommandCompletion


@dataclass
class World:
    """One database, one bus, and as many processes as a test wants."""

    mongo: Mongo
    bus: Bus
    outbox: Outbox
    latest: LatestValues
    commands: CommandStore
    workers: CodecWorkers
    first: Process

    @property
    def database(self) -> Any:
        return self.mongo.database

    def process(self, bus: Any = None, limits: Limits | None = None) -> Process:
        """Start another ingest process."""
        rpc = RpcClient(self.bus)
        known = LimitsCache(rpc, limits)
        partitions, ledger = Partitions(self.database), Ledger(self.mongo)
        devices = DeviceStore(self.mongo, self.outbox, known, self.latest)
        tsls = TslStore(self.database)
        things = ThingDirectory(self.database, devices, tsls)
        products = ProductStore(self.mongo, devices, tsls, known)
        frames = CodecFrameDecoder(
            store=FrameStore(self.mongo),
            codecs=CodecCache(products),
            workers=self.workers,
            retention=Retention(products, known, RETENTION_MS // DAY_MS),
            retention_ms=RETENTION_MS,
            frame_days=30,
        )
        store = BatchStore(self.mongo, partitions, ledger, frames)
        rules = RuleStore(self.database, known, self.commands.wakeups)
        states = AlarmStore(self.mongo, self.outbox, devices, self.commands.wakeups)
        alarms = RuleAlarmTrigger(RuleIndexCache(rules, states))
        commands = CommandCompletion(
            devices=devices, commands=self.commands, latest=self.latest, batch_store=store
        )
        ingest = Ingest(
            bus=bus or self.bus,
            things=things,
            store=store,
            latest=self.latest,
            device_fields=DeviceFieldUpdater(devices, self.latest, products),
            shapes=ShapeUpdater(ShapeStore(self.database), devices, known),
            commands=commands,
            alarms=alarms,
            quota=MessageQuota(known, rpc),
            dead_messages=DeadMessageBuilder(known),
            frames=frames,
            retention_ms=RETENTION_MS,
        )
        return Process(ledger, devices, things, products, ingest, commands)

    async def add(self, number: int, model: str = "m", **more: Any) -> str:
        """Write a device `SN{number}`; return its SN."""
        sn = f"SN{number}"
        await self.database["devices"].insert_one(
            {
                "_id": number,
                "sn": sn,
                "snKey": sn,
                "tenant": "default",
                "model": model,
                "tslVersion": "v1.0",
                "name": f"device {number}",
                "application": {"applicationId": 1},
                "connectStatus": "DISCONNECT",
                "createdAt": NOON,
                "updatedAt": NOON,
                **more,
            }
        )
        return sn

    async def write(self, commands: Sequence[Command], says: Sequence[OutboxEntry] = ()) -> None:
        """Write commands as they are, with what they say."""
        await self.commands.insert_and_publish((commands, says))

    async def say(self, sn: str, body: Any, channel: str = "report") -> None:
        """Put one message of a device on `UPLINK`."""
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        await self.bus.publish([OutgoingMessage(uplink_subject(sn, channel), raw)])

    async def say_all(self, messages: Iterable[tuple[str, Any]]) -> None:
        """Put reports on `UPLINK`, in order."""
        await self.bus.publish(
            [
                OutgoingMessage(uplink_subject(sn, "report"), msgspec.json.encode(body))
                for sn, body in messages
            ]
        )

    async def fetch(self, count: int) -> list[Msg]:
        """Take `count` messages from `UPLINK`, as ingest's consumer would deliver them."""
        subscription = await self.bus.js.pull_subscribe_bind(DURABLE, UPLINK)
        try:
            messages: list[Msg] = []
            while len(messages) < count:
                messages += await subscription.fetch(count - len(messages), timeout=5)
        finally:
            await subscription.unsubscribe()
        return messages

    async def deal(self, count: int) -> None:
        """Let the first process deal with the next `count` messages."""
        await self.first.ingest.handle(await self.fetch(count))

    async def latest_of(self, number: int) -> dict[str, Any]:
        """The latest values of one device."""
        return (await self.latest.find_values([number])).get(number, {})

    async def waiting(self) -> int:
        """How many messages `UPLINK` still holds, once acknowledgements have arrived."""
        await self.bus.client.flush()
        return int((await self.bus.js.stream_info(UPLINK)).state.messages)

    async def drained(self) -> None:
        """Return when `UPLINK` is empty."""
        async with asyncio.timeout(20):
            while await self.waiting():
                await asyncio.sleep(0.02)

    async def stored(self) -> list[dict[str, Any]]:
        """Everything in history, oldest first."""
        rows: list[dict[str, Any]] = []
        for name in sorted(await self.database.list_collection_names()):
            if name.startswith("history_"):
                rows += await self.database[name].find().sort("_id", 1).to_list(None)
        return rows

    async def totals(self) -> LedgerTotals:
        return await self.first.ledger.totals()

    async def said(self, stream: str = EVENTS) -> list[tuple[str, Any]]:
        """Subject and body of all that a stream holds, in order."""
        info = await self.bus.js.stream_info(stream)
        found = []
        for sequence in range(info.state.first_seq, info.state.last_seq + 1):
            message = await self.bus.js.get_msg(stream, sequence)
            found.append((str(message.subject), msgspec.json.decode(message.data or b"null")))
        return found

    async def reasons(self) -> list[str]:
        """Why messages are in `DEAD`."""
        return [body["reason"] for _, body in await self.said(DEAD)]


@asynccontextmanager
async def running(servers: Servers, mongo: Mongo) -> AsyncIterator[World]:
    """A world with empty streams and an empty database."""
    bus = await Bus.connect(servers.nats_url, name="test", stream_replicas=1)
    try:
        for stream in (UPLINK, EVENTS, DEAD):
            await bus.js.purge_stream(stream)
        with suppress(NotFoundError):
            await bus.js.delete_consumer(UPLINK, DURABLE)
        await bus.js.add_consumer(
            UPLINK,
            ConsumerConfig(
                name=DURABLE,
                durable_name=DURABLE,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=30,
                max_ack_pending=200_000,
            ),
        )
        await migrate(mongo.database, MIGRATIONS)
        await mongo.database["tsls"].insert_one(
            {
                "_id": {"tenant": "default", "model": "m", "version": "v1.0"},
                "hash": "h",
                "document": msgspec.json.encode(parse_document(TSL)),
            }
        )
        outbox, workers = Outbox(mongo.database, bus), CodecWorkers(late_seconds=60.0)
        world = World(
            mongo=mongo,
            bus=bus,
            outbox=outbox,
            latest=LatestValues(mongo.database),
            commands=CommandStore(mongo, outbox, Wakeups(bus, "device")),
            workers=workers,
            first=None,  # type: ignore[arg-type]
        )
        world.first = world.process()
        async with workers:
            yield world
    finally:
        await bus.drain()


async def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    """Return when an asynchronous condition holds."""
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


__all__ = ["DURABLE", "SEEN_COLLECTION", "TSL", "World", "running", "until"]
