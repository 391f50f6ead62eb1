"""A whole backup into empty stores: all of them, or nothing that a service would use.

Every database is marked before anything is written, and services wait for the end of that
(`libs.common.store.migrations`). The marks go when all is there and was compared.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from typing import Self

from deploy.backup import databases, streams
from deploy.backup.archive import ArchiveBroken
from deploy.backup.databases import Restored, Tally, split
from deploy.backup.records import (
    FORMAT,
    Chunk,
    CollectionEnd,
    CollectionHead,
    Documents,
    End,
    Head,
    Messages,
    Moment,
    Record,
    StreamEnd,
    StreamHead,
)
from deploy.backup.stores import Stores
from deploy.platform.errors import CommandError
from deploy.platform.nats_grants import ADMIN
from libs.common.bus import Bus


class Checked:
    """Iterates over the records of an archive, and holds its head and moment after the last one."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = self._checked(records)
        self._head: Head | None = None
        self._moment: Moment | None = None
        self.collections: dict[tuple[str, str], CollectionEnd] = {}

    @property
    def head(self) -> Head:
        """Return the head of the archive; raise `ArchiveBroken` when it lacks one."""
        if self._head is None:
            raise ArchiveBroken("the archive does not say what it is")
        return self._head

    @property
    def moment(self) -> Moment:
        """Return the moment of the backup; raise `ArchiveBroken` when the archive lacks it."""
        if self._moment is None:
            raise ArchiveBroken("the archive does not say of which moment it is")
        return self._moment

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        """Return the next record; raise `ArchiveBroken` for one that was changed or lost."""
        return next(self._records)

    def _checked(self, records: Iterable[Record]) -> Iterator[Record]:
        collection, tally, ended = ("", ""), Tally(), False
        for record in records:
            match record:
                case Head():
                    self._head = record
                    if record.format != FORMAT:
                        raise ArchiveBroken(f"the archive was made by version {record.version}")
                case CollectionHead():
                    collection, tally = (record.database, record.name), Tally()
                case Documents():
                    for document in split(record.data):
                        tally.add(document)
                case CollectionEnd():
                    if record != tally.end:
                        raise ArchiveBroken(f"{'.'.join(collection)} is not as it was written")
                    self.collections[collection] = record
                case Moment():
                    self._moment = record
                case End():
                    ended = record.collections == len(self.collections)
                case _:
                    pass
            yield record
        if not ended or self._head is None:
            raise ArchiveBroken("the archive lacks collections")


Say = Callable[[str], None]


async def records_of(checked: Checked) -> AsyncIterator[Record]:
    """The records that are left of an archive, read in a thread."""
    while (record := await asyncio.to_thread(next, checked, None)) is not None:
        yield record


async def require_empty(stores: Stores) -> None:
    """Raise `CommandError` unless MongoDB, NATS and Redis hold nothing of a platform."""
    async with stores.writing() as clients, stores.bus(ADMIN) as bus, stores.redis() as redis:
        for name, client in clients.items():
            await Restored(client, name).require_empty()
        for name in streams.SNAPSHOTS:
            if await streams.state_of(bus, name) is not None:
                raise CommandError(f"NATS has a stream {name}: restore into empty stores only")
        if await redis.dbsize():
            raise CommandError("Redis is not empty: restore into empty stores only")


async def restore(
    stores: Stores, checked: Checked, say: Say, replicas: int | None, *, compare: bool
) -> None:
    """Fill the stores with what follows the secrets in an archive.

    `replicas` of each stream, None: as it was. With `compare`, what is there is read again and
    compared with the archive. Raises `CommandError`; the databases are marked then, and nothing
    that was written is of use.
    """
    await require_empty(stores)
    async with AsyncExitStack() as stack:
        clients = await stack.enter_async_context(stores.writing())
        bus = await stack.enter_async_context(stores.bus(ADMIN))
        target = _Target(
            bus, {name: Restored(one, name) for name, one in clients.items()}, replicas
        )
        await target.mark()
        async for record in records_of(checked):
            await target.take(record)
        await target.go_on(checked)
        if compare:
            await target.compare(checked, say)
        await target.finish()


class _Target:
    """Stores that are being filled."""

    def __init__(self, bus: Bus, databases: dict[str, Restored], replicas: int | None) -> None:
        self._bus = bus
        self._databases = databases
        self._replicas = replicas
        self._stream: streams.Restoring | None = None
        self._collection: tuple[Restored, str] | None = None

    async def mark(self) -> None:
        for database in self._databases.values():
            await database.mark()

    async def take(self, record: Record) -> None:
        """Write what a record holds."""
        match record:
            case StreamHead():
                self._stream = streams.Restoring(self._bus.client, record, self._replicas)
                await self._stream.begin()
            case Chunk() if self._stream is not None:
                await self._stream.chunk(record.data)
            case StreamEnd() if self._stream is not None:
                await self._stream.end()
            case Messages():
                await streams.replay(self._bus, record.stream, record.messages)
            case CollectionHead():
                database = self._databases.get(record.database)
                if database is None:
                    raise CommandError(f"the archive has a database {record.database}")
                self._collection = database, record.name
                await database.create(record)
            case Documents() if self._collection is not None:
                database, name = self._collection
                await database.insert(name, list(databases.split(record.data)))
            case _:
                pass

    async def go_on(self, checked: Checked) -> None:
        """Let streams go on behind what MongoDB may know of them."""
        for name, at in checked.moment.streams.items():
            if name in streams.FILLERS:
                await streams.advance(self._bus, name, at.last)

    async def compare(self, checked: Checked, say: Say) -> None:
        """Read everything again; raise `CommandError` for what differs from the archive."""
        for (database, name), wanted in checked.collections.items():
            found = (await self._databases[database].tally(name)).end
            if found != wanted:
                raise CommandError(
                    f"{database}.{name} has {found.count} documents that are not the "
                    f"{wanted.count} of the archive"
                )
            say(f"{database}.{name}: {found.count} documents as in the archive")
        for name in streams.COMPLETED:
            if name in checked.moment.streams:
                await streams.compare(self._bus, name, checked.moment.streams[name])

    async def finish(self) -> None:
        """Make indexes, then let services in."""
        for database in self._databases.values():
            await database.make_indexes()
        for database in self._databases.values():
            await database.unmark()
