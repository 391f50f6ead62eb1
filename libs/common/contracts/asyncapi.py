"""The AsyncAPI 3 document of the public events, generated from their structs.

`python -m libs.common.contracts.asyncapi > docs/reference/asyncapi.json` writes it. A unit test
fails when the file is outdated, or when a published subject or field is missing.
https://www.asyncapi.com/docs/reference/specification/v3.0.0
"""

import re
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from libs.common.bus.subjects import (
    alarm_event,
    auth_event,
    dead_uplink_subject,
    device_event,
    service_event,
    task_event,
    thing_event,
    workflow_event,
)
from libs.common.contracts import events
from libs.common.glossary import add_descriptions

CONTRACT_VERSION = "1.0.0"
"""Version of the contract; the first number rises with each incompatible change."""

_DESCRIPTION = (
    "Events on NATS; docs/reference/nats.md explains how to subscribe. "
    "Redelivery: a durable consumer receives each event at least once, and again until it is "
    "acknowledged; `eventId` identifies an event. A subscription without a consumer receives the "
    "events that are stored while it is connected, usually once. "
    "Order: not guaranteed. Under load, and while the operator changes the number of partitions, "
    "events may arrive later than newer ones of the same device: use `ts`."
)

_DESCRIPTION_BY_PARAMETER = {
    "tenant": "The tenant; `default` on a platform with one tenant",
    "deviceId": "The device's id, a number",
    "thingId": "The id of the thing of an integration or custom entity, a number",
    "taskId": "The task's id, a number",
    "flowId": "The flow's id, a number",
    "object": "`user`, `role`, `menu`, `application`, `tenant` or `session`",
    "action": "The change, such as `created`, `updated`, `deleted`",
    "sn": "The device's serial number",
}


@dataclass(frozen=True)
class Channel:
    """A subject and the event that is published on it."""

    address: str
    body: type[msgspec.Struct]
    summary: str

    @property
    def name(self) -> str:
        """Return the channel's key in the document: the constant tokens of its subject."""
        return ".".join(word for word in self.address.split(".") if not word.startswith("{"))


_TENANT = "{tenant}"
_DEVICE: Any = "{deviceId}"
_TASK: Any = "{taskId}"
"""Placeholders for the numbers in subjects."""
_device = partial(device_event, _TENANT, _DEVICE)
_service = partial(service_event, _TENANT, _DEVICE)
_task = partial(task_event, _TENANT, _TASK)
_alarm = partial(alarm_event, _TENANT, _DEVICE)

CHANNELS = (
    Channel(
        _device("added"),
        events.DeviceChanged,
        "A device was added, or assigned to an application",
    ),
    Channel(
        _device("updated"),
        events.DeviceChanged,
        "The device was changed or removed from its application",
    ),
    Channel(_device("deleted"), events.DeviceChanged, "The device was deleted"),
    Channel(
        _device("online"),
        events.DeviceConnection,
        "The device connected, or sent a request over HTTP",
    ),
    Channel(_device("offline"), events.DeviceConnection, "The device is disconnected or silent"),
    Channel(_device("reported"), events.PropertiesReported, "Values of a device were stored"),
    Channel(_device("rejected"), events.PropertiesRejected, "Values or messages were rejected"),
    Channel(
        _device("event"), events.DeviceEventReported, "The device reported an event of its TSL"
    ),
    Channel(
        thing_event("{tenant}", "{thingId}", "reported"),  # type: ignore[arg-type]
        events.PropertiesReported,
        "Values of an integration or a custom entity were stored; `device` describes that thing",
    ),
    Channel(
        thing_event("{tenant}", "{thingId}", "rejected"),  # type: ignore[arg-type]
        events.PropertiesRejected,
        "Values of an integration or a custom entity were rejected",
    ),
    Channel(_service("called"), events.ServiceCalled, "A service of a device was called"),
    Channel(
        _service("replied"), events.ServiceReplied, "The device answered, or the call timed out"
    ),
    Channel(_task("created"), events.TaskCreated, "A property update or a configuration started"),
    Channel(
        _task("finished"), events.TaskFinished, "A task ended; lists the result of each setting"
    ),
    Channel(
        _alarm("raised"), events.AlarmChanged, "A rule or a flow raised an alarm of the device"
    ),
    Channel(_alarm("cleared"), events.AlarmChanged, "A rule, a flow or a user cleared the alarm"),
    Channel(_alarm("claimed"), events.AlarmChanged, "A user claimed the alarm"),
    Channel(
        workflow_event("{tenant}", "{flowId}", "finished"),  # type: ignore[arg-type]
        events.WorkflowFinished,
        "A run of a flow succeeded or failed",
    ),
    Channel(
        auth_event("{tenant}", "{object}.{action}"),
        events.AccountChanged,
        "A user, role, menu, application, tenant or session was changed",
    ),
    Channel(
        dead_uplink_subject("{sn}"),
        events.Dead,
        "A message of a device was rejected; for operators",
    ),
)


def build_document() -> dict[str, Any]:
    """Return the complete document."""
    bodies = list(dict.fromkeys(channel.body for channel in CHANNELS))
    _, schemas = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    add_descriptions(schemas, vars(events).values())
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Thingway events",
            "version": CONTRACT_VERSION,
            "description": _DESCRIPTION,
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "channels": {channel.name: _describe_channel(channel) for channel in CHANNELS},
        "operations": {channel.name: _describe_operation(channel) for channel in CHANNELS},
        "components": {
            "messages": {body.__name__: _describe_message(body) for body in bodies},
            "schemas": schemas,
        },
    }


def _describe_channel(channel: Channel) -> dict[str, Any]:
    body = channel.body.__name__
    return {
        "address": channel.address,
        "description": channel.summary,
        "messages": {body: {"$ref": f"#/components/messages/{body}"}},
        "parameters": {
            name: {"description": _DESCRIPTION_BY_PARAMETER[name]}
            for name in re.findall(r"\{(\w+)\}", channel.address)
        },
    }


def _describe_operation(channel: Channel) -> dict[str, Any]:
    """Return the operation of a channel: Thingway sends, subscribers receive."""
    at = f"#/channels/{channel.name}"
    return {
        "action": "send",
        "channel": {"$ref": at},
        "summary": channel.summary,
        "messages": [{"$ref": f"{at}/messages/{channel.body.__name__}"}],
    }


def _describe_message(body: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        "name": body.__name__,
        "contentType": "application/json",
        "payload": {"$ref": f"#/components/schemas/{body.__name__}"},
    }


def render_document() -> bytes:
    """Return the document as formatted JSON."""
    return msgspec.json.format(msgspec.json.encode(build_document()), indent=2) + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(render_document())
