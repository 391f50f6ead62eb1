"""What commands say on the bus."""

from typing import Any
from uuid import uuid4

import msgspec

from libs.common.bus import OutboxEntry
from libs.common.bus.fitting import fitted
from libs.common.bus.hops import hops_header
from libs.common.bus.subjects import device_event, down_command, service_event, task_event
from libs.common.clock import to_ms
from libs.common.contracts.events import (
    PropertiesReported,
    ServiceCalled,
    ServiceReplied,
    Subcommand,
    TaskCreated,
    TaskFinished,
)
from services.device.commands.model import Command

QOS_1 = {"Nmqtt-Pub": "1"}
"""How nats-server marks an MQTT message of QoS 1."""

ERROR_CODES = {"SUCCESS": "", "FAILED": "device_refused", "TIMEOUT": "device_did_not_answer"}


def error_code(command: Command) -> str:
    """Why a command ended, empty where nothing went wrong."""
    return command.error_code or ERROR_CODES.get(command.status, "")


def _ms(command: Command) -> int:
    return to_ms(command.finished_at or command.created_at)


def subcommands(command: Command) -> list[Subcommand]:
    """The settings of a command, each with the command's state; write-only ones have no value."""
    return [Subcommand(key, command.status, value) for key, value in command.shown_settings()]


def _header(command: Command) -> dict[str, Any]:
    """What the events of a command begin with."""
    return {
        "event_id": uuid4().hex,
        "created_at": _ms(command),
        "tenant": command.tenant,
        "device": command.profile,
        "task_id": command.id,
    }


def created(command: Command, payload: bytes | None = None) -> list[OutboxEntry]:
    """`task.{id}.created` or `service.{deviceId}.called`, and the command, unless it is carried.

    `payload` is the whole one as JSON, when it has been encoded already.
    """
    header = _header(command)
    body: ServiceCalled | TaskCreated
    if command.kind == "CALL_SERVICE":
        subject = service_event(command.tenant, command.thing_id, "called")
        inputs = command.payload["inputs"]
        body = ServiceCalled(**header, service_id=command.service_id, inputs=inputs)
    else:
        subject = task_event(command.tenant, command.id, "created")
        body = TaskCreated(**header, type=command.type)
    said = [] if command.carrier else to_device(command, payload)
    if command.write_only and command.status == "PENDING":
        said = said[1:]  # nothing secret waits in nats-server: it is sent when the device connects
    return [OutboxEntry(subject, fitted(body)), *said]


def stored_down(sn: str) -> str:
    """The subject on which nats-server keeps the commands of a device."""
    return f"$MQTT.msgs.{down_command(sn)}"


def outbox_key(command: Command) -> str:
    """By which the outbox finds what goes to the device of a command with write-only values."""
    return f"command-{command.id}" if command.write_only else ""


def to_device(command: Command, encoded: bytes | None = None) -> list[OutboxEntry]:
    """The command, twice: kept for MQTT subscriptions of QoS 1, plainly for all others.

    nats-server gives an MQTT client of QoS 1 only what stands in its message stream, also
    when it was away, and everybody else only the plain copy (docs/decisions/0003).
    """
    subject = down_command(command.sn)
    payload = msgspec.json.encode(command.wire()) if encoded is None else _wire(command, encoded)
    plain = QOS_1 | hops_header(command.hops)
    return [
        OutboxEntry(stored_down(command.sn), payload, headers=QOS_1, key=outbox_key(command)),
        OutboxEntry(subject, payload, stream=False, headers=plain, key=outbox_key(command)),
    ]


def _wire(command: Command, payload: bytes) -> bytes:
    """Return `Command.wire` as JSON, with a payload that is JSON already."""
    head = msgspec.json.encode({"commandId": command.id, "kind": command.kind})
    return b'%b,%b,"expiresAt":%d}' % (head[:-1], payload[1:-1], to_ms(command.expires_at))


def finished(command: Command) -> OutboxEntry:
    """`task.{id}.finished` or `service.{deviceId}.replied`."""
    header = _header(command) | {"status": command.status}
    body: ServiceReplied | TaskFinished
    if command.kind == "CALL_SERVICE":
        subject = service_event(command.tenant, command.thing_id, "replied")
        body = ServiceReplied(
            **header,
            service_id=command.service_id,
            outputs=command.outputs,
            error=command.error,
        )
    else:
        subject = task_event(command.tenant, command.id, "finished")
        body = TaskFinished(
            **header,
            type=command.type,
            err_code=error_code(command),
            err_msg=command.error or "",
            subcommand=subcommands(command),
        )
    return OutboxEntry(subject, fitted(body))


def confirmed(command: Command, properties: dict[str, Any], ts: int, event_id: str) -> OutboxEntry:
    """`device.{id}.reported`: the device says that these properties are in force now."""
    body = PropertiesReported(
        event_id=event_id,
        created_at=ts,
        tenant=command.tenant,
        device=command.profile,
        ts=ts,
        properties=properties,
    )
    subject = device_event(command.tenant, command.thing_id, "reported")
    headers = hops_header(command.hops)
    return OutboxEntry(subject, fitted(body), headers=headers)
