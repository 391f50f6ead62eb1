"""Runs and their traces, shared by the engine and the log. No I/O."""

from typing import Any, Literal, NamedTuple

import msgspec

RunStatus = Literal["RUNNING", "SUCCESS", "ERROR"]
CauseKind = Literal["EVENT", "TIMER", "SERVICE", "HTTP", "MQTT", "TEST", "BREAKER", "LIMIT"]
MAX_HOPS = 8
"""Maximum flows that start one another; the next one is recorded as an error."""


RunIdentity = tuple[int, str]
"""Flow and key of the cause, which are unique together."""


class FlowOwner(NamedTuple):
    """Tenant and flow: lane and sub-lane of `libs.common.scheduling`."""

    tenant: str
    flow_id: int
    """0 for a tested design."""


class Cause(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The cause of a run."""

    kind: CauseKind
    key: str
    """Idempotency key, such as an event's id or a timer's due time. A flow runs once per key."""
    hops: int = 0
    """Number of flows that led here (header `Thingway-Hops` of the message)."""
    trace: str = ""
    """The `traceparent` of the cause; empty if its trace is not recorded."""
    user_id: int | None = None
    """The user who started the run, if any."""


class TraceItem(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The trace of one node."""

    message_id: str
    """Id of the run."""
    node_id: str
    """Id of the node in the design."""
    node_label: str
    """The node type, such as `code`."""
    node_name: str
    """Name of the node in the design."""
    status: Literal["SUCCESS", "ERROR"]
    start_time: int
    """Unix time in ms."""
    time_cost: int
    """Duration in ms."""
    error_message: str | None = None
    note: str | None = None
    """A note, for example about a value that the node could not read."""
    input: str | None = None
    """JSON text; absent for the entry."""
    output: str | None = None
    """JSON text."""
    parent_trace_id: str | None = None
    """`{message_id}-{id of the node before}`."""


class Run(msgspec.Struct, kw_only=True, rename="camel"):
    """A run of a flow. The engine sets the results."""

    id: int = msgspec.field(name="_id")
    tenant: str
    flow_id: int = msgspec.field(name="flow")
    version: int
    cause: Cause
    entered: Any
    """The output of the entry node."""
    started_at: int
    """Unix time in ms."""
    status: RunStatus = "RUNNING"
    time_cost: int = 0
    """Duration in ms."""
    error: str | None = None
    """Reason of the failure, also of a run that never started."""
    traces: list[TraceItem] = msgspec.field(default_factory=list)
    output: Any = None
    """The response of a service call: the output of the last finished node, or that of the last
    finished response node (`Step.answers`), if any."""
    tries: int = 1
    """Number of attempts; more than 1 after a crash."""
    has_unrepeatable_step: bool = msgspec.field(name="sealed", default=False)
    """Whether an unrepeatable step was started."""
    recorded: bool = True
    """Whether its start is stored. A deferred run is stored only at its end."""

    @property
    def identity(self) -> RunIdentity:
        """Return flow and key, which are unique together."""
        return self.flow_id, self.cause.key


class DeployedFlow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An enabled flow in the form that triggers store and pass to the engine."""

    tenant: str
    flow_id: int
    version: int
    """Version of the deployed design."""
    name: str
    node_id: str
    """Id of the entry node."""
    component: str
    """Node type of the entry, such as `simpleTimer`."""
    parameters: dict[str, Any] = {}
    """Parameters of the entry, validated, with the field names of designs."""
