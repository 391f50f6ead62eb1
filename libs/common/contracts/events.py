"""The events of `event.{tenant}.…`: a public contract, published as AsyncAPI.

Each event has its own id (`eventId`; readers drop duplicates) and the time of its creation
(`createdAt`, ms). `Dead` has neither: it describes a rejected message in the stream `DEAD`.
`docs/reference/asyncapi.json` is generated from these structs.
"""

from typing import Any, Literal

import msgspec

ConnectStatus = Literal["ONLINE", "OFFLINE", "DISCONNECT"]
"""`DISCONNECT` until the device first connects."""
AlarmChange = Literal["raised", "cleared", "claimed"]
TaskStatus = Literal["PENDING", "SENT", "SUCCESS", "FAILED", "TIMEOUT"]


class DeviceProfile(msgspec.Struct, rename="camel", omit_defaults=True):
    """The device, integration or custom entity that an event is about."""

    device_id: int
    sn: str
    name: str = ""
    """Name of the device. Absent for an integration or a custom entity."""
    model: str = ""
    """Model of the product. Absent for an integration or a custom entity."""
    dev_eui: str | None = msgspec.field(default=None, name="devEUI")
    application_id: int | None = None
    """Id of the application that the device belongs to, if any."""
    thing_key: str = ""
    """Prefix of the entity keys: `{integration}.device.{identifier}` for a device,
    `{integration}.integration` for an integration, `system.integration` for a custom entity."""
    group_id: int | None = None
    """Id of the device group, if any."""


class Event(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The common fields of events about a device, an integration or a custom entity."""

    event_id: str
    """Id of the event. A redelivered event has the same id."""
    created_at: int
    """Time at which the event was created, in milliseconds since 1970-01-01 UTC."""
    tenant: str
    device: DeviceProfile
    """Device, integration or custom entity that the event is about."""
    omitted: list[str] = []
    """Omitted parts, such as `properties.log`, because the event would exceed 512 KiB."""


class DeviceChanged(Event, kw_only=True):
    """A device was added, changed or deleted: `device.{id}.(added|updated|deleted)`."""

    change: Literal["added", "updated", "deleted", "removed"]
    """Kind of change. `removed`: the device was removed from its application."""


class DeviceConnection(Event, kw_only=True):
    """A device connected or disconnected: `device.{id}.(online|offline)`."""

    connect_status: ConnectStatus


class PropertiesReported(Event, kw_only=True):
    """`(device|thing).{id}.reported`: stored values of a device, integration or custom entity."""

    ts: int
    """Time of measurement in milliseconds since 1970-01-01 UTC."""
    properties: dict[str, Any]
    """Stored values by property key, for example `{"temperature": 21.5}`."""


class Fault(msgspec.Struct, rename="camel", omit_defaults=True):
    """A rejected value and the reason."""

    path: str
    """Path of the value, for example `properties.reporting_interval.time`."""
    reason: str
    """Reason in English."""
    value: bool | int | float | str | None = None
    """Rejected value if it is a number or a Boolean, or the beginning of a rejected text."""


class PropertiesRejected(Event, kw_only=True):
    """`(device|thing).{id}.rejected`: the rejected values of a report."""

    ts: int
    """Time of measurement in milliseconds since 1970-01-01 UTC, or of arrival if the complete
    message was rejected."""
    faults: list[Fault]
    """First rejected values with the reasons, at most 100, and as many as fit. If some are omitted,
    a further entry with an empty path has their number as its reason."""
    whole: bool = False
    """Whether the complete message was rejected; then a `Dead` event has it, too."""


class DeviceEventReported(Event, kw_only=True):
    """`device.{id}.event`: an event of the device's TSL."""

    ts: int
    """Time of the event in milliseconds since 1970-01-01 UTC."""
    tsl_id: str
    """Id of the event in the TSL."""
    event_type: str
    """Type of the event in the TSL: `INFO`, `WARN` or `ERROR`."""
    outputs: dict[str, Any]


class ServiceCalled(Event, kw_only=True):
    """A service call started: `service.{deviceId}.called`."""

    task_id: int
    """Id of the service call."""
    service_id: str
    """Id of the service in the TSL, for example `reboot`."""
    inputs: dict[str, Any]


class ServiceReplied(Event, kw_only=True):
    """`service.{deviceId}.replied`: an answer, or its absence (`TIMEOUT`)."""

    task_id: int
    """Id of the service call."""
    service_id: str
    """Id of the service in the TSL, for example `reboot`."""
    status: TaskStatus
    """Result of the call: `SUCCESS`, `FAILED` or `TIMEOUT`."""
    outputs: dict[str, Any] | None = None
    error: str | None = None
    """Reason of the failure."""


class TaskCreated(Event, kw_only=True):
    """A property update or configuration started: `task.{taskId}.created`."""

    task_id: int
    type: str
    """Type of the task: `CONFIG` for properties and configurations."""


class Subcommand(msgspec.Struct, rename="camel", omit_defaults=True):
    """A setting of a task and its result."""

    key: str
    """Key of the setting, for example `reporting_interval`."""
    status: TaskStatus
    """Result of the setting: `SUCCESS`, `FAILED` or `TIMEOUT`."""
    value: Any = None
    """Value of the setting."""


class TaskFinished(Event, kw_only=True):
    """`task.{taskId}.finished`, with the result of each setting."""

    task_id: int
    type: str
    """Type of the task: `CONFIG` for properties and configurations."""
    status: TaskStatus
    """Result of the task: `SUCCESS`, `FAILED` or `TIMEOUT`."""
    err_code: str = ""
    err_msg: str = ""
    subcommand: list[Subcommand] = msgspec.field(default_factory=list)
    """Settings of the task with their results."""


class AlarmChanged(Event, kw_only=True):
    """`alarm.{deviceId}.(raised|cleared|claimed)`: a change of an alarm."""

    change: AlarmChange
    """Kind of change."""
    alarm_id: int
    """Id of the alarm."""
    rule_id: int | None = None
    """Id of the rule that raised the alarm."""
    flow_id: int | None = None
    """Id of the flow that raised the alarm."""
    severity: str
    """`CRITICAL`, `MAJOR`, `MINOR`, `WARNING` or `INFO`."""
    content: str
    """Name of the rule when the alarm was raised, or the text of the flow."""
    value: Any = None
    """Value that raised the alarm. Absent for a silent device and for a flow."""
    raised_at: int
    """Time at which the alarm was raised, in milliseconds since 1970-01-01 UTC."""
    cleared_at: int | None = None
    """Time at which the alarm was cleared, in milliseconds since 1970-01-01 UTC."""
    cleared_by: str | None = None
    """`RULE`, `FLOW`, or the id of the user who cleared the alarm."""
    claimed_at: int | None = None
    """Time at which a user claimed the alarm, in milliseconds since 1970-01-01 UTC."""
    claimed_by: str | None = None
    """Id of the user who claimed the alarm."""
    note: str | None = None
    """Note of the user who claimed or cleared the alarm."""


class Actor(msgspec.Struct, rename="camel", omit_defaults=True):
    """The author of a change: a user, an application, or the operator (user `0`)."""

    kind: str
    """`user` or `application`."""
    id: str
    """Id of the user or application."""
    name: str = ""
    """Email address of the user, or name of the application."""


class ChangedObject(msgspec.Struct, rename="camel", omit_defaults=True):
    """The changed object: `user`, `role`, `menu`, `application`, `tenant`, `session`."""

    type: str
    """Type of the object, for example `role`."""
    id: str
    """Id of the object."""
    name: str = ""
    """Name of the object, for a user the email address."""


class AccountChanged(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`auth.{object}.{action}`: a change of accounts, as in the audit log, without secrets."""

    event_id: str
    """Id of the event. A redelivered event has the same id."""
    created_at: int
    """Time of the change in milliseconds since 1970-01-01 UTC."""
    tenant: str
    actor: Actor
    """User, application or operator that made the change."""
    action: str
    """Change, for example `created` or `password_changed`."""
    object: ChangedObject
    """Changed object."""
    address: str = ""
    """IP address of the request."""
    request_id: str = ""
    before: dict[str, Any] | None = None
    """Changed fields with their old values. Secrets are hidden."""
    after: dict[str, Any] | None = None
    """Changed fields with their new values. Secrets are hidden."""
    omitted: list[str] = []
    """Omitted parts, because the event would exceed 512 KiB."""


class WorkflowFinished(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`workflow.{flowId}.finished`: a run of a flow has ended."""

    event_id: str
    """Id of the event. A redelivered event has the same id."""
    created_at: int
    """Time at which the event was created, in milliseconds since 1970-01-01 UTC."""
    tenant: str
    flow_id: int
    run_id: int
    """Id of the run in the flow's log."""
    version: int
    """Version of the flow that ran."""
    status: Literal["SUCCESS", "ERROR"]
    """Result of the run."""
    started_at: int
    """Start of the run in milliseconds since 1970-01-01 UTC."""
    time_cost: int
    """Duration of the run in milliseconds."""
    error: str = ""
    """Reason of the failure."""
    omitted: list[str] = []
    """`error` if its end was omitted, because the event would exceed 512 KiB."""


class Dead(msgspec.Struct, rename="camel", omit_defaults=True):
    """`dead.uplink.{sn}`: a rejected message of a device."""

    reason: str
    """Reason in English."""
    subject: str
    """NATS subject of the message."""
    sequence: int
    """Sequence number of the message in its stream."""
    received_at: int
    """Time of arrival in milliseconds since 1970-01-01 UTC."""
    payload: str
    """At most 64 KiB of the message: as text, or as `base64` when it is not UTF-8 or when JSON
    would more than double the size of the text."""
    base64: bool = False
    """Whether `payload` is Base64."""
    truncated: bool = False
    """Whether the message was longer than `payload`."""
    faults: list[Fault] = []
    """Rejected values, if the TSL rejects them."""
