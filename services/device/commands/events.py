"""Events of commands, and the MQTT messages that carry commands to devices."""

from datetime import datetime
from typing import Any
from uuid import uuid4

import msgspec

from libs.common.bus import OutboxEntry, OutgoingMessage
from libs.common.bus.event_shortening import encode_shortened_event
from libs.common.bus.hops import hops_header
from libs.common.bus.subjects import command_subject, device_event, service_event, task_event
from libs.common.clock import to_ms
from libs.common.contracts.events import (
    PropertiesReported,
    ServiceCalled,
    ServiceReplied,
    Subcommand,
    TaskCreated,
    TaskFinished,
)
from libs.common.telemetry.tracing import trace_header
from services.device.commands.model import Command

QOS_1_HEADER = {"Nmqtt-Pub": "1"}
"""The header by which nats-server marks MQTT messages of QoS 1."""

ERROR_CODE_BY_STATUS = {
    "SUCCESS": "",
    "FAILED": "device_refused",
    "TIMEOUT": "device_did_not_answer",
}


def error_code(command: Command) -> str:
    """Return the code of the reason why a command failed, or "" if it has not failed."""
    return command.error_code or ERROR_CODE_BY_STATUS.get(command.status, "")


def subcommands(command: Command) -> list[Subcommand]:
    """Return the settings of a command with its status; write-only ones have no value."""
    return [
        Subcommand(key, command.status, value)
        for key, value in command.settings_with_hidden_as_none()
    ]


def _common_fields(command: Command, event_id: str, at: datetime) -> dict[str, Any]:
    return {
        "event_id": event_id,
        "created_at": to_ms(at),
        "tenant": command.tenant,
        "device": command.profile,
        "task_id": command.id,
    }


def new_command_entries(command: Command, payload: bytes | None = None) -> list[OutboxEntry]:
    """Return the entries of a new command: its event and its MQTT messages.

    A command that an integration delivers has no messages. `payload` is the encoded payload, if the
    caller has it.
    """
    messages = [] if command.carrier else command_messages(command, payload)
    if command.write_only and command.status == "PENDING":
        messages = messages[1:]  # nats-server must not store secrets until the device connects
    return [created_event(command), *messages]


def created_event(command: Command) -> OutboxEntry:
    """Return the event `task.{id}.created` or `service.{deviceId}.called`."""
    event_id = f"c-{to_ms(command.created_at):x}-{command.id:x}"
    common = _common_fields(command, event_id, command.created_at)
    body: ServiceCalled | TaskCreated
    if command.kind == "CALL_SERVICE":
        subject = service_event(command.tenant, command.thing_id, "called")
        inputs = command.payload["inputs"]
        body = ServiceCalled(**common, service_id=command.service_id, inputs=inputs)
    else:
        subject = task_event(command.tenant, command.id, "created")
        body = TaskCreated(**common, type=command.type)
    return OutboxEntry(subject, encode_shortened_event(body), id=event_id)


def stored_command_subject(sn: str) -> str:
    """Return the subject under which nats-server stores commands of a device."""
    return f"$MQTT.msgs.{command_subject(sn)}"


def command_messages(command: Command, encoded: bytes | None = None) -> list[OutboxEntry]:
    """Return the messages to the device, for MQTT subscriptions of QoS 1 and QoS 0.

    nats-server delivers messages of its MQTT stream to subscriptions of QoS 1, also after a
    reconnect. All other subscriptions receive plain messages only (docs/decisions/0003).
    """
    subject = command_subject(command.sn)
    payload = (
        msgspec.json.encode(command.to_wire())
        if encoded is None
        else _encode_command(command, encoded)
    )
    plain = QOS_1_HEADER | hops_header(command.hops)
    return [
        OutboxEntry(stored_command_subject(command.sn), payload, headers=QOS_1_HEADER),
        OutboxEntry(subject, payload, stream=False, headers=plain),
    ]


def _encode_command(command: Command, payload: bytes) -> bytes:
    """Return `Command.to_wire` as JSON around a payload that is encoded already."""
    head = msgspec.json.encode({"commandId": command.id, "kind": command.kind})
    return b'%b,%b,"expiresAt":%d}' % (head[:-1], payload[1:-1], to_ms(command.expires_at))


def finished_event(command: Command) -> OutboxEntry:
    """Return the event `task.{id}.finished` or `service.{deviceId}.replied`."""
    event_id = f"f-{command.closed_by}" if command.closed_by else uuid4().hex
    common = _common_fields(command, event_id, command.finished_at or command.created_at)
    common["status"] = command.status
    body: ServiceReplied | TaskFinished
    if command.kind == "CALL_SERVICE":
        subject = service_event(command.tenant, command.thing_id, "replied")
        body = ServiceReplied(
            **common,
            service_id=command.service_id,
            outputs=command.outputs,
            error=command.error,
        )
    else:
        subject = task_event(command.tenant, command.id, "finished")
        body = TaskFinished(
            **common,
            type=command.type,
            err_code=error_code(command),
            err_msg=command.error or "",
            subcommand=subcommands(command),
        )
    return OutboxEntry(subject, encode_shortened_event(body), id=event_id)


def confirmed_properties_event(
    command: Command, properties: dict[str, Any], ts: int, event_id: str
) -> OutgoingMessage:
    """Return the event `device.{id}.reported` of properties that a device confirmed."""
    body = PropertiesReported(
        event_id=event_id,
        created_at=ts,
        tenant=command.tenant,
        device=command.profile,
        ts=ts,
        properties=properties,
    )
    subject = device_event(command.tenant, command.thing_id, "reported")
    headers = trace_header() | hops_header(command.hops)
    return OutgoingMessage(subject, encode_shortened_event(body), event_id, headers)
