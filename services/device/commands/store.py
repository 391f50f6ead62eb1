"""Commands in MongoDB: `commands`, `profiles` and `command_turns`.

What a command says is written in the transaction that makes it true, and said after it.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from pymongo import UpdateOne

from libs.common.bus import Outbox, OutboxEntry
from libs.common.contracts.events import TaskStatus
from libs.common.contracts.frames import DownlinkState
from libs.common.store.mongo import (
    Document,
    Mongo,
    Session,
    distinct_values,
    page_stages,
    read_rows,
)
from services.device.commands.coded_commands import OLDEST_FIRST, CodedCommands
from services.device.commands.events import finished, outbox_key
from services.device.commands.model import (
    DELETED,
    OPEN,
    Command,
    Kind,
    Reason,
    now,
    settings_of,
)
from services.device.commands.write_only import WriteOnlyCommands
from services.device.telemetry.ports import ReconnectListener
from services.device.things.deleted_things import ThingDataStore
from services.device.things.model import Device

RESEND = (1, 2, 5, 10, 20, 40, 60)
"""Seconds until an unanswered command is sent again to a connected device."""
CODED_RESEND = (5, 10, 30, 120, 600)
"""The same of one that a network server queues until something is told of it."""
POLL_AGAIN = timedelta(seconds=30)
"""An unanswered command is given to a polling device again after this."""
FIRST_ATTEMPT = 2
"""A command that was just sent begins here in `RESEND`."""
ENDED_AT_ONCE = 100
"""Commands that are read at a time where all of a thing end."""
NEWEST_FIRST = [("createdAt", -1), ("_id", -1)]
DUE_INDEX = "due"
"""Name of an index that begins with the tenant."""

Made = tuple[Sequence[Command], Sequence[OutboxEntry]]
"""New commands, and what they say."""


def to_document(command: Command) -> Document:
    """A new command as it is stored; it has no field yet for what became of it."""
    fields: Document = msgspec.to_builtins(command, builtin_types=(datetime,))
    for later in ("finishedAt", "outputs", "error", "errorCode", "closedBy", "downlinks", "shown"):
        del fields[later]
    for seldom in ("sealed", "writeOnly"):
        if not fields[seldom]:
            del fields[seldom]
    if command.coded:
        fields["awaited"] = command.thing_id
    again = command.created_at + timedelta(seconds=RESEND[FIRST_ATTEMPT])
    return fields | {"attempts": FIRST_ATTEMPT, "nextSendAt": min(again, command.expires_at)}


def from_document(document: Document | None) -> Command | None:
    """The command that was stored, if one was found."""
    return msgspec.convert(document, Command | None)


class CommandStore(ReconnectListener, ThingDataStore):
    """Reads and writes commands."""

    def __init__(self, mongo: Mongo, outbox: Outbox) -> None:
        self._mongo = mongo
        self._outbox = outbox
        self._commands = mongo.database["commands"]
        self._profiles = mongo.database["profiles"]
        self.coded = CodedCommands(self._commands)
        self.write_only = WriteOnlyCommands(self._commands, self._profiles)
        self._turns = mongo.database["command_turns"]
        self._in_turn: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def write(self, made: Made) -> Sequence[Command]:
        """Write new commands and relay what they say; return them."""
        written = await self._mongo.transaction(partial(self._insert, made))
        await self._outbox.relay(written)
        return made[0]

    async def write_in_turn(
        self, thing_ids: Sequence[int], make: Callable[[Session], Awaitable[Made]]
    ) -> Sequence[Command]:
        """Write the commands that `make` gives and relay what they say; return them.

        `make` may run again after a conflict. Nobody else makes commands for these things
        in turn meanwhile, so what it reads of them in its session still holds.
        """
        things = sorted(set(thing_ids))  # whoever takes several takes them in the same order

        async def insert_in_turn(session: Session) -> tuple[Sequence[Command], list[Document]]:
            await self._take_turns(things, session)
            made = await make(session)
            return made[0], await self._insert(made, session)

        async with AsyncExitStack() as turns:  # conflicts are for those of other processes
            for thing in things:
                lock = self._in_turn.setdefault(thing, asyncio.Lock())
                await turns.enter_async_context(lock)
            commands, written = await self._mongo.transaction(insert_in_turn)
        await self._outbox.relay(written)
        return commands

    async def _insert(self, made: Made, session: Session) -> list[Document]:
        commands, entries = made
        await self._commands.insert_many([to_document(one) for one in commands], session=session)
        return await self._outbox.add(entries, session)

    async def _take_turns(self, thing_ids: Sequence[int], session: Session) -> None:
        """Let the caller's transaction conflict with every other that takes a turn of these."""
        change = {"$set": {"at": datetime.now(UTC)}, "$inc": {"taken": 1}}
        turns = [UpdateOne({"_id": thing}, change, upsert=True) for thing in thing_ids]
        await self._turns.bulk_write(turns, session=session)

    async def end(
        self,
        command: Command,
        status: TaskStatus,
        error: str | None,
        code: str | None = None,
        also: Callable[[Session], Awaitable[None]] | None = None,
    ) -> None:
        """End a command that its device does not, unless somebody else was faster.

        `also` is done in the same transaction.
        """
        command.status, command.error, command.finished_at = status, error, now()
        command.error_code = code

        async def close_command(session: Session) -> list[dict[str, Any]]:
            if not await self.close(command, session):
                return []
            if also is not None:
                await also(session)
            return await self._outbox.add([finished(command)], session)

        await self._outbox.relay(await self._mongo.transaction(close_command))

    async def fail_all(self, thing_id: int, reason: Reason) -> None:
        """End the open commands of a thing that will not answer them."""
        last = -1
        while True:
            query = {"thingId": thing_id, "status": {"$in": OPEN}, "_id": {"$gt": last}}
            found = self._commands.find(query, sort=[("_id", 1)], limit=ENDED_AT_ONCE)
            commands = msgspec.convert(await found.to_list(None), list[Command])
            for command in commands:
                await self.end(command, "FAILED", reason.text, reason.code)
            if len(commands) < ENDED_AT_ONCE:
                return
            last = commands[-1].id

    async def find_command(self, command_id: int) -> Command | None:
        """A command, whoever asked for it."""
        return from_document(await self._commands.find_one({"_id": command_id}))

    async def find_task(self, command_id: int, tenant: str, application_id: int) -> Command | None:
        """A command that an application has asked for."""
        query = {"_id": command_id, "tenant": tenant, "applicationId": application_id}
        return from_document(await self._commands.find_one(query))

    async def find_for_thing(
        self, command_id: int, thing_id: int, session: Session | None = None
    ) -> Command | None:
        """A command of one thing."""
        query = {"_id": command_id, "thingId": thing_id}
        return from_document(await self._commands.find_one(query, session=session))

    async def page(
        self, device: Device, statuses: Sequence[TaskStatus], skip: int, limit: int
    ) -> tuple[AsyncGenerator[Command, None], int]:
        """Return commands of a device since its owner has it, the newest first, and how many."""
        since = datetime.fromtimestamp(device.owned_since / 1000, UTC)
        query: Document = {
            "thingId": device.id,
            "tenant": device.tenant,
            "createdAt": {"$gte": since},
        }
        if statuses:
            query["status"] = {"$in": list(statuses)}
        rows = read_rows(
            self._mongo.direct["commands"], page_stages(query, NEWEST_FIRST, skip, limit)
        )
        commands = (msgspec.convert(row, Command) async for row in rows)
        return commands, await self._commands.count_documents(query)

    async def pending(
        self, thing_ids: Sequence[int], kind: Kind, session: Session | None = None
    ) -> dict[int, dict[str, Any]]:
        """What things are still to take on, by thing and setting: the newest command wins."""
        query = {"thingId": {"$in": list(thing_ids)}, "status": {"$in": OPEN}, "kind": kind}
        fields = {"thingId": 1, "payload": 1, "createdAt": 1}
        cursor = self._commands.find(query, fields, session=session)
        found: dict[int, dict[str, Any]] = {}
        async for document in cursor.sort(OLDEST_FIRST):
            settings = settings_of(kind, document["payload"])
            found.setdefault(document["thingId"], {}).update(settings)
        return found

    async def take_for_poll(self, thing_id: int, now: datetime) -> list[Command]:
        """Open commands for a device that fetches them; hidden for a while once taken."""
        ready = {"$not": {"$gt": now - POLL_AGAIN}}
        query = {"thingId": thing_id, "status": {"$in": OPEN}, "expiresAt": {"$gt": now}}
        cursor = self._commands.find({**query, "polledAt": ready}).sort(OLDEST_FIRST).limit(100)
        taken = msgspec.convert(await cursor.to_list(), list[Command])
        if taken:
            await self._commands.update_many(
                {"_id": {"$in": [command.id for command in taken]}, "status": {"$in": OPEN}},
                {"$set": {"polledAt": now, "status": "SENT"}},
            )
        return taken

    async def close(
        self, command: Command, session: Session, *, closed_by: str | None = None
    ) -> bool:
        """Write the end of a command; False when somebody else has closed it.

        Its write-only values go with it: nobody reads them after that.
        """
        command.error = command.error and command.masked(command.error)
        changes = {
            "status": command.status,
            "finishedAt": command.finished_at,
            "outputs": command.outputs,
            "error": command.error,
            "errorCode": command.error_code,
            "closedBy": closed_by,
        }
        if command.write_only:
            changes["wipeAt"] = now()
        result = await self._commands.update_one(
            {"_id": command.id, "status": {"$in": OPEN}},
            {"$set": changes, "$unset": {"nextSendAt": "", "awaited": "", "sealed": ""}},
            session=session,
        )
        if command.write_only and result.modified_count:
            await self._commands.update_one(
                {"_id": command.id, "downlinks": {"$exists": True}},
                {"$set": {"downlinks.$[].data": b""}},
                session=session,
            )
            await self._outbox.withdraw(outbox_key(command), session)
        return bool(result.modified_count)

    async def tenants_due(self) -> list[str]:
        """Return the tenants of commands that `due` returns now."""
        return await distinct_values(self._commands, "tenant", _due(now()), DUE_INDEX)

    async def due(self, tenant: str, moment: datetime, limit: int) -> list[Command]:
        """Return open commands of a tenant that are to be sent again or have expired."""
        query = {"tenant": tenant, **_due(moment)}
        cursor = self._commands.find(query, sort=[("nextSendAt", 1)], limit=limit, hint=DUE_INDEX)
        return msgspec.convert(await cursor.to_list(), list[Command])

    async def sent(self, commands: Sequence[Command], now: datetime) -> None:
        """Note that commands were sent, and when they are to be sent again.

        One that a network server queues is sent when that says so.
        """

        def again(command: Command) -> datetime:
            return now + timedelta(seconds=_pause(command))

        plain = [command for command in commands if not command.coded]
        await self._reschedule(plain, again, {"status": "SENT"})
        await self._reschedule([command for command in commands if command.coded], again, {})

    async def downlink_told(
        self, command_id: int, thing_id: int, number: int, state: DownlinkState
    ) -> Command | None:
        """Note what was told of the `number`th downlink of a command; the command then.

        It rests once something was told of each.
        """
        command = await self.coded.note_state(command_id, thing_id, number, state)
        if command and command.downlinks and all(one.state for one in command.downlinks):
            await self.rest([command])
        return command

    async def rest(self, commands: Sequence[Command]) -> None:
        """Let commands lie until their device connects or they expire.

        Nothing that is write-only lies in nats-server meanwhile.
        """
        plain = [one for one in commands if not one.write_only]
        secret = [one for one in commands if one.write_only]
        await self._reschedule(plain, lambda one: one.expires_at, {})
        await self._reschedule(secret, lambda one: one.expires_at, {"wipeAt": now()})

    async def _reschedule(
        self, commands: Sequence[Command], when: Any, changes: Mapping[str, Any]
    ) -> None:
        if commands:
            await self._commands.bulk_write(
                [
                    UpdateOne(
                        {"_id": one.id, "status": {"$in": OPEN}},
                        {
                            "$set": {**changes, "nextSendAt": min(when(one), one.expires_at)},
                            "$inc": {"attempts": 1},
                        },
                    )
                    for one in commands
                ],
                ordered=False,
            )

    async def wake(self, thing_ids: Sequence[int], at: datetime) -> None:
        """Send the open commands of things again from `at` on: they have connected."""
        await self._commands.update_many(
            {"thingId": {"$in": list(thing_ids)}, "status": {"$in": OPEN}},
            [{"$set": {"nextSendAt": {"$min": [at, "$expiresAt"]}, "attempts": 0}}],
        )

    async def profile(self, thing_id: int, session: Session | None = None) -> dict[str, Any]:
        """The profile values that a thing has confirmed."""
        document = await self._profiles.find_one({"_id": thing_id}, session=session)
        return {entry["key"]: entry["value"] for entry in document["values"]} if document else {}

    async def confirm_profile(
        self, thing_id: int, settings: Sequence[tuple[str, Any]], session: Session
    ) -> None:
        """Add to the profile values that a thing has confirmed."""
        values = await self.profile(thing_id, session) | dict(settings)
        listed = [{"key": key, "value": value} for key, value in values.items()]
        await self._profiles.replace_one(
            {"_id": thing_id}, {"values": listed}, upsert=True, session=session
        )

    async def forget(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the profile and the turn of a thing; its commands remain."""
        for collection in (self._profiles, self._turns):
            await collection.delete_one({"_id": thing_id}, session=session)

    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the profile of a thing, and end its open commands in transactions of their own."""
        await self.forget(thing_id, session)
        await self.fail_all(thing_id, DELETED)


def _due(moment: datetime) -> Document:
    return {"status": {"$in": OPEN}, "nextSendAt": {"$lte": moment}}


def _pause(command: Command) -> int:
    pauses = CODED_RESEND if command.coded else RESEND
    return pauses[min(command.attempts, len(pauses) - 1)]
