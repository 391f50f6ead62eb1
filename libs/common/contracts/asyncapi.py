"""The AsyncAPI 3 document of the public events, made from their structs.

`python -m libs.common.contracts.asyncapi > docs/reference/asyncapi.json`; a unit test fails
when the file is stale, and when a subject or field that was promised has gone.
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
    dead_uplink,
    device_event,
    service_event,
    task_event,
    thing_event,
    workflow_event,
)
from libs.common.contracts import events

VERSION = "1.0.0"
"""Of the contract: the first number rises when something promised goes or changes."""

_PARAMETERS = {
    "tenant": "The tenant; `default` on a platform of one",
    "deviceId": "The device's id, a number",
    "thingId": "The id of an integration's own thing or of a custom entity, a number",
    "taskId": "The task's id, a number",
    "flowId": "The flow's id, a number",
    "object": "`user`, `role`, `menu`, `application`, `tenant` or `session`",
    "action": "What was done to it, such as `created`, `updated`, `deleted`",
    "sn": "The device's serial number",
}


@dataclass(frozen=True)
class Channel:
    """One subject and what is said there."""

    address: str
    body: type[msgspec.Struct]
    summary: str

    @property
    def name(self) -> str:
        """The channel's key in the document: the fixed words of its subject."""
        return ".".join(word for word in self.address.split(".") if not word.startswith("{"))


_TENANT = "{tenant}"
_DEVICE: Any = "{deviceId}"
_TASK: Any = "{taskId}"
"""In the place of numbers, which subjects have there."""
_device = partial(device_event, _TENANT, _DEVICE)
_service = partial(service_event, _TENANT, _DEVICE)
_task = partial(task_event, _TENANT, _TASK)
_alarm = partial(alarm_event, _TENANT, _DEVICE)

CHANNELS = (
    Channel(_device("added"), events.DeviceChanged, "A device was added to an application"),
    Channel(_device("updated"), events.DeviceChanged, "It was changed, or left its application"),
    Channel(_device("deleted"), events.DeviceChanged, "It was deleted"),
    Channel(_device("online"), events.DeviceConnection, "It connected, or was heard over HTTP"),
    Channel(_device("offline"), events.DeviceConnection, "It is no longer connected or heard"),
    Channel(_device("reported"), events.PropertiesReported, "Values that were stored"),
    Channel(_device("rejected"), events.PropertiesRejected, "Values or messages refused, and why"),
    Channel(_device("event"), events.DeviceEventReported, "An event of the device's TSL"),
    Channel(
        thing_event("{tenant}", "{thingId}", "reported"),  # type: ignore[arg-type]
        events.PropertiesReported,
        "Values of an integration's own or of a custom entity; the `device` is that thing",
    ),
    Channel(
        thing_event("{tenant}", "{thingId}", "rejected"),  # type: ignore[arg-type]
        events.PropertiesRejected,
        "Values of them that were refused, and why",
    ),
    Channel(_service("called"), events.ServiceCalled, "A service of a device was called"),
    Channel(_service("replied"), events.ServiceReplied, "The device answered, or its time ended"),
    Channel(_task("created"), events.TaskCreated, "A configuration or property update was asked"),
    Channel(_task("finished"), events.TaskFinished, "It ended, with the outcome of each setting"),
    Channel(_alarm("raised"), events.AlarmChanged, "A rule has raised an alarm of the device"),
    Channel(_alarm("cleared"), events.AlarmChanged, "It is over, by the rule or by hand"),
    Channel(_alarm("claimed"), events.AlarmChanged, "Somebody looks at it"),
    Channel(
        workflow_event("{tenant}", "{flowId}", "finished"),  # type: ignore[arg-type]
        events.WorkflowFinished,
        "A run of a flow has ended, well or not",
    ),
    Channel(
        auth_event("{tenant}", "{object}.{action}"),
        events.AccountChanged,
        "A user, role, menu, application or session was changed",
    ),
    Channel(dead_uplink("{sn}"), events.Dead, "A refused message; for the platform's operators"),
)


def document() -> dict[str, Any]:
    """The whole document."""
    bodies = list(dict.fromkeys(channel.body for channel in CHANNELS))
    _, schemas = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Thingway events",
            "version": VERSION,
            "description": "Events that Thingway publishes on NATS. "
            "docs/reference/nats.md describes how to subscribe.",
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "channels": {channel.name: _channel(channel) for channel in CHANNELS},
        "operations": {channel.name: _operation(channel) for channel in CHANNELS},
        "components": {
            "messages": {body.__name__: _message(body) for body in bodies},
            "schemas": schemas,
        },
    }


def _channel(channel: Channel) -> dict[str, Any]:
    body = channel.body.__name__
    return {
        "address": channel.address,
        "description": channel.summary,
        "messages": {body: {"$ref": f"#/components/messages/{body}"}},
        "parameters": {
            name: {"description": _PARAMETERS[name]}
            for name in re.findall(r"\{(\w+)\}", channel.address)
        },
    }


def _operation(channel: Channel) -> dict[str, Any]:
    """Thingway sends; whoever listens receives."""
    at = f"#/channels/{channel.name}"
    return {
        "action": "send",
        "channel": {"$ref": at},
        "summary": channel.summary,
        "messages": [{"$ref": f"{at}/messages/{channel.body.__name__}"}],
    }


def _message(body: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        "name": body.__name__,
        "contentType": "application/json",
        "payload": {"$ref": f"#/components/schemas/{body.__name__}"},
    }


def render() -> bytes:
    """The document as the file has it."""
    return msgspec.json.format(msgspec.json.encode(document()), indent=2) + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(render())
