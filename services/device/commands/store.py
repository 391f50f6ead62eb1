"""Commands in MongoDB: collections `commands`, `profiles` and `command_turns`.

The event of a new command and its messages are published after it is stored. If the process ends
in between, delivery publishes them when it sends the command again. If a command ends without a
reply, the transaction that ends it stores its events in the outbox.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from pymongo import UpdateOne

from libs.common.bus import Outbox, OutboxEntry, Wakeups
from libs.common.contracts.events import TaskStatus
from libs.common.contracts.frames import DownlinkState
from libs.common.jobs import NamedTasks
from libs.common.store.mongo import (
    Document,
    Mongo,
    Session,
    build_page_stages,
    read_rows,
)
from services.device.commands.coded_commands import OLDEST_FIRST, CodedCommands
from services.device.commands.events import created_event, finished_event
from services.device.commands.model import (
    DEVICE_DELETED,
    OPEN_STATES,
    Command,
    CommandKind,
    FailureReason,
    settings_in,
    utc_now,
)
from services.device.commands.schedule import (
    DELIVERY_TOPIC,
    FIRST_RESEND_INDEX,
    RESEND_SECONDS,
    CommandSchedule,
)
from services.device.commands.write_only import WIPING_TOPIC, WriteOnlyCommands
from services.device.things.deleted_things import ThingDataStore
from services.device.things.model import Device

COMMANDS_PER_READ = 100
"""Commands that are read together when all commands of a thing end."""
MARK_PUBLISHED_DELAY_SECONDS = 0.5
"""Seconds after which published commands are marked, all together."""
NEWEST_FIRST = [("createdAt", -1), ("_id", -1)]
CommandsWithEvents = tuple[Sequence[Command], Sequence[OutboxEntry]]
"""New commands and their outbox entries."""


_RESULT_FIELDS = ("finishedAt", "outputs", "error", "errorCode", "closedBy", "downlinks", "shown")
_OPEN_FIELDS = {"nextSendAt": "", "awaited": "", "sealed": "", "unpublished": ""}
"""Fields that only open commands have."""


def new_command_document(command: Command) -> Document:
    """Return the document of a new command, without the fields of its result."""
    fields: Document = msgspec.to_builtins(command, builtin_types=(datetime,))
    for later in _RESULT_FIELDS:
        del fields[later]
    for seldom in ("sealed", "writeOnly"):
        if not fields[seldom]:
            del fields[seldom]
    if command.coded:
        fields["awaited"] = command.thing_id
    again = command.created_at + timedelta(seconds=RESEND_SECONDS[FIRST_RESEND_INDEX])
    due = min(again, command.expires_at)
    return fields | {"attempts": FIRST_RESEND_INDEX, "nextSendAt": due, "unpublished": True}


def command_from_document(document: Document | None) -> Command | None:
    """Return the command of a document, or None."""
    return msgspec.convert(document, Command | None)


class CommandStore(ThingDataStore):
    """Reads and writes commands."""

    def __init__(self, mongo: Mongo, outbox: Outbox, wakeups: Wakeups) -> None:
        self._mongo = mongo
        self._outbox = outbox
        self.wakeups = wakeups
        self._commands = mongo.database["commands"]
        self._profiles = mongo.database["profiles"]
        self.schedule = CommandSchedule(self._commands, wakeups)
        self.coded = CodedCommands(self._commands)
        self.write_only = WriteOnlyCommands(self._commands, self._profiles, wakeups)
        self._lock_documents = mongo.database["command_turns"]
        self._thing_locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._published: list[int] = []
        """Commands that are published but not marked yet."""
        self._marking = NamedTasks()

    async def insert_and_publish(self, new: CommandsWithEvents) -> Sequence[Command]:
        """Insert new commands, all or none; publish their events and messages."""
        commands, entries = new
        self.wakeups.notify(DELIVERY_TOPIC)
        documents, outgoing = (
            [new_command_document(command) for command in commands],
            self._outbox.build_documents(entries),
        )
        if len(documents) == 1:
            await self._commands.insert_one(documents[0])
        else:
            await self._mongo.transaction(partial(self._insert, documents))
        await self._publish(commands, outgoing)
        return commands

    async def insert_with_locked_things(
        self, thing_ids: Sequence[int], make: Callable[[Session], Awaitable[CommandsWithEvents]]
    ) -> Sequence[Command]:
        """Insert the commands that `make` returns and publish their events and messages.

        Calls for the same thing run one after the other, so that values which `make` reads in its
        session are current. `make` runs again after a write conflict.
        """
        things = sorted(set(thing_ids))  # one order of locks prevents deadlocks

        async def insert_with_locks(session: Session) -> tuple[Sequence[Command], list[Document]]:
            await self._lock_things(things, session)
            self.wakeups.notify(DELIVERY_TOPIC)
            commands, entries = await make(session)
            outgoing = self._outbox.build_documents(entries)
            await self._insert([new_command_document(command) for command in commands], session)
            return commands, outgoing

        async with AsyncExitStack() as locks:  # only other processes cause write conflicts
            for thing in things:
                lock = self._thing_locks.setdefault(thing, asyncio.Lock())
                await locks.enter_async_context(lock)
            commands, outgoing = await self._mongo.transaction(insert_with_locks)
        await self._publish(commands, outgoing)
        return commands

    async def _publish(self, commands: Sequence[Command], outgoing: Sequence[Document]) -> None:
        """Publish events and messages of new commands; mark published commands soon afterwards."""
        if await self._outbox.publish_or_store(outgoing):
            self._published += [command.id for command in commands]
            self._marking.start("marking of published commands", self._mark_published)

    async def _mark_published(self) -> None:
        while self._published:
            await asyncio.sleep(MARK_PUBLISHED_DELAY_SECONDS)
            ids, self._published = self._published, []
            await self._commands.update_many(
                {"_id": {"$in": ids}, "unpublished": True}, {"$unset": {"unpublished": ""}}
            )

    async def publish_created(self, commands: Iterable[Command]) -> None:
        """Publish the first events of those commands that are `unpublished`.

        The process that stored a command may have ended before it published the event.
        """
        entries = [created_event(command) for command in commands if command.unpublished]
        await self._outbox.publish_or_store(self._outbox.build_documents(entries))

    async def _insert(self, documents: Sequence[Document], session: Session) -> None:
        await self._commands.insert_many(documents, session=session)

    async def _lock_things(self, thing_ids: Sequence[int], session: Session) -> None:
        """Write the lock document of each thing, so that concurrent writers conflict."""
        change = {"$set": {"at": datetime.now(UTC)}, "$inc": {"taken": 1}}
        writes = [UpdateOne({"_id": thing}, change, upsert=True) for thing in thing_ids]
        await self._lock_documents.bulk_write(writes, session=session)

    async def end(
        self,
        command: Command,
        status: TaskStatus,
        error: str | None,
        code: str | None = None,
        extra_step: Callable[[Session], Awaitable[None]] | None = None,
    ) -> None:
        """End an open command without an answer of its device.

        `extra_step` runs in the same transaction. A closed command does not change.
        """
        command.status, command.error, command.finished_at = status, error, utc_now()
        command.error_code = code

        async def close_command(session: Session) -> list[dict[str, Any]]:
            if not await self._store_end(command, session):
                return []
            if extra_step is not None:
                await extra_step(session)
            entries = [created_event(command)] if command.unpublished else []
            return await self._outbox.store_entries([*entries, finished_event(command)], session)

        await self._outbox.publish_stored(await self._mongo.transaction(close_command))

    async def fail_open_commands(self, thing_id: int, reason: FailureReason) -> None:
        """End the open commands of a thing as FAILED."""
        last = -1
        while True:
            query = {"thingId": thing_id, "status": {"$in": OPEN_STATES}, "_id": {"$gt": last}}
            cursor = self._commands.find(query, sort=[("_id", 1)], limit=COMMANDS_PER_READ)
            commands = msgspec.convert(await cursor.to_list(None), list[Command])
            for command in commands:
                await self.end(command, "FAILED", reason.text, reason.code)
            if len(commands) < COMMANDS_PER_READ:
                return
            last = commands[-1].id

    async def find_command(self, command_id: int) -> Command | None:
        """Return a command, or None."""
        return command_from_document(await self._commands.find_one({"_id": command_id}))

    async def find_task(self, command_id: int, tenant: str, application_id: int) -> Command | None:
        """Return a command that this application requested, or None."""
        query = {"_id": command_id, "tenant": tenant, "applicationId": application_id}
        return command_from_document(await self._commands.find_one(query))

    async def find_for_thing(
        self, command_id: int, thing_id: int, session: Session
    ) -> Command | None:
        """Return a command of this thing, or None."""
        commands = self._mongo.get_session_database(session)["commands"]
        query = {"_id": command_id, "thingId": thing_id}
        return command_from_document(await commands.find_one(query, session=session))

    async def page(
        self, device: Device, statuses: Sequence[TaskStatus], skip: int, limit: int
    ) -> tuple[AsyncGenerator[Command, None], int]:
        """Return a page of commands since the device got its owner, newest first, and the total."""
        since = datetime.fromtimestamp(device.owned_since / 1000, UTC)
        query: Document = {
            "thingId": device.id,
            "tenant": device.tenant,
            "createdAt": {"$gte": since},
        }
        if statuses:
            query["status"] = {"$in": list(statuses)}
        rows = read_rows(
            self._mongo.direct["commands"], build_page_stages(query, NEWEST_FIRST, skip, limit)
        )
        commands = (msgspec.convert(row, Command) async for row in rows)
        return commands, await self._commands.count_documents(query)

    async def find_pending_settings(
        self, thing_ids: Sequence[int], kind: CommandKind, session: Session | None = None
    ) -> dict[int, dict[str, Any]]:
        """Return readable settings in open commands, by thing; the newest command wins."""
        query = {"thingId": {"$in": list(thing_ids)}, "status": {"$in": OPEN_STATES}, "kind": kind}
        fields = {"thingId": 1, "payload": 1, "createdAt": 1}
        cursor = self._commands.find(query, fields, session=session)
        settings_by_thing: dict[int, dict[str, Any]] = {}
        async for document in cursor.sort(OLDEST_FIRST):
            settings = settings_in(kind, document["payload"])
            settings_by_thing.setdefault(document["thingId"], {}).update(settings)
        return settings_by_thing

    async def _store_end(self, command: Command, session: Session) -> bool:
        """Store the end of a command; return False when it is closed already."""
        command.error = command.error and command.mask(command.error)
        result = await self._commands.update_one(
            {"_id": command.id, "status": {"$in": OPEN_STATES}},
            {"$set": _result_fields(command), "$unset": _OPEN_FIELDS},
            session=session,
        )
        if result.modified_count:
            await self._delete_secrets(command, session)
        return bool(result.modified_count)

    async def close_answered(
        self,
        command_id: int,
        thing_id: int,
        status: str,
        at: datetime,
        reply_key: str,
        session: Session,
    ) -> Command | None:
        """Close the command that a reply answers; return it as it was before.

        Returns None if the thing has no such open command.
        """
        answered: Document = {"status": status, "finishedAt": at, "closedBy": reply_key}
        answered |= dict.fromkeys(("outputs", "error", "errorCode"))
        before = await self._mongo.get_session_database(session)["commands"].find_one_and_update(
            {"_id": command_id, "thingId": thing_id, "status": {"$in": OPEN_STATES}},
            {"$set": answered, "$unset": _OPEN_FIELDS},
            session=session,
        )
        return command_from_document(before)

    async def add_result(self, command: Command, session: Session) -> None:
        """Store outputs and error of a command that `close_answered` has closed.

        Also erase the write-only values of the command.
        """
        if command.outputs is not None or command.error:
            command.error = command.error and command.mask(command.error)
            ended = {"$set": _result_fields(command)}
            commands = self._mongo.get_session_database(session)["commands"]
            await commands.update_one({"_id": command.id}, ended, session=session)
        await self._delete_secrets(command, session)

    async def _delete_secrets(self, command: Command, session: Session) -> None:
        """Erase the downlinks of a closed command with write-only values.

        Its messages in nats-server become due for deletion.
        """
        if not command.write_only:
            return
        self.wakeups.notify(WIPING_TOPIC)
        commands = self._mongo.get_session_database(session)["commands"]
        identity: Document = {"_id": command.id}
        await commands.update_one(identity, {"$set": {"wipeAt": utc_now()}}, session=session)
        await commands.update_one(
            identity | {"downlinks": {"$exists": True}},
            {"$set": {"downlinks.$[].data": b""}},
            session=session,
        )

    async def update_downlink_state(
        self, command_id: int, thing_id: int, number: int, state: DownlinkState
    ) -> Command | None:
        """Store the state of a downlink; return its command, or None if the command is unknown.

        The delivery of a command is suspended when each of its downlinks has a state.
        """
        command = await self.coded.update_state(command_id, thing_id, number, state)
        if command and command.downlinks and all(downlink.state for downlink in command.downlinks):
            await self.schedule.suspend_deliveries([command])
        return command

    async def find_profile(self, thing_id: int) -> dict[str, Any]:
        """Return the profile values that a thing has confirmed."""
        return _profile_values(await self._profiles.find_one({"_id": thing_id}))

    async def confirm_profile(
        self, thing_id: int, settings: Sequence[tuple[str, Any]], session: Session
    ) -> None:
        """Add confirmed values to the profile of a thing."""
        profiles, identity = (
            self._mongo.get_session_database(session)["profiles"],
            {"_id": thing_id},
        )
        before = _profile_values(await profiles.find_one(identity, session=session))
        values = before | dict(settings)
        listed = [{"key": key, "value": value} for key, value in values.items()]
        await profiles.replace_one(identity, {"values": listed}, upsert=True, session=session)

    async def delete_profile(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the profile and the lock document of a thing, but not its commands."""
        for collection in (self._profiles, self._lock_documents):
            await collection.delete_one({"_id": thing_id}, session=session)

    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the profile of a thing and end its open commands.

        Each command ends in a transaction of its own.
        """
        await self.delete_profile(thing_id, session)
        await self.fail_open_commands(thing_id, DEVICE_DELETED)


def _profile_values(document: Document | None) -> dict[str, Any]:
    return {entry["key"]: entry["value"] for entry in document["values"]} if document else {}


def _result_fields(command: Command) -> Document:
    """Return the stored fields that a command gets when it ends."""
    return {
        "status": command.status,
        "finishedAt": command.finished_at,
        "outputs": command.outputs,
        "error": command.error,
        "errorCode": command.error_code,
        "closedBy": command.closed_by,
    }
