"""Checks and tests on the wire."""

from typing import Any, Literal

import msgspec

from libs.common.http.console import Shown
from services.workflow.runs.records import TraceItem


class ValidateDesign(msgspec.Struct):
    """Body of `POST /workflow/flows/design/validate`."""

    design_data: str


class RefusedDesign(Shown, kw_only=True):
    """One reason; `node_id` when it is a node's."""

    node_id: str | None = None
    field: str
    reason: str


class Verdict(msgspec.Struct, kw_only=True):
    """An `Answer` whose `data` tells whether a design can run; `detail` has the reasons why not."""

    data: bool
    status: str = "Success"
    request_id: str
    detail: list[RefusedDesign] | msgspec.UnsetType = msgspec.UNSET


class TestDesign(msgspec.Struct, kw_only=True):
    """Body of the test of a flow."""

    design_data: str
    input: Any = None
    """What the entry puts out."""
    dry_run: bool = True
    """Whether entities, services and the outside are left alone."""


class TestNode(msgspec.Struct, kw_only=True):
    """Body of the test of one node."""

    node_config: str
    """JSON text of the node, as the design has it."""
    input: Any = None
    """What the node before puts out."""
    dry_run: bool = True


class TestedDesign(msgspec.Struct, kw_only=True):
    """The outcome of a flow's test; times in ms."""

    status: Literal["SUCCESS", "ERROR"]
    start_time: int
    time_cost: int
    trace_infos: list[TraceItem]
