"""Checks and tests designs, saved or not."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from libs.common.clock import now_ms
from libs.common.errors import InvalidInput
from libs.common.identity import Principal
from services.workflow.engine.runner import Engine
from services.workflow.errors import NodeFailed
from services.workflow.expressions.references import ReferenceInvalid, references_in
from services.workflow.flows.deploying import Deploying
from services.workflow.flows.service import FlowService
from services.workflow.graph.design import DesignInvalid, Reason, read_node
from services.workflow.graph.parameters import read_parameters
from services.workflow.graph.plan import Follower, Plan, PlanNode, name_of
from services.workflow.logs.schemas import ended
from services.workflow.nodes.base import Entry, Parameters, Registry, Step
from services.workflow.runs.records import Cause, Run, TraceItem
from services.workflow.trials.faults import faulty, faulty_node
from services.workflow.trials.schemas import TestDesign, TestedDesign, TestNode
from services.workflow.vault.service import Vault

TRIED = "_input"
"""Id of the entry that stands before a node that is tested alone."""


class _Given(Entry[Parameters]):
    """Puts out what a test gives."""

    name = "input"
    title = "Input"
    description = "What a test gives"
    parameters = Parameters


@dataclass(frozen=True)
class TrialService:
    """The operations on designs that need no flow."""

    flows: FlowService
    deploying: Deploying
    vault: Vault
    engine: Engine
    registry: Registry
    next_id: Callable[[], Awaitable[int]]

    async def reasons(self, user: Principal, text: str) -> list[Reason]:
        """Why a design cannot run; nothing when it can."""
        try:
            plan = await self.deploying.check(user, text)
            await self.deploying.check_constants(user.tenant, plan)
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
            plan = await self.deploying.check(user, text)
            if not wanted.dry_run:
                self.deploying.check_commands(user, plan)
            run = await self._run(user, plan, _entered(plan, wanted.input), dry_run=wanted.dry_run)
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
                self.deploying.check_commands(user, plan)
            await self.deploying.check_entities(user, plan)
        except DesignInvalid as error:
            return faulty_node(config, error, await self._begun(user))
        outputs = dict.fromkeys(referred, wanted.input)
        run = await self._run(user, plan, wanted.input, dry_run=wanted.dry_run, outputs=outputs)
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

    async def _run(
        self,
        user: Principal,
        plan: Plan,
        entered: Any,
        *,
        dry_run: bool,
        outputs: dict[str, Any] | None = None,
    ) -> Run:
        run = await self._begun(user, entered)
        await self.engine.test(plan, run, dry_run=dry_run, outputs=outputs or {})
        return run

    async def _begun(self, user: Principal, entered: Any = None) -> Run:
        return Run(
            id=await self.next_id(),
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
