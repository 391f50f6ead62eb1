"""Checks and tests designs, saved or not."""

from collections.abc import Awaitable, Callable
from typing import Any

from libs.common.clock import now_ms
from libs.common.errors import InvalidInput
from libs.common.identity import Principal
from services.workflow.engine.runner import Engine
from services.workflow.errors import NodeFailed
from services.workflow.expressions.references import ReferenceInvalid, references_in
from services.workflow.flows.deploying import Deploying, refused
from services.workflow.graph.design import DesignInvalid, Reason, read_node
from services.workflow.graph.parameters import read_parameters
from services.workflow.graph.plan import Follower, Plan, PlanNode, name_of
from services.workflow.logs.schemas import ended
from services.workflow.nodes.base import Entry, Parameters, Registry, Step
from services.workflow.runs.records import Cause, Run, TraceItem
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


class TrialService:
    """The operations on designs that need no flow."""

    def __init__(
        self,
        deploying: Deploying,
        vault: Vault,
        engine: Engine,
        registry: Registry,
        next_id: Callable[[], Awaitable[int]],
    ) -> None:
        self._deploying = deploying
        self._vault = vault
        self._engine = engine
        self._registry = registry
        self._next_id = next_id

    async def reasons(self, user: Principal, text: str) -> list[Reason]:
        """Why a design cannot run; nothing when it can."""
        try:
            await self._deploying.check(user, text)
        except DesignInvalid as error:
            return error.reasons
        return []

    async def test_design(self, user: Principal, wanted: TestDesign) -> TestedDesign:
        """Run a design with `input` as what its entry was given."""
        try:
            plan = await self._deploying.check(user, wanted.design_data)
        except DesignInvalid as error:
            raise refused(error) from error
        entry = plan.entry
        assert isinstance(entry.type, Entry)  # noqa: S101 - a checked plan begins with one
        try:
            entered = entry.type.entered(entry.parameters, wanted.input)
        except NodeFailed as error:
            raise InvalidInput(str(error), field="input") from error
        run = await self._run(user, plan, entered, dry_run=wanted.dry_run)
        return TestedDesign(
            status=ended(run),
            start_time=run.started_at,
            time_cost=run.time_cost,
            trace_infos=run.traces,
        )

    async def test_node(self, user: Principal, wanted: TestNode) -> TraceItem:
        """Run one node with `input` as the output of the one before.

        Its references, whichever node they name, are to `input`.
        """
        try:
            config = await self._vault.reveal(user.tenant, wanted.node_config)
            plan, referred = self._alone(config)
            await self._deploying.check_entities(user, plan)
        except DesignInvalid as error:
            raise refused(error, "node_config") from error
        outputs = dict.fromkeys(referred, wanted.input)
        run = await self._run(user, plan, wanted.input, dry_run=wanted.dry_run, outputs=outputs)
        return run.traces[-1]

    def _alone(self, config: str) -> tuple[Plan, set[str]]:
        """A plan of one node behind an input, and the nodes that its parameters refer to.

        Raises `DesignInvalid`.
        """
        node = read_node(config)
        referred = _referred(node.data.parameters or {})
        parameters, reasons = read_parameters(node, self._registry, referred)
        kind = self._registry.find(node.component_name)
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
        run = Run(
            id=await self._next_id(),
            tenant=user.tenant,
            flow_id=0,
            version=0,
            cause=Cause(kind="TEST", key="test", user_id=user.user_id),
            entered=entered,
            started_at=now_ms(),
        )
        await self._engine.test(plan, run, dry_run=dry_run, outputs=outputs or {})
        return run


def _referred(value: Any) -> set[str]:
    """The nodes that `value` refers to; one that cannot be read is a fault of its node."""
    try:
        return {reference.node for reference in references_in(value)}
    except ReferenceInvalid:
        return set()
