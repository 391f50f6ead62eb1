"""Completion of commands by replies, by reports that confirm values, or by cancelling.

One transaction ends answered commands, writes the history records of confirmed properties, and
increases the ledger's count. The keys of the records derive from the uplinks. The events of the
commands are published before the batch with the replies is acknowledged. A repeated reply changes
nothing and publishes the events again.
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
from libs.common.clock import from_ms, to_ms
from libs.common.errors import InvalidInput
from libs.common.store.mongo import Session
from libs.common.telemetry.tracing import continue_trace, trace_header
from libs.common.tsl import InvalidValues, UnknownService
from services.device.commands.events import (
    confirmed_properties_event,
    created_event,
    finished_event,
    stored_command_subject,
)
from services.device.commands.model import MAX_ERROR_LENGTH, Command, FailureReason, TaskType
from services.device.commands.store import CommandStore
from services.device.telemetry.batch import Batch, RejectedUplink, ValidReport
from services.device.telemetry.batch_store import BatchStore, ClosingReply
from services.device.telemetry.folded_values import TOO_LARGE_REASON
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.ports import CommandCloser
from services.device.telemetry.uplink import Reply, Uplink, read_reply
from services.device.things.device_store import DeviceStore
from services.device.things.model import Device, Thing

log = logging.getLogger(__name__)

REPUBLISH_AFTER_MS = 2_000
"""Age (ms) of an `unpublished` command above which a reply publishes its created event again. A
process marks commands as published after half a second, unless the process ends before."""


class _DecodedReply(NamedTuple):
    """A decoded reply with its device."""

    uplink: Uplink
    thing: Thing
    reply: Reply
    command_id: int

    def reject(self, reason: str) -> RejectedUplink:
        return RejectedUplink(self.uplink, reason, self.thing)


class _ReplyRejectedError(Exception):
    """The outputs of a reply are invalid, or a value is too large; `reason` says why."""

    def __init__(self, decoded: _DecodedReply, reason: str) -> None:
        super().__init__(reason)
        self.decoded, self.reason = decoded, reason


@dataclass(slots=True)
class _ReplyResults:
    """The replies of a transaction, by result."""

    closed: list[tuple[_DecodedReply, Command]] = field(default_factory=list)
    """Replies and the commands that they have closed, now or at an earlier delivery."""
    duplicates: list[Uplink] = field(default_factory=list)
    rejected: list[RejectedUplink] = field(default_factory=list)

    def clear(self) -> None:
        for each in (self.closed, self.duplicates, self.rejected):
            each.clear()

    def add_without_open_command(self, decoded: _DecodedReply, command: Command | None) -> None:
        """Add a reply to a command that is not open; `command` is None if it does not exist."""
        command_id = decoded.command_id
        if command is None:
            self.rejected.append(decoded.reject(f"the device has no command {command_id}"))
        elif command.closed_by is None:
            self.rejected.append(decoded.reject(f"command {command_id} expired before this reply"))
        elif command.closed_by == decoded.uplink.key:
            self.closed.append((decoded, command.conceal_values(decoded.thing.tsl)))
        else:
            self.duplicates.append(decoded.uplink)


@dataclass(frozen=True, kw_only=True)
class CommandCompletion(CommandCloser):
    """Closes commands by the replies and reports of their devices."""

    devices: DeviceStore
    commands: CommandStore
    latest: LatestValues
    batch_store: BatchStore

    async def close_by_replies(self, replies: Sequence[tuple[Uplink, Thing]], batch: Batch) -> None:
        """Close the commands that replies answer, in one transaction.

        A reply with rejected values aborts the transaction, which then runs again without the
        reply.
        """
        decoded_replies: list[_DecodedReply] = []
        for uplink, thing in replies:
            try:
                decoded_replies.append(_DecodedReply(uplink, thing, *read_reply(uplink.payload)))
            except InvalidInput as error:
                reason = f"invalid reply: {error.text}"
                batch.rejected.append(RejectedUplink(uplink, reason, thing))
        results = _ReplyResults()
        while decoded_replies:
            received = [decoded.uplink.received for decoded in decoded_replies]
            close = partial(self._close, decoded_replies, results)
            try:
                await self.batch_store.store_replies(received, close)
            except _ReplyRejectedError as error:
                reason = f"command {error.decoded.command_id}: {error.reason}"
                batch.rejected.append(error.decoded.reject(reason))
                decoded_replies.remove(error.decoded)
            else:
                break
        batch.rejected += results.rejected
        for uplink in results.duplicates:
            await self.batch_store.count_without_effect(uplink)
        for decoded, command in results.closed:
            with continue_trace("close command", SpanKind.INTERNAL, decoded.uplink.trace):
                _add_events(decoded, command, batch)

    async def _close(
        self, decoded_replies: Sequence[_DecodedReply], results: _ReplyResults, session: Session
    ) -> list[ClosingReply]:
        """Close the commands of `decoded_replies`, and store the values that they confirm.

        The values must be readable before the commands are closed. Raises `_ReplyRejectedError`.
        """
        results.clear()
        closing: list[ClosingReply] = []
        for decoded in decoded_replies:
            uplink, thing, reply, command_id = decoded
            command = await self.commands.close_answered(
                command_id, thing.id, reply.status, from_ms(uplink.received), uplink.key, session
            )
            if command is None:
                command = await self.commands.find_for_thing(command_id, thing.id, session)
                results.add_without_open_command(decoded, command)
                continue
            command = command.conceal_values(thing.tsl)
            properties = await self._apply_and_find_confirmed(command, decoded)
            await self.commands.add_result(command, session)
            if command.type is TaskType.CONFIG and command.status == "SUCCESS":
                if command.kind == "SET_PROFILE":
                    settings = thing.tsl.readable(dict(command.readable_settings()))
                    await self.commands.confirm_profile(thing.id, list(settings.items()), session)
                if command.provisions:
                    await self.devices.reported_state.mark_provisioned(thing.id, session)
            results.closed.append((decoded, command))
            closing.append(ClosingReply(uplink, thing, properties))
        await self.latest.apply(
            (report.thing.id, report.uplink.received, report.properties)
            for report in closing
            if report.properties
        )
        return closing

    async def _apply_and_find_confirmed(
        self, command: Command, decoded: _DecodedReply
    ) -> dict[str, Any] | None:
        """Apply a reply to its command; return the properties that the reply confirms, or None.

        Raises `_ReplyRejectedError`.
        """
        uplink, thing, reply, _ = decoded
        try:
            _set_result(command, reply, thing, uplink.received)
        except InvalidValues as error:
            raise _ReplyRejectedError(decoded, str(error)) from error
        command.closed_by = uplink.key
        properties = _find_confirmed_properties(command, thing)
        reports = [(thing.id, uplink.received, properties)] if properties else []
        if names := (await self.latest.find_properties_beyond_limit(reports)).get(thing.id):
            raise _ReplyRejectedError(decoded, f"{', '.join(sorted(names))} {TOO_LARGE_REASON}")
        return properties

    async def confirm_by_reports(self, reports: Sequence[ValidReport]) -> None:
        """Close coded property updates of which reports have shown all requested values.

        A repeated call changes nothing. No report shows a write-only value, so commands that set
        such a value end when the network server reports an acknowledgement.
        """
        awaited = await self.commands.coded.list_open({report.thing.id for report in reports})
        if not awaited:
            return
        by_thing: dict[int, list[ValidReport]] = defaultdict(list)
        for report in reports:
            by_thing[report.thing.id].append(report)
        for command in awaited:
            if command.kind == "SET_PROPERTIES" and not command.write_only:
                await self._close_if_confirmed(command, by_thing[command.thing_id])

    async def _close_if_confirmed(self, command: Command, reports: Sequence[ValidReport]) -> None:
        requested: dict[str, Any] = command.payload["properties"]
        since = to_ms(command.created_at)
        confirmed = {
            key
            for report in reports
            if report.ts >= since
            for key, value in report.properties.items()
            if key in requested and confirms(value, requested[key])
        }
        if confirmed and len(
            await self.commands.coded.add_confirmed_keys(command, confirmed)
        ) == len(requested):
            provisioned = self.devices.reported_state.mark_provisioned
            await self.commands.end(
                command,
                "SUCCESS",
                None,
                extra_step=lambda session: provisioned(command.thing_id, session),
            )


def _add_events(decoded: _DecodedReply, command: Command, batch: Batch) -> None:
    """Add the events of a closed command, and the properties that it confirms, to the batch."""
    uplink, thing, _, _ = decoded
    entries = [finished_event(command)]
    if command.unpublished and to_ms(command.created_at) + REPUBLISH_AFTER_MS < uplink.received:
        entries.insert(0, created_event(command))
    for entry in entries:
        batch.closing_events.append(
            OutgoingMessage(entry.subject, entry.payload, entry.id, trace_header())
        )
    properties = _find_confirmed_properties(command, thing)
    if properties is not None:
        batch.confirmed.append(ValidReport(uplink, thing, uplink.received, properties, []))
        batch.closing_events.append(
            confirmed_properties_event(command, properties, uplink.received, f"r-{uplink.key}")
        )


def _find_confirmed_properties(command: Command, thing: Thing) -> dict[str, Any] | None:
    """Return the readable properties that a successful command has set, or None."""
    if command.kind == "SET_PROPERTIES" and command.status == "SUCCESS":
        return thing.tsl.readable(command.payload["properties"]) or None
    return None


def _set_result(command: Command, reply: Reply, thing: Thing, received: int) -> None:
    """Set status, error and outputs of a command; raise `InvalidValues` for invalid outputs.

    A call of a service that the TSL no longer declares ends without outputs.
    """
    command.status = "SUCCESS" if reply.status == "SUCCESS" else "FAILED"
    command.finished_at = from_ms(received)
    if reply.error is not None:
        text = reply.error if isinstance(reply.error, str) else msgspec.json.encode(reply.error)
        error = text if isinstance(text, str) else text.decode()
        command.error = command.mask(error)[:MAX_ERROR_LENGTH]
    done = command.status == "SUCCESS"
    if command.kind == "CALL_SERVICE" and (done or reply.outputs is not None):
        try:
            outputs = thing.tsl.check_service_outputs(command.service_id, reply.outputs)
        except UnknownService as error:
            command.error = command.error or f"outputs refused: {error}"[:MAX_ERROR_LENGTH]
        else:
            command.outputs = None if reply.outputs is None else outputs


def confirms(reported: Any, requested: Any) -> bool:
    """Return whether a reported value equals the requested one.

    A reported STRUCT may have more members than the requested STRUCT.
    """
    if isinstance(reported, dict) and isinstance(requested, dict):
        return all(key in reported and confirms(reported[key], requested[key]) for key in requested)
    return type(reported) is type(requested) and bool(reported == requested)


class CommandCanceller:
    """Ends open commands of devices and deletes their copies in nats-server."""

    def __init__(self, commands: CommandStore, bus: Bus) -> None:
        self._commands = commands
        self._bus = bus

    async def cancel_all(self, device: Device, reason: FailureReason) -> None:
        """End the open commands of a device as FAILED, and delete its messages in nats-server.

        If nats-server cannot delete the messages, a warning is logged.
        """
        await self._commands.fail_open_commands(device.id, reason)
        subject = stored_command_subject(device.sn)
        try:
            await self._bus.js.purge_stream(MQTT, subject=subject)
        except (NatsError, APIError, TimeoutError) as error:
            log.warning(
                "device %d: its stored MQTT messages could not be deleted: %r", device.id, error
            )
