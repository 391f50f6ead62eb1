"""Validation and test runs of designs and nodes, without a log."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec import UNSET

from libs.common.clock import now_ms
from libs.common.envelope import Answer
from libs.common.errors import InvalidInput
from libs.common.http import HttpRequest, RequestPrincipal, build_dependencies, get_principal
from libs.common.http.console import ResponseModel, post
from libs.common.http.guards import allow_holders
from libs.common.http.ids import Id
from libs.common.http.operations import route_operations
from libs.common.http.request import get_request_id
from libs.common.identity import Principal
from libs.common.identity.functions import Function
from libs.common.store.ids import IdAllocator
from services.workflow.engine.runner import Engine
from services.workflow.errors import NodeFailed
from services.workflow.expressions.references import ReferenceInvalid, find_references
from services.workflow.flows.deployment import FlowDeployer, build_design_error
from services.workflow.flows.logs import final_status
from services.workflow.flows.service import FlowService
from services.workflow.graph.design import (
    DesignFaultReason,
    DesignInvalid,
    DesignNode,
    decode_design,
    decode_node,
)
from services.workflow.graph.plan import (
    OutgoingEdge,
    Plan,
    PlanNode,
    get_display_name,
    read_parameters,
)
from services.workflow.nodes.base import Entry, NodeRegistry, Step
from services.workflow.nodes.parameters import Parameters
from services.workflow.runs.model import Cause, Run, TraceItem
from services.workflow.vault import Vault

INPUT_NODE = "_input"
"""Id of the entry before a node that is tested alone."""


class ValidateDesign(msgspec.Struct):
    """Body of `POST /workflow/flows/design/validate`."""

    design_data: str
    """Nodes and edges as JSON text."""


class DesignFault(ResponseModel, kw_only=True):
    """A reason why a design cannot run; `node_id` is set if a single node is at fault."""

    node_id: str | None = None
    """Id of the node at fault."""
    field: str
    reason: str


class DesignValidation(Answer[bool], kw_only=True):
    """`data` is whether a design can run; `detail` has the reasons if it cannot."""

    data: bool
    detail: list[DesignFault] | msgspec.UnsetType = msgspec.UNSET
    """Faults of the design."""


class TestFlow(msgspec.Struct, kw_only=True):
    """Body of a flow test: a design, or the id of a flow to test its latest design."""

    design_data: str | None = None
    """Nodes and edges as JSON text."""
    flow_id: Id | None = None
    """Id of a flow visible to the caller; the response repeats it."""
    input: dict[str, Any] | None = None
    """Input of the entry, as a trigger would provide it, such as inputs of a service call."""
    dry_run: bool = False
    """Whether actions are only validated."""


class TestNode(msgspec.Struct, kw_only=True):
    """Body of a node test."""

    node_config: str
    """JSON text of the node in the form of designs."""
    input: dict[str, Any] | None = None
    """Output of the node before."""
    dry_run: bool = False


class FlowTestResult(ResponseModel, kw_only=True):
    """The result of a flow test. Times are in ms.

    If the design cannot run, the trace has the faulty nodes with their reasons.
    """

    status: Literal["SUCCESS", "ERROR"]
    flow_id: str | None = None
    start_time: int
    time_cost: int
    trace_infos: list[TraceItem]
    """Traces of the nodes, in the order in which the nodes finished."""


def trace_invalid_design(text: str, error: DesignInvalid, run: Run) -> list[TraceItem]:
    """Return a trace of the faulty nodes with their reasons.

    Reasons that name no node are shown at the first node. Raises `InvalidInput` for an invalid text
    or a design without nodes.
    """
    try:
        nodes = {node.id: node for node in decode_design(text).nodes}
    except DesignInvalid:
        nodes = {}
    if not nodes:
        raise build_design_error(error) from error
    first = next(iter(nodes))
    reasons: dict[str, list[DesignFaultReason]] = defaultdict(list)
    for reason in error.reasons:
        reasons[reason.node_id if reason.node_id in nodes else first].append(reason)
    return [_build_trace_item(nodes[node_id], found, run) for node_id, found in reasons.items()]


def trace_invalid_node(config: str, error: DesignInvalid, run: Run) -> TraceItem:
    """Return the trace of an invalid node; raise `InvalidInput` if it is unreadable."""
    try:
        node = decode_node(config)
    except DesignInvalid:
        raise build_design_error(error, "node_config") from error
    return _build_trace_item(node, error.reasons, run)


def _build_trace_item(
    node: DesignNode, reasons: Iterable[DesignFaultReason], run: Run
) -> TraceItem:
    return TraceItem(
        message_id=str(run.id),
        node_id=node.id,
        node_label=node.component_name,
        node_name=get_display_name(node),
        status="ERROR",
        start_time=run.started_at,
        time_cost=0,
        error_message="; ".join(f"{each.field}: {each.reason}" for each in reasons),
    )


class _TestInput(Entry[Parameters]):
    """Returns the input of a test."""

    name = "input"
    title = "Input"
    description = "Input of a test"


@dataclass(frozen=True)
class TrialService:
    """Validation and tests of designs."""

    flows: FlowService
    deployer: FlowDeployer
    vault: Vault
    engine: Engine
    registry: NodeRegistry
    ids: IdAllocator

    async def validate_design(self, user: Principal, text: str) -> list[DesignFaultReason]:
        """Return the reasons why a design cannot run."""
        try:
            plan = await self.deployer.compile_for_user(user, text)
            await self.deployer.check_constants(user.tenant, plan)
        except DesignInvalid as error:
            return error.reasons
        return []

    async def test_design(self, user: Principal, request: TestFlow) -> FlowTestResult:
        """Run a design with `input` as the input of its entry.

        An invalid design is a normal result, because editors do not show the reasons of errors.
        Raises `InvalidInput` if the text is no design.
        """
        flow_id = request.flow_id
        text = await self._find_design(user, request.design_data, flow_id)
        try:
            plan = await self.deployer.compile_for_user(user, text)
            if not request.dry_run:
                self.deployer.check_commands(user, plan)
            run = await self._create_run(user, _build_entry_output(plan, request.input))
            await self.engine.run_test(plan, run, dry_run=request.dry_run)
        except DesignInvalid as error:
            run = await self._create_run(user)
            run.status, run.traces = "ERROR", trace_invalid_design(text, error, run)
        return FlowTestResult(
            status=final_status(run),
            flow_id=None if flow_id is None else str(flow_id),
            start_time=run.started_at,
            time_cost=run.time_cost,
            trace_infos=run.traces,
        )

    async def _find_design(self, user: Principal, design: str | None, flow_id: int | None) -> str:
        """Return the given design, or that of a flow visible to the user."""
        saved = None if flow_id is None else (await self.flows.get_visible(user, flow_id)).design
        text = saved if design is None else design
        if text is None:
            raise InvalidInput("is required unless flow_id is set", field="design_data")
        return text

    async def test_node(self, user: Principal, request: TestNode) -> TraceItem:
        """Run one node with `input` as the output of the node before.

        References to any node also return `input`. Raises `InvalidInput` if the text is no node.
        """
        config = request.node_config
        try:
            plan, referred = self._plan_single_node(
                await self.vault.replace_marks_by_secrets(user.tenant, config)
            )
            if not request.dry_run:
                self.deployer.check_commands(user, plan)
            await self.deployer.check_entities(user, plan)
        except DesignInvalid as error:
            return trace_invalid_node(config, error, await self._create_run(user))
        run, outputs = (
            await self._create_run(user, request.input),
            dict.fromkeys(referred, request.input),
        )
        await self.engine.run_test(plan, run, dry_run=request.dry_run, outputs=outputs)
        return run.traces[-1]

    def _plan_single_node(self, config: str) -> tuple[Plan, set[str]]:
        """Return a plan of an input and one node, and the referenced node ids.

        Raises `DesignInvalid`.
        """
        node = decode_node(config)
        referred = _find_referenced_nodes(node.data.parameters or {})
        parameters, reasons = read_parameters(node, self.registry, referred)
        kind = self.registry.find(node.component_name)
        if isinstance(kind, Entry):
            reasons = [
                DesignFaultReason(
                    node.id, "componentName", "must not be an entry, which cannot be tested alone"
                )
            ]
        if reasons or parameters is None or not isinstance(kind, Step):
            raise DesignInvalid(reasons)
        first = PlanNode(
            INPUT_NODE, INPUT_NODE, _TestInput(), Parameters(), (OutgoingEdge(node.id, None, 0),), 0
        )
        tried = PlanNode(node.id, get_display_name(node), kind, parameters, (), 1)
        return Plan({first.id: first, tried.id: tried}, first, {}), referred

    async def _create_run(self, user: Principal, entered: Any = None) -> Run:
        return Run(
            id=await self.ids.allocate(),
            tenant=user.tenant,
            flow_id=0,
            version=0,
            cause=Cause(kind="TEST", key="test", user_id=user.user_id),
            entered=entered,
            started_at=now_ms(),
        )


def _build_entry_output(plan: Plan, trigger_input: Any) -> Any:
    """Return the output of the entry; raise `DesignInvalid` for an invalid input."""
    entry = plan.entry
    assert isinstance(entry.type, Entry)  # noqa: S101 - a checked plan begins with one
    try:
        return entry.type.build_output(entry.parameters, trigger_input)
    except NodeFailed as error:
        raise DesignInvalid([DesignFaultReason(entry.id, "input", str(error))]) from error


def _find_referenced_nodes(value: Any) -> set[str]:
    """Return the node ids that `value` refers to; empty for invalid references."""
    try:
        return {reference.node for reference in find_references(value)}
    except ReferenceInvalid:
        return set()


Trials = NamedDependency[TrialService]

FLOW_EDIT_FUNCTIONS = (Function.WORKFLOW_ADD, Function.WORKFLOW_EDIT)


@post("/design/validate", guards=[allow_holders(*FLOW_EDIT_FUNCTIONS)])
async def validate_design(
    request: HttpRequest, trials: Trials, data: JSONBody[ValidateDesign]
) -> DesignValidation:
    """Get whether a design can run. `detail` lists the reasons if it cannot."""
    reasons = await trials.validate_design(get_principal(request), data.design_data)
    return DesignValidation(
        data=not reasons,
        request_id=get_request_id(request),
        detail=[DesignFault(**reason._asdict()) for reason in reasons] or UNSET,
    )


@post("/design/test", guards=[allow_holders(*FLOW_EDIT_FUNCTIONS)], waits=True)
async def test_design(
    principal: RequestPrincipal, trials: Trials, data: JSONBody[TestFlow]
) -> FlowTestResult:
    """Run a design with `input` as the input of its entry; nothing is logged.

    Nodes act on real devices and systems. With `dry_run`, their actions are only validated.
    """
    return await trials.test_design(principal, data)


@post("/node/test", guards=[allow_holders(*FLOW_EDIT_FUNCTIONS)], waits=True)
async def test_node(
    principal: RequestPrincipal, trials: Trials, data: JSONBody[TestNode]
) -> TraceItem:
    """Run one node: `input` is its input, and its references refer to `input`."""
    return await trials.test_node(principal, data)


test_flow = post(
    "/test",
    guards=[allow_holders(*FLOW_EDIT_FUNCTIONS)],
    summary="Test a flow",
    operation_id="testFlow",
    deprecated=True,
    waits=True,
)(test_design.fn)
"""The operation `test_design` under its older path."""


@dataclass(frozen=True)
class TrialHandlerDependencies:
    """Dependencies of the operations on trials."""

    trials: TrialService


def trial_router(handlers: TrialHandlerDependencies) -> Router:
    """Return the router below `/workflow`."""
    return route_operations(globals(), "/flows", dependencies=build_dependencies(handlers))
