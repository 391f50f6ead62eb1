"""Runs and their traces, as they pass between the engine and the log. No I/O."""

from typing import Any, Literal, NamedTuple

import msgspec

Status = Literal["RUNNING", "SUCCESS", "ERROR"]
CauseKind = Literal["EVENT", "TIMER", "SERVICE", "HTTP", "MQTT", "TEST", "BREAKER", "LIMIT"]
MOST_HOPS = 8
"""Flows that may lead to one another; the one after is recorded and not run."""


class Owner(NamedTuple):
    """The tenant, and its flow: a lane and a sub-lane of `libs.common.scheduling`."""

    tenant: str
    flow_id: int
    """0 is a design that is tested."""


class Cause(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Why a flow runs."""

    kind: CauseKind
    key: str
    """What makes it the same cause when it comes again, such as an event's id or a timer's
    due time: of one flow there is one run with it."""
    hops: int = 0
    """How many flows have led here (header `Thingway-Hops` of the message)."""
    trace: str = ""
    """The `traceparent` of what led here; empty when it belongs to no recorded trace."""
    user_id: int | None = None
    """Who asked for it, when a user did."""


class TraceItem(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What one node did."""

    message_id: str
    node_id: str
    node_label: str
    """`code`: the component."""
    node_name: str
    status: Literal["SUCCESS", "ERROR"]
    start_time: int
    """ms since 1970."""
    time_cost: int
    """ms."""
    error_message: str | None = None
    note: str | None = None
    """What else is to be known of it, as a value that it could not read."""
    input: str | None = None
    """JSON text; the entry has none."""
    output: str | None = None
    parent_trace_id: str | None = None
    """`{message_id}-{node before}`."""


class Run(msgspec.Struct, kw_only=True, rename="camel"):
    """One run of a flow; the engine fills in what is unknown when it begins."""

    id: int = msgspec.field(name="_id")
    tenant: str
    flow_id: int = msgspec.field(name="flow")
    version: int
    cause: Cause
    entered: Any
    """The output of its entry."""
    started_at: int
    """ms since 1970."""
    status: Status = "RUNNING"
    time_cost: int = 0
    """ms."""
    error: str | None = None
    """Why it failed, or was not run at all."""
    traces: list[TraceItem] = msgspec.field(default_factory=list)
    output: Any = None
    """The output of the last node that finished: what a service call answers."""
    tries: int = 1
    """2 when it began anew after a crash."""
    sealed: bool = False
    """Whether it has done what must not be done twice."""


class Deployed(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A flow that is enabled, as triggers keep it and hand it to the engine."""

    tenant: str
    flow_id: int
    version: int
    """Of the design that runs."""
    name: str
    node_id: str
    """Its entry."""
    component: str
    """The entry's node type: `simpleTimer`."""
    parameters: dict[str, Any] = {}
    """The entry's, as the design has them; checked."""
