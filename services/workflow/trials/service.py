"""Checks and tests designs, saved or not."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from libs.common.clock import now_ms
from libs.common.errors import InvalidInput
from libs.common.identity import Principal
from services.workflow.designs.deploying import refused
from services.workflow.expressions.references import ReferenceInvalid, references_in
from services.workflow.graph.design import DesignInvalid, Reason, read_node
from services.workflow.graph.parameters import read_parameters
from services.workflow.graph.plan import Follower, Plan, PlanNode, name_of
from services.workflow.nodes.base import Entry, NodeFailed, Parameters, Registry, Step
from services.workflow.runs.records import Cause, Run, TraceItem
from services.workflow.runs.schemas import ended
from services.workflow.trials.schemas import TestDesign, TestedDesign, TestNode

TRIED = "_input"
"""Id of the entry that stands before a node that is tested alone."""


class Checker(Protocol):
    """Checks designs."""

    async def check(self, user: Principal, text: str) -> Plan:
        """The plan of a design; raise `DesignInvalid`."""

    async def check_entities(self, user: Principal, plan: Plan) -> None:
        """Raise `DesignInvalid` when a node touches what the user does not see."""


class Vault(Protocol):
    """Keeps the secrets of nodes."""

    async def reveal(self, tenant: str, text: str) -> str:
        """A node as it is run; raise `DesignInvalid` for a mark that stands for nothing."""


class Runner(Protocol):
    """Runs plans."""

    async def test(
        self, plan: Plan, run: Run, *, dry_run: bool, outputs: Mapping[str, Any]
    ) -> None:
        """Run a plan, as if nodes had put out `outputs`, and fill in `run`."""


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
        *,
        checker: Checker,
        vault: Vault,
        runner: Runner,
        registry: Registry,
        next_id: Callable[[], Awaitable[int]],
    ) -> None:
        self._checker = checker
        self._vault = vault
        self._runner = runner
        self._registry = registry
        self._next_id = next_id

    async def reasons(self, user: Principal, text: str) -> list[Reason]:
        """Why a design cannot run; nothing when it can."""
        try:
            await self._checker.check(user, text)
        except DesignInvalid as error:
            return error.reasons
        return []

    async def test_design(self, user: Principal, wanted: TestDesign) -> TestedDesign:
        """Run a design with `input` as what its entry was given."""
        try:
            plan = await self._checker.check(user, wanted.design_data)
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
            await self._checker.check_entities(user, plan)
        except DesignInvalid as error:
            raise _refused_node(error) from error
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
        first = _plan_node(TRIED, TRIED, _Given(), Parameters(), (Follower(node.id, None, 0),), 0)
        tried = _plan_node(node.id, name_of(node), kind, parameters, (), 1)
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
        await self._runner.test(plan, run, dry_run=dry_run, outputs=outputs or {})
        return run


def _plan_node(
    node_id: str,
    name: str,
    kind: Step[Any] | Entry[Any],
    parameters: Parameters,
    followers: tuple[Follower, ...],
    incoming: int,
) -> PlanNode:
    return PlanNode(
        id=node_id,
        name=name,
        type=kind,
        parameters=parameters,
        followers=followers,
        incoming=incoming,
    )


def _referred(value: Any) -> set[str]:
    """The nodes that `value` refers to; one that cannot be read is a fault of its node."""
    try:
        return {reference.node for reference in references_in(value)}
    except ReferenceInvalid:
        return set()


def _refused_node(error: DesignInvalid) -> InvalidInput:
    detail = [reason.shown() for reason in error.reasons]
    return InvalidInput(str(error), field="node_config", detail=detail)
