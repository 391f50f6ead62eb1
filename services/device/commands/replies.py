"""Replies: a device answers a command, and the command is closed.

The end of the command, its event, the history record of confirmed properties and the
ledger's count are one transaction, keyed by the uplink, so a repeated reply changes nothing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.bus import Outbox, OutboxEntry
from libs.common.clock import from_ms
from libs.common.errors import InvalidInput
from libs.common.store.mongo import Mongo, Session
from libs.common.tsl import InvalidValues, UnknownService
from services.device.commands.messages import confirmed, finished
from services.device.commands.model import OPEN, Command, TaskType
from services.device.commands.store import CommandStore
from services.device.reports.checking import Reply, read_reply
from services.device.reports.store import ReportStore
from services.device.reports.uplink import Uplink
from services.device.things import Thing
from services.device.things.folding import BEYOND
from services.device.things.latest import LatestValues
from services.device.things.store import DeviceStore

LONGEST_ERROR = 1000
Point = Callable[[Uplink, Thing, dict[str, Any]], Awaitable[list[OutboxEntry]]]
"""What else is said of values that a device has confirmed: of alarms they may raise or clear."""


@dataclass(frozen=True, kw_only=True)
class ReplyHandler:
    """Closes commands by what devices answer."""

    mongo: Mongo
    devices: DeviceStore
    commands: CommandStore
    outbox: Outbox
    latest: LatestValues
    reports: ReportStore
    point: Point

    async def handle(self, uplink: Uplink, thing: Thing) -> str | None:
        """Close the command that `uplink` answers; return why not, when it is refused."""
        try:
            reply, command_id = read_reply(uplink.payload)
        except InvalidInput as error:
            return f"not a reply: {error.text}"
        command = await self.commands.find_for_thing(command_id, thing.id)
        if command is not None and command.status in OPEN:
            command = command.readable_by(thing.tsl)
            if refusal := await self._refusal(command, reply, thing, uplink.received):
                return f"command {command_id}: {refusal}"
            properties = _confirmed(command, thing)
            if properties is not None:  # who sees the command closed finds these values
                await self.latest.apply([(thing.id, uplink.received, properties)])
            if await self._close(command, thing, uplink):
                return None
            command = await self.mongo.transaction(
                lambda session: self.commands.find_for_thing(command_id, thing.id, session)
            )  # as the failed attempt saw it: a plain majority read may lag behind it
        if command is None:
            return f"commandId {command_id} is not a command of this device"
        if command.closed_by is None:
            return f"command {command_id} expired before this answer"
        if command.closed_by != uplink.key:
            await self.reports.store_repetition(uplink)
        return None

    async def _refusal(
        self, command: Command, reply: Reply, thing: Thing, received: int
    ) -> str | None:
        """Let a command end as the reply says; return why not, when the reply is refused."""
        try:
            _answer(command, reply, thing, received)
        except InvalidValues as error:
            return str(error)
        properties = _confirmed(command, thing) or {}
        names = (await self.latest.beyond([(thing.id, received, properties)])).get(thing.id)
        return f"{', '.join(sorted(names))} {BEYOND}" if names else None

    async def _close(self, command: Command, thing: Thing, uplink: Uplink) -> bool:
        properties = _confirmed(command, thing)
        pointers = await self.point(uplink, thing, properties) if properties else []
        written: list[dict[str, Any]] = []

        async def work(session: Session) -> bool:
            written.clear()
            if not await self.commands.close(command, session, closed_by=uplink.key):
                return False
            entries = [finished(command)]
            if properties is not None:
                entries.append(confirmed(command, properties, uplink.received, f"r-{uplink.key}"))
                entries += pointers
            elif command.kind == "SET_PROFILE" and command.status == "SUCCESS":
                settings = thing.tsl.readable(dict(command.settings()))
                await self.commands.confirm_profile(thing.id, list(settings.items()), session)
            if command.type is TaskType.CONFIG and command.status == "SUCCESS":
                await self.devices.notes.provisioned(thing.id, session)
            written.extend(await self.outbox.add(entries, session))
            return True

        closed = await self.reports.store_confirmed(uplink, thing, properties, work)
        if closed:
            await self.outbox.relay(written)
        return closed


def _confirmed(command: Command, thing: Thing) -> dict[str, Any] | None:
    """The properties that a device says are in force, if it does and they can be read."""
    if command.kind == "SET_PROPERTIES" and command.status == "SUCCESS":
        return thing.tsl.readable(command.payload["properties"]) or None
    return None


def _answer(command: Command, reply: Reply, thing: Thing, received: int) -> None:
    """Let a command end as the reply says; raise `InvalidValues` for outputs that cannot be.

    Of a service that the TSL has lost meanwhile nothing is known: it ends without outputs.
    """
    command.status = "SUCCESS" if reply.status == "SUCCESS" else "FAILED"
    command.finished_at = from_ms(received)
    if reply.error is not None:
        text = reply.error if isinstance(reply.error, str) else msgspec.json.encode(reply.error)
        error = text if isinstance(text, str) else text.decode()
        command.error = command.masked(error)[:LONGEST_ERROR]
    done = command.status == "SUCCESS"
    if command.kind == "CALL_SERVICE" and (done or reply.outputs is not None):
        try:
            outputs = thing.tsl.check_service_outputs(command.service_id, reply.outputs)
        except UnknownService as error:
            command.error = command.error or f"outputs refused: {error}"[:LONGEST_ERROR]
        else:
            command.outputs = None if reply.outputs is None else outputs
