"""The events of `event.{tenant}.…`: a public contract, published as AsyncAPI.

Each carries its own id (`eventId`; a reader drops a second copy), the time it was
created (`createdAt`, ms) and the device it is about. `docs/reference/nats.md` is made from these.
"""

from typing import Any, Literal

import msgspec

Connect = Literal["ONLINE", "OFFLINE", "DISCONNECT"]
AlarmChange = Literal["raised", "cleared", "claimed"]
TaskStatus = Literal["PENDING", "SENT", "SUCCESS", "FAILED", "TIMEOUT"]


class DeviceProfile(msgspec.Struct, rename="camel", omit_defaults=True):
    """The device an event is about."""

    device_id: int
    sn: str
    name: str = ""
    model: str = ""
    dev_eui: str | None = msgspec.field(default=None, name="devEUI")
    application_id: int | None = None
    thing_key: str = ""
    """`{integration}.device.{identifier}`, the key that entity keys begin with."""
    group_id: int | None = None
    """The group that it is in."""


class Event(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """What all events have."""

    event_id: str
    created_at: int
    tenant: str
    device: DeviceProfile
    omitted: list[str] = []
    """What was left out because the event would have had more than 512 KiB: `properties.log`."""


class DeviceChanged(Event, kw_only=True):
    """`device.{id}.(added|updated|deleted)`."""

    change: Literal["added", "updated", "deleted", "removed"]


class DeviceConnection(Event, kw_only=True):
    """`device.{id}.(online|offline)`."""

    connect_status: Connect


class PropertiesReported(Event, kw_only=True):
    """`device.{id}.reported`: values as they were stored; `ts` in ms is the measuring time."""

    ts: int
    properties: dict[str, Any]


class Fault(msgspec.Struct, rename="camel", omit_defaults=True):
    """One refused value and why."""

    path: str
    reason: str
    value: bool | int | float | str | None = None
    """What was refused, when it is a number, a Boolean or a text; of a text its beginning."""


class PropertiesRejected(Event, kw_only=True):
    """`device.{id}.rejected`: what of a report was refused."""

    ts: int
    faults: list[Fault]
    whole: bool = False
    """Whether nothing of the message was stored: then it is in `DEAD`, too."""


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
    """`service.{deviceId}.replied`: also when nobody answered in time (`TIMEOUT`)."""

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
    """One setting of a task and what became of it."""

    key: str
    status: TaskStatus
    value: Any = None


class TaskFinished(Event, kw_only=True):
    """`task.{taskId}.finished`, with the outcome of each setting."""

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
    """The rule that has raised it."""
    flow_id: int | None = None
    """The flow that has raised it."""
    severity: str
    """`CRITICAL`, `MAJOR`, `MINOR`, `WARNING` or `INFO`."""
    content: str
    """The name of the rule when it was raised, or what the flow says."""
    value: Any = None
    """What raised it; absent for a silence and for a flow."""
    raised_at: int
    cleared_at: int | None = None
    cleared_by: str | None = None
    """`RULE`, `FLOW`, or the id of the user."""
    claimed_at: int | None = None
    claimed_by: str | None = None
    """Id of the user."""
    note: str | None = None


class Actor(msgspec.Struct, rename="camel", omit_defaults=True):
    """Who made a change: a user, an application, or the operator (user `0`)."""

    kind: str
    id: str
    name: str = ""


class ChangedObject(msgspec.Struct, rename="camel", omit_defaults=True):
    """What was changed: `user`, `role`, `menu`, `application`, `tenant`, `session`."""

    type: str
    id: str
    name: str = ""


class AccountChanged(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`auth.{object}.{action}`: a change of accounts, as the audit log has it; no secrets."""

    event_id: str
    created_at: int
    tenant: str
    actor: Actor
    action: str
    object: ChangedObject
    address: str = ""
    """Where the request came from."""
    request_id: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    omitted: list[str] = []
    """What was left out because the event would have had more than 512 KiB."""


class WorkflowFinished(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`workflow.{flowId}.finished`: a run of a flow has ended."""

    event_id: str
    created_at: int
    tenant: str
    flow_id: int
    run_id: int
    """Id of its entry in the flow's log."""
    version: int
    """Of the design that ran."""
    status: Literal["SUCCESS", "ERROR"]
    started_at: int
    """ms."""
    time_cost: int
    """ms."""
    error: str = ""
    """Why it failed."""
    omitted: list[str] = []
    """`error` where its end was left out, because the event would have had more than 512 KiB."""


class Dead(msgspec.Struct, rename="camel", omit_defaults=True):
    """`dead.uplink.{sn}`: what a device said and was refused whole."""

    reason: str
    subject: str
    sequence: int
    received_at: int
    payload: str
    """At most 64 KiB of the message: as text, or as `base64` when it is not UTF-8 or JSON
    would take more than twice as much for the text."""
    base64: bool = False
    truncated: bool = False
    faults: list[Fault] = []
    """What was wrong with which values, where the TSL says it."""
