"""`/workflow/flows/design/validate`, and tests of flows and nodes."""

from dataclasses import dataclass

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec import UNSET

from libs.common.http import HttpRequest, RequestPrincipal, principal_of, provide
from libs.common.http.console import post
from libs.common.http.guards import holders
from libs.common.http.operations import operations_of
from libs.common.http.request import request_id_of
from libs.common.identity.functions import Function
from services.workflow.runs.model import TraceItem
from services.workflow.trials.service import (
    RefusedDesign,
    TestDesign,
    TestedDesign,
    TestNode,
    TrialService,
    ValidateDesign,
    Verdict,
)

Trials = NamedDependency[TrialService]

FUNCTIONS = (Function.WORKFLOW_ADD, Function.WORKFLOW_EDIT)


@post("/design/validate", guards=[holders(*FUNCTIONS)])
async def validate_design(
    request: HttpRequest, trials: Trials, data: JSONBody[ValidateDesign]
) -> Verdict:
    """Get whether a design can run. `detail` lists all reasons if it cannot."""
    reasons = await trials.find_reasons(principal_of(request), data.design_data)
    return Verdict(
        data=not reasons,
        request_id=request_id_of(request),
        detail=[RefusedDesign(**reason._asdict()) for reason in reasons] or UNSET,
    )


@post("/design/test", guards=[holders(*FUNCTIONS)], waits=True)
async def test_design(
    principal: RequestPrincipal, trials: Trials, data: JSONBody[TestDesign]
) -> TestedDesign:
    """Run a saved or unsaved design with `input` as its trigger; nothing is logged.

    Nodes act on real devices and systems. With `dry_run`, their actions are only validated.
    """
    return await trials.test_design(principal, data)


@post("/node/test", guards=[holders(*FUNCTIONS)], waits=True)
async def test_node(
    principal: RequestPrincipal, trials: Trials, data: JSONBody[TestNode]
) -> TraceItem:
    """Run one node with `input` as the output of the node before and of references."""
    return await trials.test_node(principal, data)


test_flow = post(
    "/test",
    guards=[holders(*FUNCTIONS)],
    summary="Test a flow",
    operation_id="testFlow",
    deprecated=True,
    waits=True,
)(test_design.fn)
"""Same operation under its older path."""


@dataclass(frozen=True)
class TrialHandlers:
    """Dependencies of the operations on trials."""

    trials: TrialService


def trial_router(handlers: TrialHandlers) -> Router:
    """Return the router below `/workflow`."""
    return Router("/flows", route_handlers=operations_of(globals()), dependencies=provide(handlers))
