"""Completion of commands: by replies, by reports that confirm values, by cancelling.

The end of an answered command, its event, the history record of confirmed properties and the
ledger's count are one transaction, keyed by the uplink. A repeated reply changes nothing.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from libs.common.bus import Bus, Outbox
from libs.common.bus.streams import MQTT
from libs.common.bus.subjects import down_command
from libs.common.clock import from_ms, to_ms
from libs.common.errors import InvalidInput
from libs.common.store.mongo import Mongo, Session
from libs.common.tsl import InvalidValues, UnknownService
from services.device.commands.events import confirmed_entry, finished_entry
from services.device.commands.model import OPEN, Command, FailureReason, TaskType
from services.device.commands.store import CommandStore
from services.device.telemetry.batch import ValidReport
from services.device.telemetry.batch_store import ReportStore
from services.device.telemetry.folded_values import BEYOND
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.ports import AlarmTrigger, CommandCloser
from services.device.telemetry.uplink import Reply, Uplink, read_reply
from services.device.things.device_store import DeviceStore
from services.device.things.model import Device, Thing

log = logging.getLogger(__name__)

LONGEST_ERROR = 1000


@dataclass(frozen=True, kw_only=True)
class CommandCompletion(CommandCloser):
    """Closes commands by the replies and reports of their devices."""

    mongo: Mongo
    devices: DeviceStore
    commands: CommandStore
    outbox: Outbox
    latest: LatestValues
    reports: ReportStore
    alarms: AlarmTrigger

    async def close_by_reply(self, uplink: Uplink, thing: Thing) -> str | None:
        """Close the command that `uplink` answers; return why a reply is rejected."""
        try:
            reply, command_id = read_reply(uplink.payload)
        except InvalidInput as error:
            return f"invalid reply: {error.text}"
        command = await self.commands.find_for_thing(command_id, thing.id)
        if command is not None and command.status in OPEN:
            command = command.readable_by(thing.tsl)
            if refusal := await self._refusal(command, reply, thing, uplink.received):
                return f"command {command_id}: {refusal}"
            properties = _confirmed(command, thing)
            if properties is not None:  # the values must be readable before the command is closed
                await self.latest.apply([(thing.id, uplink.received, properties)])
            if await self._close(command, thing, uplink):
                return None
            command = await self.mongo.transaction(
                lambda session: self.commands.find_for_thing(command_id, thing.id, session)
            )  # in a transaction: a plain majority read may lag behind the failed attempt
        if command is None:
            return f"the device has no command {command_id}"
        if command.closed_by is None:
            return f"command {command_id} expired before this reply"
        if command.closed_by != uplink.key:
            await self.reports.count_duplicate(uplink)
        return None

    async def _refusal(
        self, command: Command, reply: Reply, thing: Thing, received: int
    ) -> str | None:
        try:
            _apply_reply(command, reply, thing, received)
        except InvalidValues as error:
            return str(error)
        properties = _confirmed(command, thing) or {}
        names = (await self.latest.find_oversized([(thing.id, received, properties)])).get(thing.id)
        return f"{', '.join(sorted(names))} {BEYOND}" if names else None

    async def _close(self, command: Command, thing: Thing, uplink: Uplink) -> bool:
        properties = _confirmed(command, thing)
        pointers = (
            await self.alarms.entries_for_values(uplink, thing, properties) if properties else []
        )
        written: list[dict[str, Any]] = []

        async def close_command(session: Session) -> bool:
            written.clear()
            if not await self.commands.close(command, session, closed_by=uplink.key):
                return False
            entries = [finished_entry(command)]
            if properties is not None:
                entries.append(
                    confirmed_entry(command, properties, uplink.received, f"r-{uplink.key}")
                )
                entries += pointers
            elif command.kind == "SET_PROFILE" and command.status == "SUCCESS":
                settings = thing.tsl.readable(dict(command.settings()))
                await self.commands.confirm_profile(thing.id, list(settings.items()), session)
            if command.type is TaskType.CONFIG and command.status == "SUCCESS":
                await self.devices.reported_state.mark_provisioned(thing.id, session)
            written.extend(await self.outbox.add(entries, session))
            return True

        closed = await self.reports.store_reply(uplink, thing, properties, close_command)
        if closed:
            await self.outbox.relay(written)
        return closed

    async def confirm_by_reports(self, reports: Sequence[ValidReport]) -> None:
        """Close property updates whose values stored reports show.

        Repeating it changes nothing. No report shows a write-only value, so commands that set one
        end when the network server reports an acknowledgement.
        """
        awaited = await self.commands.coded.list_awaited({report.thing.id for report in reports})
        if not awaited:
            return
        by_thing: dict[int, list[ValidReport]] = defaultdict(list)
        for report in reports:
            by_thing[report.thing.id].append(report)
        for command in awaited:
            if command.kind == "SET_PROPERTIES" and not command.write_only:
                await self._confirm(command, by_thing[command.thing_id])

    async def _confirm(self, command: Command, reports: Sequence[ValidReport]) -> None:
        wanted: dict[str, Any] = command.payload["properties"]
        since = to_ms(command.created_at)
        shown = {
            key
            for report in reports
            if report.ts >= since
            for key, value in report.properties.items()
            if key in wanted and matches(value, wanted[key])
        }
        if shown and len(await self.commands.coded.add_shown(command, shown)) == len(wanted):
            provisioned = self.devices.reported_state.mark_provisioned
            await self.commands.end(
                command,
                "SUCCESS",
                None,
                also=lambda session: provisioned(command.thing_id, session),
            )


def _confirmed(command: Command, thing: Thing) -> dict[str, Any] | None:
    """Return the readable properties that a successful command has set, or None."""
    if command.kind == "SET_PROPERTIES" and command.status == "SUCCESS":
        return thing.tsl.readable(command.payload["properties"]) or None
    return None


def _apply_reply(command: Command, reply: Reply, thing: Thing, received: int) -> None:
    """Set status, error and outputs of a command; raise `InvalidValues`.

    A service that the TSL no longer declares ends without outputs.
    """
    command.status = "SUCCESS" if reply.status == "SUCCESS" else "FAILED"
    command.finished_at = from_ms(received)
    if reply.error is not None:
        text = reply.error if isinstance(reply.error, str) else msgspec.json.encode(reply.error)
        error = text if isinstance(text, str) else text.decode()
        command.error = command.mask(error)[:LONGEST_ERROR]
    done = command.status == "SUCCESS"
    if command.kind == "CALL_SERVICE" and (done or reply.outputs is not None):
        try:
            outputs = thing.tsl.check_service_outputs(command.service_id, reply.outputs)
        except UnknownService as error:
            command.error = command.error or f"outputs refused: {error}"[:LONGEST_ERROR]
        else:
            command.outputs = None if reply.outputs is None else outputs


def matches(value: Any, wanted: Any) -> bool:
    """Return whether a reported value equals the wanted one; a STRUCT may have more."""
    if isinstance(value, dict) and isinstance(wanted, dict):
        return all(key in value and matches(value[key], wanted[key]) for key in wanted)
    return type(value) is type(wanted) and bool(value == wanted)


class CommandCanceller:
    """Ends open commands of devices and deletes their copies in nats-server."""

    def __init__(self, commands: CommandStore, bus: Bus) -> None:
        self._commands = commands
        self._bus = bus

    async def end(self, device: Device, reason: FailureReason) -> None:
        """End the open commands of a device as FAILED."""
        await self._commands.fail_all(device.id, reason)
        subject = f"$MQTT.msgs.{down_command(device.sn)}"
        try:
            await self._bus.js.purge_stream(MQTT, subject=subject)
        except (NatsError, APIError, TimeoutError) as error:
            log.warning(
                "device %d: its stored MQTT messages could not be deleted: %r", device.id, error
            )
