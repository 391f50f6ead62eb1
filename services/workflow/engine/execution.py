"""Executes one run of a plan, from its entry to the end of every path.

Branches run concurrently. A node with several incoming edges (a join) waits until each edge is
followed or closed, and runs once. A failed node ends its path and makes the run an error; other
paths continue.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from libs.common.clock import now_ms
from libs.common.errors import ThingwayError
from libs.common.telemetry.tracing import current_trace, trace_step
from services.workflow.engine.queue import EngineLimits
from services.workflow.engine.trace import RunTrace
from services.workflow.errors import NodeFailed, ValueUnknown
from services.workflow.graph.plan import OutgoingEdge, Plan, PlanNode
from services.workflow.nodes.base import BranchChoice, NodeContext, PaletteGroup, SampleOutput, Step
from services.workflow.runs.model import Run

log = logging.getLogger(__name__)

MarkUnrepeatable = Callable[[Run], Awaitable[None]]
"""Records that the run starts an unrepeatable step."""
AcquireRequestSlot = Callable[[], AbstractAsyncContextManager[None]]
"""Returns a context that waits for a slot for requests to other systems, and holds it."""
RUN_TIMEOUT_REASON = "the run took longer than {:g} s"


class _ArrivedOutput(msgspec.Struct, frozen=True):
    """An output that has arrived along an edge."""

    position: int
    output: Any
    text: str | None
    source: str


class ReadyNode(msgspec.Struct, frozen=True):
    """A node with its input."""

    node: PlanNode
    body: Any
    text: str | None
    """`body` as text for the trace."""
    parent: str
    """Id of the previous node; for a join, of the last one in the design."""


class OpenEdges:
    """Counts the open incoming edges of nodes. A node without open ones is ready."""

    def __init__(self, plan: Plan, render: Callable[[Any], str | None]) -> None:
        """`render` converts the input of a join to text for the trace."""
        self._nodes = plan.nodes
        self._render = render
        self._open: dict[str, int] = {}
        self._arrived: dict[str, list[_ArrivedOutput]] = {}

    def follow(
        self, source: PlanNode, edges: Sequence[OutgoingEdge], output: Any, text: str | None
    ) -> list[ReadyNode]:
        """Follow edges with an output; return the nodes that become ready."""
        ready: list[ReadyNode] = []
        for edge in edges:
            arrival = _ArrivedOutput(edge.position, output, text, source.id)
            self._arrived.setdefault(edge.target, []).append(arrival)
            ready += self._close_one(edge.target)
        return ready

    def close(self, edges: Sequence[OutgoingEdge]) -> list[ReadyNode]:
        """Close edges that are not followed, and all edges that depend on them.

        Returns the nodes that thereby become ready.
        """
        ready: list[ReadyNode] = []
        waiting = list(edges)
        while waiting:
            target = waiting.pop().target
            ready += self._close_one(target)
            if self._open[target] == 0 and target not in self._arrived:
                waiting += self._nodes[target].outgoing_edges
        return ready

    def _close_one(self, target: str) -> list[ReadyNode]:
        """Close an edge of `target`; return the node if it is ready and got an output."""
        node = self._nodes[target]
        open_edges = self._open[target] = self._open.get(target, node.incoming_edge_count) - 1
        arrived = self._arrived.get(target)
        if open_edges or not arrived:
            return []
        if len(arrived) == 1:
            only = arrived[0]
            return [ReadyNode(node, only.output, only.text, only.source)]
        arrived.sort(key=lambda arrival: arrival.position)
        last = arrived[-1]
        body = merge_outputs([arrival.output for arrival in arrived])
        return [ReadyNode(node, body, self._render(body), last.source)]


def merge_outputs(outputs: Sequence[Any]) -> Any:
    """Merge the outputs of a join if all are maps; else return the last output.

    For a key of several maps, the last edge wins.
    """
    maps = [output for output in outputs if isinstance(output, dict)]
    if len(maps) < len(outputs):
        return outputs[-1]
    return {key: value for output in maps for key, value in output.items()}


def split_edges(
    edges: tuple[OutgoingEdge, ...], handle: str | None
) -> tuple[tuple[OutgoingEdge, ...], tuple[OutgoingEdge, ...]]:
    """Split edges into those of the branch `handle`, and the others."""
    chosen = tuple(edge for edge in edges if edge.handle == handle and handle is not None)
    return chosen, tuple(edge for edge in edges if edge not in chosen)


class _NodeResult(msgspec.Struct, frozen=True):
    """The result of a node."""

    output: Any
    text: str | None
    """`output` as text for the trace."""
    edges: tuple[OutgoingEdge, ...]
    """Edges to follow."""
    skipped: tuple[OutgoingEdge, ...]
    """Edges of branches that were not chosen."""


@dataclass(kw_only=True, eq=False)
class Execution:
    """Executes a plan for a run, and stores traces, status and output in the run."""

    plan: Plan
    run: Run
    limits: EngineLimits
    mark_unrepeatable: MarkUnrepeatable
    acquire_request_slot: AcquireRequestSlot = nullcontext
    dry_run: bool = False

    def __post_init__(self) -> None:
        """Prepare an execution without finished nodes."""
        self._trace = RunTrace(self.run)
        self._edges = OpenEdges(self.plan, self._trace.render)
        self._outputs: dict[str, Any] = {}
        self._sampled: set[str] = set()
        self._notes: dict[str, list[str]] = {}
        self._clock = asyncio.get_running_loop().time
        self._deadline = 0.0
        self._has_unrepeatable_step = False
        self._is_traced = bool(current_trace())
        self._answered = False

    async def execute(self, outputs: Mapping[str, Any] | None = None) -> None:
        """Execute the plan with given `outputs` of nodes; raise only if cancelled."""
        run, entry, begun = self.run, self.plan.entry, time.monotonic()
        self._deadline = self._clock() + self.limits.run_seconds
        self._outputs = {**(outputs or {}), entry.id: run.entered}
        run.output, text = run.entered, self._trace.render(run.entered)
        self._trace.record_node(entry, run.started_at, 0, output=text)
        following = self._edges.follow(entry, entry.outgoing_edges, run.entered, text)
        await self._run_nodes(following)
        run.error = self._trace.first_error
        run.status = "SUCCESS" if run.error is None else "ERROR"
        run.time_cost = _elapsed_ms(begun)

    async def _run_nodes(self, following: list[ReadyNode]) -> None:
        """Run a chain of nodes one by one, and parallel branches in separate tasks."""
        while len(following) == 1:
            following = await self._run_and_trace(following[0])
        if following:
            async with asyncio.TaskGroup() as branches:
                for ready in following:
                    branches.create_task(self._run_nodes([ready]))

    async def _run_and_trace(self, ready: ReadyNode) -> list[ReadyNode]:
        """Run one node, record its trace, and return the nodes that become ready."""
        node, started, begun = ready.node, now_ms(), time.monotonic()
        done: _NodeResult | None = None
        error: str | None = None
        try:
            if self._is_traced:
                with trace_step(f"node {node.type.name}", attributes={"thingway.node": node.id}):
                    done = await self._run_and_render(ready)
            else:
                done = await self._run_and_render(ready)
        except ValueUnknown:  # the node and its followers cannot be validated
            return self._edges.close(node.outgoing_edges)
        except (NodeFailed, ThingwayError) as failure:
            error = str(failure) or type(failure).__name__
        except RecursionError:
            error = "a value is nested too deep"
        except TimeoutError:
            error = self._describe_timeout(time.monotonic() - begun)
        except Exception as failure:
            log.exception("flow %s: node %s raised an error", self.run.flow_id, node.id)
            error = f"internal error of the node: {type(failure).__name__}"
        self._trace.record_node(
            node,
            started,
            _elapsed_ms(begun),
            input_text=ready.text,
            parent=ready.parent,
            output=done.text if done else None,
            error=error,
            note="; ".join(self._notes.pop(node.id, ())) or None,
        )
        if done is None:
            return self._edges.close(node.outgoing_edges)
        self._outputs[node.id] = done.output
        self._set_run_output(node, done.output)
        following = self._edges.follow(node, done.edges, done.output, done.text)
        return [*following, *self._edges.close(done.skipped)]

    async def _run_and_render(self, ready: ReadyNode) -> _NodeResult:
        """Run a node, and render its output for the trace."""
        outcome, edges = (
            await self._run_with_deadline(ready.node, ready.body),
            ready.node.outgoing_edges,
        )
        skipped: tuple[OutgoingEdge, ...] = ()
        if isinstance(outcome, SampleOutput):
            self._sampled.add(ready.node.id)
            outcome = outcome.output
        if isinstance(outcome, BranchChoice):
            edges, skipped = split_edges(edges, outcome.handle)
            outcome = outcome.output
        text = ready.text if outcome is ready.body else self._trace.render(outcome)
        return _NodeResult(outcome, text, edges, skipped)

    async def _run_with_deadline(self, node: PlanNode, body: Any) -> Any:
        run, now = self.run, self._clock()
        if now >= self._deadline:
            raise NodeFailed(RUN_TIMEOUT_REASON.format(self.limits.run_seconds))
        step = cast("Step[Any]", node.type)  # a plan has only one entry
        if not (step.repeatable or self._has_unrepeatable_step or self.dry_run):
            await self.mark_unrepeatable(run)
            self._has_unrepeatable_step = True
        context = NodeContext(
            tenant=run.tenant,
            flow_id=run.flow_id or None,
            run_id=run.id,
            node_id=node.id,
            node_name=node.name,
            hops=run.cause.hops,
            dry_run=self.dry_run,
            deadline=min(self._deadline, now + self.limits.node_seconds),
            properties=self._outputs,
            sampled=self._sampled,
            notes=self._notes.setdefault(node.id, []),
        )
        if node.instant:
            return await step.run(context, node.parameters, body)
        is_external = step.group is PaletteGroup.EXTERNAL
        acquire_slot = self.acquire_request_slot if is_external else nullcontext
        async with asyncio.timeout_at(context.deadline), acquire_slot():
            return await step.run(context, node.parameters, body)

    def _describe_timeout(self, seconds: float) -> str:
        if self._clock() >= self._deadline:
            return RUN_TIMEOUT_REASON.format(self.limits.run_seconds)
        if seconds >= self.limits.node_seconds:
            return f"the node took longer than {self.limits.node_seconds:g} s"
        return "another service did not respond to the node in time"

    def _set_run_output(self, node: PlanNode, output: Any) -> None:
        """Set the output of the run; after a response node, only another one changes it."""
        answers = cast("Step[Any]", node.type).answers
        if answers or not self._answered:
            self.run.output = output
        self._answered = self._answered or answers


def _elapsed_ms(begun: float) -> int:
    """Return the elapsed milliseconds."""
    return round((time.monotonic() - begun) * 1000)
