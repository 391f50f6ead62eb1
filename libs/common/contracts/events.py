"""The events of `event.{tenant}.…`: a public contract, published as AsyncAPI.

Each event has its own id (`eventId`; readers drop duplicates), the time of its creation
(`createdAt`, ms) and a device. `docs/reference/asyncapi.json` is generated from these structs.
"""

from typing import Any, Literal

import msgspec

Connect = Literal["ONLINE", "OFFLINE", "DISCONNECT"]
AlarmChange = Literal["raised", "cleared", "claimed"]
TaskStatus = Literal["PENDING", "SENT", "SUCCESS", "FAILED", "TIMEOUT"]


class DeviceProfile(msgspec.Struct, rename="camel", omit_defaults=True):
    """The device of an event."""

    device_id: int
    sn: str
    name: str = ""
    model: str = ""
    dev_eui: str | None = msgspec.field(default=None, name="devEUI")
    application_id: int | None = None
    thing_key: str = ""
    """`{integration}.device.{identifier}`, the prefix of its entity keys."""
    group_id: int | None = None
    """The group of the device."""


class Event(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The fields of all events."""

    event_id: str
    created_at: int
    tenant: str
    device: DeviceProfile
    omitted: list[str] = []
    """Omitted parts, such as `properties.log`, because the event would exceed 512 KiB."""


class DeviceChanged(Event, kw_only=True):
    """`device.{id}.(added|updated|deleted)`."""

    change: Literal["added", "updated", "deleted", "removed"]


class DeviceConnection(Event, kw_only=True):
    """`device.{id}.(online|offline)`."""

    connect_status: Connect


class PropertiesReported(Event, kw_only=True):
    """`device.{id}.reported`: stored values; `ts` is the time of measurement, ms."""

    ts: int
    properties: dict[str, Any]


class Fault(msgspec.Struct, rename="camel", omit_defaults=True):
    """A rejected value and the reason."""

    path: str
    """Path of the value, for example `properties.reporting_interval.time`."""
    reason: str
    value: bool | int | float | str | None = None
    """The rejected value if it is a number, a Boolean or a text; the beginning of a text."""


class PropertiesRejected(Event, kw_only=True):
    """`device.{id}.rejected`: the rejected values of a report."""

    ts: int
    faults: list[Fault]
    whole: bool = False
    """Whether the complete message was rejected; then `DEAD` has it too."""


class DeviceEventReported(Event, kw_only=True):
    """`device.{id}.event`: an event of the device's TSL."""

    ts: int
    tsl_id: str
    """The event's id in the TSL."""
    event_type: str
    outputs: dict[str, Any]


class ServiceCalled(Event, kw_only=True):
    """`service.{deviceId}.called`."""

    task_id: int
    service_id: str
    inputs: dict[str, Any]


class ServiceReplied(Event, kw_only=True):
    """`service.{deviceId}.replied`: an answer, or its absence (`TIMEOUT`)."""

    task_id: int
    service_id: str
    status: TaskStatus
    outputs: dict[str, Any] | None = None
    error: str | None = None


class TaskCreated(Event, kw_only=True):
    """`task.{taskId}.created`."""

    task_id: int
    type: str


class Subcommand(msgspec.Struct, rename="camel", omit_defaults=True):
    """A setting of a task and its result."""

    key: str
    """Key of the setting, for example `reporting_interval`."""
    status: TaskStatus
    value: Any = None
    """Value of the setting."""


class TaskFinished(Event, kw_only=True):
    """`task.{taskId}.finished`, with the result of each setting."""

    task_id: int
    type: str
    status: TaskStatus
    err_code: str = ""
    err_msg: str = ""
    subcommand: list[Subcommand] = msgspec.field(default_factory=list)


class AlarmChanged(Event, kw_only=True):
    """`alarm.{deviceId}.(raised|cleared|claimed)`; times in ms."""

    change: AlarmChange
    alarm_id: int
    rule_id: int | None = None
    """The rule that raised it."""
    flow_id: int | None = None
    """The flow that raised it."""
    severity: str
    """`CRITICAL`, `MAJOR`, `MINOR`, `WARNING` or `INFO`."""
    content: str
    """The name of the rule when it was raised, or the text of the flow."""
    value: Any = None
    """The value that raised it; absent for a silent device and for a flow."""
    raised_at: int
    cleared_at: int | None = None
    cleared_by: str | None = None
    """`RULE`, `FLOW`, or the id of the user."""
    claimed_at: int | None = None
    claimed_by: str | None = None
    """Id of the user."""
    note: str | None = None


class Actor(msgspec.Struct, rename="camel", omit_defaults=True):
    """The author of a change: a user, an application, or the operator (user `0`)."""

    kind: str
    id: str
    name: str = ""


class ChangedObject(msgspec.Struct, rename="camel", omit_defaults=True):
    """The changed object: `user`, `role`, `menu`, `application`, `tenant`, `session`."""

    type: str
    id: str
    name: str = ""


class AccountChanged(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`auth.{object}.{action}`: a change of accounts, as in the audit log, without secrets."""

    event_id: str
    created_at: int
    tenant: str
    actor: Actor
    action: str
    object: ChangedObject
    address: str = ""
    """The IP address of the request."""
    request_id: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    omitted: list[str] = []
    """Omitted parts, because the event would exceed 512 KiB."""


class WorkflowFinished(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`workflow.{flowId}.finished`: a run of a flow has ended."""

    event_id: str
    created_at: int
    tenant: str
    flow_id: int
    run_id: int
    """Id of the run in the flow's log."""
    version: int
    """Version of the flow that ran."""
    status: Literal["SUCCESS", "ERROR"]
    started_at: int
    """ms."""
    time_cost: int
    """ms."""
    error: str = ""
    """The reason of a failure."""
    omitted: list[str] = []
    """`error` if its end was omitted, because the event would exceed 512 KiB."""


class Dead(msgspec.Struct, rename="camel", omit_defaults=True):
    """`dead.uplink.{sn}`: a rejected message of a device."""

    reason: str
    subject: str
    sequence: int
    received_at: int
    payload: str
    """At most 64 KiB of the message: as text, or as `base64` when it is not UTF-8 or when JSON
    would more than double the size of the text."""
    base64: bool = False
    truncated: bool = False
    faults: list[Fault] = []
    """The rejected values, if the TSL rejects them."""
