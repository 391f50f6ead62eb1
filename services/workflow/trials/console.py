"""`/workflow/flows/design/validate`, and the tests of flows and nodes."""

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
    """Tell whether a design can run; `detail` has every reason why it cannot."""
    reasons = await trials.reasons(principal_of(request), data.design_data)
    return Verdict(
        data=not reasons,
        request_id=request_id_of(request),
        detail=[RefusedDesign(**reason._asdict()) for reason in reasons] or UNSET,
    )


@post("/design/test", guards=[holders(*FUNCTIONS)], waits=True)
async def test_design(
    principal: RequestPrincipal, trials: Trials, data: JSONBody[TestDesign]
) -> TestedDesign:
    """Run a design, saved or not, with `input` as what triggers it; nothing is logged.

    It is for real: with `dry_run` what would be set, called and sent is only judged.
    """
    return await trials.test_design(principal, data)


@post("/node/test", guards=[holders(*FUNCTIONS)], waits=True)
async def test_node(
    principal: RequestPrincipal, trials: Trials, data: JSONBody[TestNode]
) -> TraceItem:
    """Run one node with `input` as the output of the one before, which references are to."""
    return await trials.test_node(principal, data)


test_flow = post(
    "/test",
    guards=[holders(*FUNCTIONS)],
    summary="Test a flow",
    operation_id="testFlow",
    deprecated=True,
    waits=True,
)(test_design.fn)
"""The same under its older path."""


@dataclass(frozen=True)
class TrialHandlers:
    """What the handlers above are given."""

    trials: TrialService


def trial_router(handlers: TrialHandlers) -> Router:
    """Return the router below `/workflow`."""
    return Router("/flows", route_handlers=operations_of(globals()), dependencies=provide(handlers))
