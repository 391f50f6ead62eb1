"""Requests between `workflow` and `device`: services and alarms of flows.

A flow that begins with a trigger is a service that users and other flows call: the SERVICE entity
`system.integration.{flow id}` with an input for each value of the trigger.
"""

from typing import Any, Literal

import msgspec

PUT_FLOW_SERVICE = "rpc.device.put_flow_service"
REMOVE_FLOW_SERVICE = "rpc.device.remove_flow_service"
CALL_FLOW = "rpc.workflow.call_flow"

InputType = Literal["STRING", "LONG", "DOUBLE", "BOOLEAN"]


class FlowInput(msgspec.Struct):
    """An input of the service."""

    identifier: str
    name: str
    type: InputType


class PutFlowService(msgspec.Struct, rename="camel", kw_only=True):
    """`put_flow_service`: create or update the service of a flow."""

    tenant: str
    flow_id: int
    name: str
    description: str = ""
    inputs: list[FlowInput] = []


class RemoveFlowService(msgspec.Struct, rename="camel"):
    """`remove_flow_service`: the flow was deleted, or no longer begins with a trigger."""

    tenant: str
    flow_id: int


class FlowServiceAnswer(msgspec.Struct):
    """Empty answer of `put_flow_service` and `remove_flow_service`."""


class CallFlow(msgspec.Struct, rename="camel", kw_only=True):
    """`call_flow`: run a flow."""

    tenant: str
    flow_id: int
    inputs: dict[str, Any]
    """Values by the identifier of their input."""
    user_id: int | None = None
    """The user who calls."""
    hops: int = 0
    """Number of flows that led to the call."""
    seconds: float
    """Seconds for which the caller waits; the run continues if it takes longer."""


class FlowOutputs(msgspec.Struct):
    """Answer of `call_flow`: the last output of the run, if it is a map."""

    outputs: dict[str, Any] = {}


CHANGE_ALARM = "rpc.device.change_alarm"

Severity = Literal["CRITICAL", "MAJOR", "MINOR", "WARNING", "INFO"]
LONGEST_KEY, LONGEST_CONTENT = 128, 255
"""Maximum characters of a key and of a content."""


class ChangeAlarm(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`change_alarm`: a flow raises or clears the alarm `key` of a device."""

    tenant: str
    flow_id: int | None
    """None for a test of a flow that is not saved."""
    step: str
    """Identifies a node of a run: a second request of the same step changes nothing."""
    entity: str
    """Key of an entity of the device."""
    key: str
    raised: bool
    """False clears the alarm."""
    severity: Severity = "MAJOR"
    content: str = ""
    hops: int = 0
    """Hops of the messages that the alarm causes (`libs.common.bus.hops`)."""
    dry_run: bool = False
    """Validate the request without changing an alarm."""


class ChangeAlarmAnswer(msgspec.Struct, rename="camel", omit_defaults=True):
    """Answer of `change_alarm`."""

    alarm_id: int | None = None
    """The alarm that is open or that this step cleared; None if no alarm was open, or in a dry
    run."""
    changed: bool = False
    """Whether this step raised or cleared the alarm."""
