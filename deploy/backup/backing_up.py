"""A backup of a whole installation, while it runs (decision 0026 says why in this order)."""

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from deploy.backup import databases, streams
from deploy.backup.records import (
    Chunk,
    CollectionEnd,
    End,
    Head,
    Messages,
    Moment,
    Record,
    Secrets,
    StreamAt,
    StreamEnd,
    StreamHead,
)
from deploy.backup.stores import DATABASES, Stores
from deploy.platform.errors import CommandError
from deploy.platform.mongo_server import Client
from deploy.platform.nats_grants import BACKUP
from libs.common.bus import Bus
from libs.common.bus.streams import MQTT, UPLINK
from libs.common.clock import now_ms
from libs.common.version import VERSION

Put = Callable[[Record], Awaitable[None]]
Say = Callable[[str], None]
_DEVICE = "device"
"""The user of NATS that may delete what waits for devices."""


async def back_up(stores: Stores, put: Put, say: Say) -> Moment:
    """Write the records of a backup; return its moment.

    Raises `CommandError`, and what the drivers raise when a store is away.
    """
    await put(Head(VERSION, now_ms()))
    await put(Secrets(msgspec.json.encode(stores.state)))
    async with (
        stores.reading() as client,
        stores.bus(BACKUP) as bus,
        databases.long_window(client, say),
    ):
        snapshots, at = await _streams(bus, put, partial(_take_back, stores, client))
        if UPLINK not in snapshots:
            raise CommandError("there is no stream UPLINK: the platform has not been started")
        async with databases.Snapshot.begin(client, DATABASES) as snapshot:
            moment = Moment(at, snapshot.time, await _where(bus, snapshots))
            await put(moment)
            await _completed(bus, put, snapshots, moment)
            for database, name in sorted(snapshot.collections):
                async for record in snapshot.read(database, name):
                    await put(record)
                    if isinstance(record, CollectionEnd) and record.count:
                        say(f"{database}.{name}: {record.count} documents")
    await put(End(len(snapshot.collections)))
    return moment


async def _take_back(stores: Stores, client: Client) -> bool:
    """Delete stored MQTT messages with write-only values; return whether there were any.

    The delivery of `device` sends commands that are still open to their devices again.
    """
    commands = await databases.commands_with_secrets(client)
    if not commands:
        return False
    async with stores.bus(_DEVICE) as bus:
        return await streams.take_back(bus, commands)


async def _streams(
    bus: Bus, put: Put, take_back: Callable[[], Awaitable[bool]]
) -> tuple[dict[str, StreamHead], int]:
    """Snapshots of all streams, and when that of `UPLINK` was begun, in ms."""
    heads = {}
    for name in streams.COPIED:
        at = now_ms()
        pieces = streams.snapshot(bus.client, name)
        if name == MQTT:
            pieces = streams.without_secrets(bus.client, take_back)
        async for piece in pieces:
            if isinstance(piece, StreamHead):
                heads[name] = piece
                await put(piece)
            else:
                await put(Chunk(piece))
        if name in heads:
            await put(StreamEnd())
    return heads, at


async def _where(bus: Bus, snapshots: dict[str, StreamHead]) -> dict[str, StreamAt]:
    """Where the streams are, after MongoDB's time was chosen."""
    found = {name: await streams.state_of(bus, name) for name in snapshots}
    return {name: at for name, at in found.items() if at is not None}


async def _completed(bus: Bus, put: Put, snapshots: dict[str, StreamHead], moment: Moment) -> None:
    """What came behind the snapshots of streams that are kept."""
    for name in streams.COMPLETED:
        if name in snapshots and name in moment.streams:
            last = moment.streams[name].last
            async for messages in streams.between(
                bus, name, snapshots[name].state["last_seq"], last
            ):
                await put(Messages(name, messages))
