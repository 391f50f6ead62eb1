"""What `workflow` and `device` ask of each other: services and alarms of flows.

A flow that begins with a trigger is a service that people and other flows call: the SERVICE
entity `system.integration.{flow id}` with an input for each value that the trigger takes.
"""

from typing import Any, Literal

import msgspec

PUT = "rpc.device.put_flow_service"
REMOVE = "rpc.device.remove_flow_service"
CALL = "rpc.workflow.call_flow"

InputType = Literal["STRING", "LONG", "DOUBLE", "BOOLEAN"]


class FlowInput(msgspec.Struct):
    """One input of the service."""

    identifier: str
    name: str
    type: InputType


class PutFlowService(msgspec.Struct, rename="camel", kw_only=True):
    """`put_flow_service`: the flow's service is to be like this, whether it is there or not."""

    tenant: str
    flow_id: int
    name: str
    description: str = ""
    inputs: list[FlowInput] = []


class RemoveFlowService(msgspec.Struct, rename="camel"):
    """`remove_flow_service`: the flow is gone, or begins with something else."""

    tenant: str
    flow_id: int


class Settled(msgspec.Struct):
    """Answer of both."""


class CallFlow(msgspec.Struct, rename="camel", kw_only=True):
    """`call_flow`: run a flow."""

    tenant: str
    flow_id: int
    inputs: dict[str, Any]
    """By the identifier of the input."""
    user_id: int | None = None
    """Who calls."""
    hops: int = 0
    """How many flows have led to the call."""
    seconds: float
    """How long the caller waits; the run goes on when it takes longer."""


class FlowOutputs(msgspec.Struct):
    """Answer of `call_flow`: the last output of the run, when it is a map."""

    outputs: dict[str, Any] = {}


CHANGE_ALARM = "rpc.device.change_alarm"

Severity = Literal["CRITICAL", "MAJOR", "MINOR", "WARNING", "INFO"]
LONGEST_KEY, LONGEST_CONTENT = 128, 255
"""Characters."""


class ChangeAlarm(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`change_alarm`: a flow raises or clears the alarm of a device that it calls `key`."""

    tenant: str
    flow_id: int | None
    """None: a test of a flow that is not saved."""
    step: str
    """Which node of which run it is: a second question of the same step changes nothing."""
    entity: str
    """Key of an entity of the device."""
    key: str
    raised: bool
    """False: it is over."""
    severity: Severity = "MAJOR"
    content: str = ""
    hops: int = 0
    """Of what the alarm leads to (`libs.common.bus.hops`)."""
    dry_run: bool = False
    """Judge it and change nothing."""


class ChangedAlarm(msgspec.Struct, rename="camel", omit_defaults=True):
    """Answer of `change_alarm`."""

    alarm_id: int | None = None
    """The alarm that is open, or that was cleared; None where there is none."""
    changed: bool = False
    """Whether this step raised or cleared it."""
