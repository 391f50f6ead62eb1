"""Checks and tests designs, saved or not."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from libs.common.clock import now_ms
from libs.common.envelope import Answer
from libs.common.errors import InvalidInput
from libs.common.http.console import ResponseModel
from libs.common.http.ids import Id
from libs.common.identity import Principal
from libs.common.store.ids import IdAllocator
from services.workflow.engine.runner import Engine
from services.workflow.errors import NodeFailed
from services.workflow.expressions.references import ReferenceInvalid, references_in
from services.workflow.flows.deployment import FlowDeployer, refused
from services.workflow.flows.logs import ended
from services.workflow.flows.service import FlowService
from services.workflow.graph.design import DesignInvalid, DesignNode, Reason, read_design, read_node
from services.workflow.graph.plan import Follower, Plan, PlanNode, name_of, read_parameters
from services.workflow.nodes.base import Entry, Registry, Step
from services.workflow.nodes.parameters import Parameters
from services.workflow.runs.model import Cause, Run, TraceItem
from services.workflow.vault import Vault

TRIED = "_input"
"""Id of the entry that stands before a node that is tested alone."""


class ValidateDesign(msgspec.Struct):
    """Body of `POST /workflow/flows/design/validate`."""

    design_data: str


class RefusedDesign(ResponseModel, kw_only=True):
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


class TestedDesign(ResponseModel, kw_only=True):
    """The outcome of a flow's test; times in ms.

    Of a design that cannot run the trace has the nodes at fault, each with its reasons.
    """

    status: Literal["SUCCESS", "ERROR"]
    flow_id: str | None = None
    start_time: int
    time_cost: int
    trace_infos: list[TraceItem]


def faulty(text: str, error: DesignInvalid, run: Run) -> list[TraceItem]:
    """A trace with the nodes at fault; what is no node's fault stands with the first one.

    Raises `InvalidInput` for a text that is no design, or one without nodes.
    """
    try:
        nodes = {node.id: node for node in read_design(text).nodes}
    except DesignInvalid:
        nodes = {}
    if not nodes:
        raise refused(error) from error
    first = next(iter(nodes))
    reasons: dict[str, list[Reason]] = defaultdict(list)
    for one in error.reasons:
        reasons[one.node_id if one.node_id in nodes else first].append(one)
    return [_item(nodes[node_id], found, run) for node_id, found in reasons.items()]


def faulty_node(config: str, error: DesignInvalid, run: Run) -> TraceItem:
    """The trace of a node that is tested alone; raise `InvalidInput` for a text that is none."""
    try:
        node = read_node(config)
    except DesignInvalid:
        raise refused(error, "node_config") from error
    return _item(node, error.reasons, run)


def _item(node: DesignNode, reasons: Iterable[Reason], run: Run) -> TraceItem:
    return TraceItem(
        message_id=str(run.id),
        node_id=node.id,
        node_label=node.component_name,
        node_name=name_of(node),
        status="ERROR",
        start_time=run.started_at,
        time_cost=0,
        error_message="; ".join(f"{one.field}: {one.reason}" for one in reasons),
    )


class _Given(Entry[Parameters]):
    """Puts out what a test gives."""

    name = "input"
    title = "Input"
    description = "What a test gives"


@dataclass(frozen=True)
class TrialService:
    """The operations on designs that need no flow."""

    flows: FlowService
    deployer: FlowDeployer
    vault: Vault
    engine: Engine
    registry: Registry
    ids: IdAllocator

    async def reasons(self, user: Principal, text: str) -> list[Reason]:
        """Why a design cannot run; nothing when it can."""
        try:
            plan = await self.deployer.check(user, text)
            await self.deployer.check_constants(user.tenant, plan)
        except DesignInvalid as error:
            return error.reasons
        return []

    async def test_design(self, user: Principal, wanted: TestDesign) -> TestedDesign:
        """Run a design with `input` as what its entry was given.

        What cannot run is an outcome like any other: editors show no more of a refusal than that
        it is one. Raises `InvalidInput` for what is no design.
        """
        flow_id = wanted.flow_id
        text = await self._text(user, wanted.design_data, flow_id)
        try:
            plan = await self.deployer.check(user, text)
            if not wanted.dry_run:
                self.deployer.check_commands(user, plan)
            run = await self._begun(user, _entered(plan, wanted.input))
            await self.engine.test(plan, run, dry_run=wanted.dry_run)
        except DesignInvalid as error:
            run = await self._begun(user)
            run.status, run.traces = "ERROR", faulty(text, error, run)
        return TestedDesign(
            status=ended(run),
            flow_id=None if flow_id is None else str(flow_id),
            start_time=run.started_at,
            time_cost=run.time_cost,
            trace_infos=run.traces,
        )

    async def _text(self, user: Principal, design: str | None, flow_id: int | None) -> str:
        """The design to test: the one that is given, else that of a flow, which must be seen."""
        saved = None if flow_id is None else (await self.flows.visible(user, flow_id)).design
        text = saved if design is None else design
        if text is None:
            raise InvalidInput("is required, or a flow_id", field="design_data")
        return text

    async def test_node(self, user: Principal, wanted: TestNode) -> TraceItem:
        """Run one node with `input` as the output of the one before.

        Its references, whichever node they name, are to `input`. Raises `InvalidInput` for what
        is no node.
        """
        config = wanted.node_config
        try:
            plan, referred = self._alone(await self.vault.reveal(user.tenant, config))
            if not wanted.dry_run:
                self.deployer.check_commands(user, plan)
            await self.deployer.check_entities(user, plan)
        except DesignInvalid as error:
            return faulty_node(config, error, await self._begun(user))
        run, outputs = await self._begun(user, wanted.input), dict.fromkeys(referred, wanted.input)
        await self.engine.test(plan, run, dry_run=wanted.dry_run, outputs=outputs)
        return run.traces[-1]

    def _alone(self, config: str) -> tuple[Plan, set[str]]:
        """A plan of one node behind an input, and the nodes that its parameters refer to.

        Raises `DesignInvalid`.
        """
        node = read_node(config)
        referred = _referred(node.data.parameters or {})
        parameters, reasons = read_parameters(node, self.registry, referred)
        kind = self.registry.find(node.component_name)
        if isinstance(kind, Entry):
            reasons = [Reason(node.id, "componentName", "an entry does nothing that can be tested")]
        if reasons or parameters is None or not isinstance(kind, Step):
            raise DesignInvalid(reasons)
        first = PlanNode(TRIED, TRIED, _Given(), Parameters(), (Follower(node.id, None, 0),), 0)
        tried = PlanNode(node.id, name_of(node), kind, parameters, (), 1)
        return Plan({first.id: first, tried.id: tried}, first, {}), referred

    async def _begun(self, user: Principal, entered: Any = None) -> Run:
        return Run(
            id=await self.ids.take(),
            tenant=user.tenant,
            flow_id=0,
            version=0,
            cause=Cause(kind="TEST", key="test", user_id=user.user_id),
            entered=entered,
            started_at=now_ms(),
        )


def _entered(plan: Plan, given: Any) -> Any:
    """The output of the entry; raise `DesignInvalid` when what it is given does not fit."""
    entry = plan.entry
    assert isinstance(entry.type, Entry)  # noqa: S101 - a checked plan begins with one
    try:
        return entry.type.entered(entry.parameters, given)
    except NodeFailed as error:
        raise DesignInvalid([Reason(entry.id, "input", str(error))]) from error


def _referred(value: Any) -> set[str]:
    """The nodes that `value` refers to; one that cannot be read is a fault of its node."""
    try:
        return {reference.node for reference in references_in(value)}
    except ReferenceInvalid:
        return set()
