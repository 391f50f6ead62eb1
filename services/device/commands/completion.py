"""Completion of commands: by replies, by reports that confirm values, by cancelling.

The ends of answered commands, the history records of confirmed properties and the ledger's count
are one transaction, keyed by the uplinks. The batch that carries the replies publishes their events
before it is acknowledged. A repeated reply changes nothing and publishes its events again.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec
from nats.errors import Error as NatsError
from nats.js.errors import APIError
from opentelemetry.trace import SpanKind

from libs.common.bus import Bus, OutgoingMessage
from libs.common.bus.streams import MQTT
from libs.common.bus.subjects import down_command
from libs.common.clock import from_ms, to_ms
from libs.common.errors import InvalidInput
from libs.common.store.mongo import Session
from libs.common.telemetry.tracing import continue_trace, trace_header
from libs.common.tsl import InvalidValues, UnknownService
from services.device.commands.events import confirmed_message, created_entry, finished_entry
from services.device.commands.model import Command, FailureReason, TaskType
from services.device.commands.store import CommandStore
from services.device.telemetry.batch import Batch, RejectedUplink, ValidReport
from services.device.telemetry.batch_store import ClosingReply, ReportStore
from services.device.telemetry.folded_values import TOO_LARGE_REASON
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.ports import CommandCloser
from services.device.telemetry.uplink import Reply, Uplink, read_reply
from services.device.things.device_store import DeviceStore
from services.device.things.model import Device, Thing

log = logging.getLogger(__name__)

LONGEST_ERROR = 1000
UNMARKED_MS = 2_000
"""Age of a command that is still `unpublished` although its process marks published ones every half
second: the process has ended, perhaps before it published the event."""


class _Answer(NamedTuple):
    """A decoded reply with its device."""

    uplink: Uplink
    thing: Thing
    reply: Reply
    command_id: int

    def reject(self, reason: str) -> RejectedUplink:
        return RejectedUplink(self.uplink, reason, self.thing)


class _ReplyRejectedError(Exception):
    """The values of a reply are invalid; `reason` says why."""

    def __init__(self, answer: _Answer, reason: str) -> None:
        super().__init__(reason)
        self.answer, self.reason = answer, reason


@dataclass(slots=True)
class _Outcome:
    """The results of the replies of a transaction."""

    closed: list[tuple[_Answer, Command]] = field(default_factory=list)
    """Replies and the commands that they have closed, now or at an earlier delivery."""
    duplicates: list[Uplink] = field(default_factory=list)
    rejected: list[RejectedUplink] = field(default_factory=list)

    def clear(self) -> None:
        for each in (self.closed, self.duplicates, self.rejected):
            each.clear()

    def add_closed_before(self, answer: _Answer, command: Command | None) -> None:
        """Add a reply to a command that is not open; `command` is None if it does not exist."""
        command_id = answer.command_id
        if command is None:
            self.rejected.append(answer.reject(f"the device has no command {command_id}"))
        elif command.closed_by is None:
            self.rejected.append(answer.reject(f"command {command_id} expired before this reply"))
        elif command.closed_by == answer.uplink.key:
            self.closed.append((answer, command.readable_by(answer.thing.tsl)))
        else:
            self.duplicates.append(answer.uplink)


@dataclass(frozen=True, kw_only=True)
class CommandCompletion(CommandCloser):
    """Closes commands by the replies and reports of their devices."""

    devices: DeviceStore
    commands: CommandStore
    latest: LatestValues
    reports: ReportStore

    async def close_by_replies(self, replies: Sequence[tuple[Uplink, Thing]], batch: Batch) -> None:
        """Close the commands that replies answer, in one transaction.

        A rejected reply aborts the transaction, which then runs again without it.
        """
        answers: list[_Answer] = []
        for uplink, thing in replies:
            try:
                answers.append(_Answer(uplink, thing, *read_reply(uplink.payload)))
            except InvalidInput as error:
                reason = f"invalid reply: {error.text}"
                batch.rejected.append(RejectedUplink(uplink, reason, thing))
        outcome = _Outcome()
        while answers:
            received = [answer.uplink.received for answer in answers]
            close = partial(self._close, answers, outcome)
            try:
                await self.reports.store_replies(received, close)
            except _ReplyRejectedError as error:
                reason = f"command {error.answer.command_id}: {error.reason}"
                batch.rejected.append(error.answer.reject(reason))
                answers.remove(error.answer)
            else:
                break
        batch.rejected += outcome.rejected
        for uplink in outcome.duplicates:
            await self.reports.count_duplicate(uplink)
        for answer, command in outcome.closed:
            with continue_trace("close command", SpanKind.INTERNAL, answer.uplink.trace):
                _announce(answer, command, batch)

    async def _close(
        self, answers: Sequence[_Answer], outcome: _Outcome, session: Session
    ) -> list[ClosingReply]:
        """Close the commands of `answers`, and store the values that they confirm.

        The values must be readable before the commands are closed. Raises `_ReplyRejectedError`.
        """
        outcome.clear()
        closing: list[ClosingReply] = []
        for answer in answers:
            uplink, thing, reply, command_id = answer
            command = await self.commands.close_answered(
                command_id, thing.id, reply.status, from_ms(uplink.received), uplink.key, session
            )
            if command is None:
                command = await self.commands.find_for_thing(command_id, thing.id, session)
                outcome.add_closed_before(answer, command)
                continue
            command = command.readable_by(thing.tsl)
            properties = await self._apply(command, answer)
            await self.commands.add_result(command, session)
            if command.type is TaskType.CONFIG and command.status == "SUCCESS":
                if command.kind == "SET_PROFILE":
                    settings = thing.tsl.readable(dict(command.settings()))
                    await self.commands.confirm_profile(thing.id, list(settings.items()), session)
                if command.provisions:
                    await self.devices.reported_state.mark_provisioned(thing.id, session)
            outcome.closed.append((answer, command))
            closing.append(ClosingReply(uplink, thing, properties))
        await self.latest.apply(
            (report.thing.id, report.uplink.received, report.properties)
            for report in closing
            if report.properties
        )
        return closing

    async def _apply(self, command: Command, answer: _Answer) -> dict[str, Any] | None:
        """Apply a reply to its command; return the properties that it confirms.

        Raises `_ReplyRejectedError`.
        """
        uplink, thing, reply, _ = answer
        try:
            _apply_reply(command, reply, thing, uplink.received)
        except InvalidValues as error:
            raise _ReplyRejectedError(answer, str(error)) from error
        command.closed_by = uplink.key
        properties = _find_confirmed(command, thing)
        reports = [(thing.id, uplink.received, properties)] if properties else []
        if names := (await self.latest.find_oversized(reports)).get(thing.id):
            raise _ReplyRejectedError(answer, f"{', '.join(sorted(names))} {TOO_LARGE_REASON}")
        return properties

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
        requested: dict[str, Any] = command.payload["properties"]
        since = to_ms(command.created_at)
        confirmed = {
            key
            for report in reports
            if report.ts >= since
            for key, value in report.properties.items()
            if key in requested and matches(value, requested[key])
        }
        if confirmed and len(await self.commands.coded.add_shown(command, confirmed)) == len(
            requested
        ):
            provisioned = self.devices.reported_state.mark_provisioned
            await self.commands.end(
                command,
                "SUCCESS",
                None,
                extra_step=lambda session: provisioned(command.thing_id, session),
            )


def _announce(answer: _Answer, command: Command, batch: Batch) -> None:
    """Add the events of a closed command, and the properties that it confirms, to the batch."""
    uplink, thing, _, _ = answer
    entries = [finished_entry(command)]
    if command.unpublished and to_ms(command.created_at) + UNMARKED_MS < uplink.received:
        entries.insert(0, created_entry(command))
    for entry in entries:
        batch.closing_events.append(
            OutgoingMessage(entry.subject, entry.payload, entry.id, trace_header())
        )
    properties = _find_confirmed(command, thing)
    if properties is not None:
        batch.confirmed.append(ValidReport(uplink, thing, uplink.received, properties, []))
        batch.closing_events.append(
            confirmed_message(command, properties, uplink.received, f"r-{uplink.key}")
        )


def _find_confirmed(command: Command, thing: Thing) -> dict[str, Any] | None:
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


def matches(value: Any, requested: Any) -> bool:
    """Return whether a reported value equals the requested one; a STRUCT may have more members."""
    if isinstance(value, dict) and isinstance(requested, dict):
        return all(key in value and matches(value[key], requested[key]) for key in requested)
    return type(value) is type(requested) and bool(value == requested)


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
