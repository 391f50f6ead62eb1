"""Backup of a whole running installation, and its restore into empty stores.

Decision 0026 explains the order of the backup. A restore first marks every database as incomplete,
so that services wait (`libs.common.store.migrations`), and removes the marks after everything was
written and compared.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from deploy.backup import databases, streams
from deploy.backup.archive import Log, VerifiedArchive, WriteRecord, read_records
from deploy.backup.databases import DatabaseRestore
from deploy.backup.records import (
    ArchiveEnd,
    ArchiveHead,
    ArchiveRecord,
    BackupMoment,
    CollectionEnd,
    CollectionHead,
    Documents,
    Secrets,
    SnapshotChunk,
    StreamEnd,
    StreamHead,
    StreamMessages,
    StreamPosition,
)
from deploy.backup.stores import DATABASES, Stores
from deploy.platform.errors import CommandError
from deploy.platform.mongo_server import Client
from deploy.platform.nats_grants import ADMIN_USER, BACKUP_USER
from libs.common.bus import Bus
from libs.common.bus.streams import MQTT, UPLINK
from libs.common.clock import now_ms
from libs.common.version import VERSION

_DEVICE_USER = "device"
"""The NATS user that may delete stored messages to devices."""


async def back_up_installation(stores: Stores, write: WriteRecord, log: Log) -> BackupMoment:
    """Write the records of a backup; return the record with its time.

    Raises `CommandError`, and the drivers' errors if a store is unavailable.
    """
    await write(ArchiveHead(VERSION, now_ms()))
    await write(Secrets(msgspec.json.encode(stores.state)))
    async with (
        stores.connect_mongo_reader() as client,
        stores.connect_bus(BACKUP_USER) as bus,
        databases.extend_snapshot_history(client, log),
    ):
        snapshots, at = await _write_stream_snapshots(
            bus, write, partial(_delete_write_only_messages, stores, client)
        )
        if UPLINK not in snapshots:
            raise CommandError("NATS has no stream UPLINK: the platform was never started")
        async with databases.MongoSnapshot.start(client, DATABASES) as snapshot:
            moment = BackupMoment(at, snapshot.time, await _read_positions(bus, snapshots))
            await write(moment)
            await _write_later_messages(bus, write, snapshots, moment)
            for database, name in sorted(snapshot.collections):
                async for record in snapshot.read_collection(database, name):
                    await write(record)
                    if isinstance(record, CollectionEnd) and record.count:
                        log(f"{database}.{name}: {record.count} documents")
    await write(ArchiveEnd(len(snapshot.collections)))
    return moment


async def _delete_write_only_messages(stores: Stores, client: Client) -> bool:
    """Delete stored MQTT messages with write-only values; return whether any existed.

    `device` sends the commands of these messages again, if they are still open.
    """
    commands = await databases.find_commands_with_write_only(client)
    if not commands:
        return False
    async with stores.connect_bus(_DEVICE_USER) as bus:
        return await streams.delete_command_messages(bus, commands)


async def _write_stream_snapshots(
    bus: Bus, write: WriteRecord, delete_write_only: Callable[[], Awaitable[bool]]
) -> tuple[dict[str, StreamHead], int]:
    """Write snapshots of all streams; return their heads by name and the time.

    The time is when the snapshot of `UPLINK` starts, in epoch ms. Only the snapshots of the
    partitions of `UPLINK` are written later.
    """
    heads, at = {}, 0
    for name in streams.BACKED_UP_STREAMS:
        if name == UPLINK:
            at = now_ms()
        pieces = streams.snapshot_stream(bus.client, name)
        if name == MQTT:
            pieces = streams.snapshot_without_write_only(bus.client, delete_write_only)
        async for piece in pieces:
            if isinstance(piece, StreamHead):
                heads[name] = piece
                await write(piece)
            else:
                await write(SnapshotChunk(piece))
        if name in heads:
            await write(StreamEnd())
    return heads, at


async def _read_positions(bus: Bus, snapshots: dict[str, StreamHead]) -> dict[str, StreamPosition]:
    """Return the streams' positions by name, read after MongoDB's snapshot.

    Omits `EVENTS` if it only has copies of events in partitions. Raises `CommandError` if a stream
    has no snapshot, because it was created during the backup.
    """
    positions = {}
    for name in streams.BACKED_UP_STREAMS:
        if (at := await streams.read_position(bus, name)) is None:
            continue
        if name not in snapshots:
            raise CommandError(f"{name} was created during the backup: start the backup again")
        if not streams.is_partition_copy(snapshots[name]):
            positions[name] = at
    return positions


async def _write_later_messages(
    bus: Bus, write: WriteRecord, snapshots: dict[str, StreamHead], moment: BackupMoment
) -> None:
    """Write the messages that streams stored between their snapshots and `moment`."""
    for name in streams.STREAMS_WITH_LATER_MESSAGES:
        if name in snapshots and name in moment.streams:
            last = moment.streams[name].last
            async for messages in streams.read_messages(
                bus, name, snapshots[name].state["last_seq"], last
            ):
                await write(StreamMessages(name, messages))


async def check_restore_logins(stores: Stores) -> None:
    """Log in to all stores as a restore does; raise the error of a rejection."""
    async with stores.connect_mongo_writers() as clients, stores.connect_bus(ADMIN_USER) as bus:
        for name, client in clients.items():
            await client[name].list_collection_names()
        await streams.read_position(bus, UPLINK)
    await stores.count_redis_keys()


async def require_empty_stores(stores: Stores) -> None:
    """Raise `CommandError` unless MongoDB, NATS and Redis are empty."""
    async with stores.connect_mongo_writers() as clients, stores.connect_bus(ADMIN_USER) as bus:
        for name, client in clients.items():
            await DatabaseRestore(client, name).require_empty()
        for name in streams.ALL_STREAMS:
            if await streams.read_position(bus, name) is not None:
                raise CommandError(
                    f"NATS has a stream {name}: restore a backup into empty stores only"
                )
        if await stores.count_redis_keys():
            raise CommandError("Redis is not empty: restore a backup into empty stores only")


async def restore_installation(
    stores: Stores, archive: VerifiedArchive, log: Log, replicas: int | None, *, compare: bool
) -> None:
    """Write an archive, whose secrets have been read already, into empty stores.

    `replicas` sets the replicas of each stream; None keeps the number in the archive. With
    `compare`, the restored data are read and compared with the archive. After a failure, the
    databases that have been marked stay marked, and their content is unusable.
    """
    await require_empty_stores(stores)
    async with stores.connect_mongo_writers() as clients, stores.connect_bus(ADMIN_USER) as bus:
        restores = {name: DatabaseRestore(client, name) for name, client in clients.items()}
        target = _RestoreTarget(bus, restores, replicas)
        await target.mark_databases()
        async for record in read_records(archive):
            await target.write(record)
        await target.advance_streams(archive)
        if compare:
            await target.compare(archive, log)
        await target.finish()


class _RestoreTarget:
    """Writes the records of an archive into MongoDB and NATS, and compares them."""

    def __init__(
        self, bus: Bus, databases: dict[str, DatabaseRestore], replicas: int | None
    ) -> None:
        self._bus = bus
        self._databases = databases
        self._replicas = replicas
        self._stream: streams.StreamRestore | None = None
        self._collection: tuple[DatabaseRestore, str] | None = None

    async def mark_databases(self) -> None:
        for database in self._databases.values():
            await database.mark_incomplete()

    async def write(self, record: ArchiveRecord) -> None:
        """Write the content of an archive record to its store."""
        match record:
            case StreamHead():
                self._stream = streams.StreamRestore(self._bus.client, record, self._replicas)
                await self._stream.start()
            case SnapshotChunk() if self._stream is not None:
                await self._stream.send_chunk(record.data)
            case StreamEnd() if self._stream is not None:
                await self._stream.finish()
            case StreamMessages():
                await streams.publish_missing_messages(self._bus, record.stream, record.messages)
            case CollectionHead():
                database = self._databases.get(record.database)
                if database is None:
                    raise CommandError(
                        f"the archive contains the unknown database {record.database}"
                    )
                self._collection = database, record.name
                await database.create_collection(record)
            case Documents() if self._collection is not None:
                database, name = self._collection
                await database.insert_documents(name, list(databases.split_documents(record.data)))
            case _:
                pass

    async def advance_streams(self, archive: VerifiedArchive) -> None:
        """Make streams continue after the sequences that MongoDB may have stored."""
        for name, at in archive.moment.streams.items():
            if name in streams.FILLER_SUBJECT_BY_STREAM:
                await streams.advance_sequence(self._bus, name, at.last)

    async def compare(self, archive: VerifiedArchive, log: Log) -> None:
        """Read the restored data; raise `CommandError` for a difference from the archive."""
        for (database, name), archived in archive.collections.items():
            restored = (await self._databases[database].tally_collection(name)).end_record
            if restored != archived:
                raise CommandError(
                    f"{database}.{name} with {restored.count} documents differs from the archive "
                    f"with {archived.count}"
                )
            log(f"{database}.{name}: {restored.count} documents equal the archive")
        for name, at in archive.moment.streams.items():
            if name in streams.FILLER_SUBJECT_BY_STREAM:
                await streams.compare_stream(self._bus, name, at)

    async def finish(self) -> None:
        """Create indexes, then remove the marks so that services start."""
        for database in self._databases.values():
            await database.create_indexes()
        for database in self._databases.values():
            await database.remove_mark()
