"""Checks and tests on the wire."""

from typing import Any, Literal

import msgspec

from libs.common.envelope import Answer
from libs.common.http.console import Shown
from libs.common.http.ids import Id
from services.workflow.runs.records import TraceItem


class ValidateDesign(msgspec.Struct):
    """Body of `POST /workflow/flows/design/validate`."""

    design_data: str


class RefusedDesign(Shown, kw_only=True):
    """One reason; `node_id` when it is a node's."""

    node_id: str | None = None
    field: str
    reason: str


class Verdict(Answer[bool], kw_only=True):
    """`data` tells whether a design can run; `detail` has the reasons why not."""

    data: bool
    detail: list[RefusedDesign] | msgspec.UnsetType = msgspec.UNSET


class TestDesign(msgspec.Struct, kw_only=True):
    """Body of the test of a flow: of a design, or of the newest one that a flow has."""

    design_data: str | None = None
    flow_id: Id | None = None
    """Of a flow that the caller sees; the answer names it again."""
    input: dict[str, Any] | None = None
    """What the entry puts out."""
    dry_run: bool = False
    """Whether what would be set, called and sent is only judged."""


class TestNode(msgspec.Struct, kw_only=True):
    """Body of the test of one node."""

    node_config: str
    """JSON text of the node, as the design has it."""
    input: dict[str, Any] | None = None
    """What the node before puts out."""
    dry_run: bool = False


class TestedDesign(Shown, kw_only=True):
    """The outcome of a flow's test; times in ms.

    Of a design that cannot run the trace has the nodes at fault, each with its reasons.
    """

    status: Literal["SUCCESS", "ERROR"]
    flow_id: str | None = None
    start_time: int
    time_cost: int
    trace_infos: list[TraceItem]
