"""Replies: a device answers a command, and the command is closed.

The end of the command, its event, the history record of confirmed properties and the
ledger's count are one transaction, keyed by the uplink, so a repeated reply changes nothing.
"""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from libs.common.bus import Outbox
from libs.common.clock import from_ms
from libs.common.errors import InvalidInput
from libs.common.store.mongo import DuplicateKey, Mongo, Session
from libs.common.tsl import Refusal
from services.device.commands.messages import confirmed, finished
from services.device.commands.model import OPEN, Command, TaskType
from services.device.commands.schemas import Reply, read_reply
from services.device.commands.store import CommandStore
from services.device.history.partitions import Partitions, history_key, partition_of
from services.device.reports.ledger import Ledger
from services.device.reports.store import SEEN, seen_key
from services.device.reports.uplink import Uplink
from services.device.things import Thing
from services.device.things.latest import LatestValues
from services.device.things.store import DeviceStore

LONGEST_ERROR = 1000


class ReplyHandler:
    """Closes commands by what devices answer."""

    def __init__(
        self,
        *,
        mongo: Mongo,
        devices: DeviceStore,
        commands: CommandStore,
        outbox: Outbox,
        latest: LatestValues,
        partitions: Partitions,
        ledger: Ledger,
    ) -> None:
        self._mongo = mongo
        self._devices = devices
        self._commands = commands
        self._outbox = outbox
        self._latest = latest
        self._partitions = partitions
        self._ledger = ledger

    async def handle(self, uplink: Uplink, thing: Thing) -> str | None:
        """Close the command that `uplink` answers; return why not, when it is refused."""
        try:
            reply, command_id = read_reply(uplink.payload)
        except InvalidInput as error:
            return f"not a reply: {error.text}"
        found = await self._commands.of_thing(command_id, thing.id)
        if found is not None and found[0].status in OPEN:
            command, _ = found
            _answer(command, reply, thing, uplink.received)
            await self._show(command, thing, uplink)
            if await self._close(command, thing, uplink):
                return None
            found = await self._mongo.transaction(
                lambda session: self._commands.of_thing(command_id, thing.id, session)
            )  # as the failed attempt saw it: a plain majority read may lag behind it
        if found is None:
            return f"commandId {command_id} is not a command of this device"
        _, closed_by = found
        if closed_by is None:
            return f"command {command_id} expired before this answer"
        if closed_by != uplink.key:
            await self._count_repetition(uplink)
        return None

    async def _close(self, command: Command, thing: Thing, uplink: Uplink) -> bool:
        confirms = command.kind == "SET_PROPERTIES" and command.status == "SUCCESS"
        if confirms:
            await self._partitions.ensure({partition_of(uplink.received)})
        written: list[dict[str, Any]] = []

        async def work(session: Session) -> bool:
            written.clear()
            if not await self._commands.close(command, session, closed_by=uplink.key):
                return False
            entries = [finished(command)]
            if confirms:
                entries.append(confirmed(command, uplink.received, f"r-{uplink.key}"))
                await self._record(command, thing, uplink, session)
            elif command.kind == "SET_PROFILE" and command.status == "SUCCESS":
                values = await self._commands.profile(thing.id, session)
                values.update(command.settings())
                await self._commands.set_profile(thing.id, values, session)
            if command.type is TaskType.CONFIG and command.status == "SUCCESS":
                await self._devices.provisioned(thing.id, session)
            written.extend(await self._outbox.add(entries, session))
            await self._ledger.count(page, session, stored=[uplink])
            return True

        with self._ledger.page() as page:
            closed = await self._mongo.transaction(work)
        if closed:
            await self._outbox.relay(written)
        return closed

    async def _record(
        self, command: Command, thing: Thing, uplink: Uplink, session: Session
    ) -> None:
        if not thing.data_storage:
            return
        key = history_key(thing.id, uplink.received, uplink.sequence)
        history = self._partitions.collection(partition_of(uplink.received))
        await history.insert_one({"_id": key, "p": command.payload["properties"]}, session=session)

    async def _show(self, command: Command, thing: Thing, uplink: Uplink) -> None:
        """Who sees the command closed finds the values that the device confirmed."""
        if command.kind == "SET_PROPERTIES" and command.status == "SUCCESS":
            await self._latest.apply([(thing.id, uplink.received, command.payload["properties"])])

    async def _count_repetition(self, uplink: Uplink) -> None:
        """A command that was sent twice may be answered twice: taken, with nothing to do."""

        async def work(session: Session) -> None:
            row = {"_id": seen_key(uplink), "at": datetime.now(UTC)}
            await self._mongo.database[SEEN].insert_one(row, session=session)
            await self._ledger.count(page, session, stored=[uplink])

        with self._ledger.page() as page, suppress(DuplicateKey):
            await self._mongo.transaction(work)


def _answer(command: Command, reply: Reply, thing: Thing, received: int) -> None:
    command.status = "SUCCESS" if reply.status == "SUCCESS" else "FAILED"
    command.finished_at = from_ms(received)
    if reply.error is not None:
        text = reply.error if isinstance(reply.error, str) else msgspec.json.encode(reply.error)
        command.error = (text if isinstance(text, str) else text.decode())[:LONGEST_ERROR]
    if command.kind == "CALL_SERVICE" and reply.outputs is not None:
        try:
            command.outputs = thing.tsl.check_service_outputs(command.service_id, reply.outputs)
        except Refusal as error:
            command.error = f"outputs refused: {error}"[:LONGEST_ERROR]
