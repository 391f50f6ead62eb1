"""One run of a plan, from its entry to the end of every path.

Branches run in parallel; a node that several edges lead to (a join) waits until each of them
was followed or has become impossible, and runs once. A node that fails ends its path and makes
the run an error; the other paths go on.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.clock import now_ms
from libs.common.errors import ThingwayError
from libs.common.telemetry.tracing import trace_step
from services.workflow.engine.queue import Limits
from services.workflow.engine.trace import Trace
from services.workflow.errors import NodeFailed, NotKnown
from services.workflow.graph.plan import Follower, Plan, PlanNode
from services.workflow.nodes.base import BranchChoice, Group, NodeContext, Sample, Step
from services.workflow.runs.model import Run

log = logging.getLogger(__name__)

Seal = Callable[[Run], Awaitable[None]]
"""Records that the run does, from now on, what must not be done twice."""
Turn = Callable[[], AbstractAsyncContextManager[None]]
"""Waits for the turn of a node that talks to other systems, and holds its place."""
SPENT = "the run took longer than {:g} s"


class _Arrival(msgspec.Struct, frozen=True):
    """An output on its way along an edge."""

    place: int
    output: Any
    text: str | None
    source: str


class Ready(msgspec.Struct, frozen=True):
    """A node with what it is given."""

    node: PlanNode
    body: Any
    text: str | None
    """`body` as the trace shows it."""
    parent: str
    """The node before, of several the last one in the design."""


class Edges:
    """Counts edges down; a node is ready when all that lead to it are dealt with."""

    def __init__(self, plan: Plan, text_of: Callable[[Any], str | None]) -> None:
        """`text_of` shows what a join is given."""
        self._nodes = plan.nodes
        self._text_of = text_of
        self._open: dict[str, int] = {}
        self._arrived: dict[str, list[_Arrival]] = {}

    def follow(
        self, source: PlanNode, followers: Sequence[Follower], output: Any, text: str | None
    ) -> list[Ready]:
        """Go along edges with an output; give the nodes that are ready now."""
        ready: list[Ready] = []
        for edge in followers:
            arrival = _Arrival(edge.place, output, text, source.id)
            self._arrived.setdefault(edge.target, []).append(arrival)
            ready += self._close(edge.target)
        return ready

    def bar(self, followers: Sequence[Follower]) -> list[Ready]:
        """Close edges that are not followed, and all that only they lead to."""
        ready: list[Ready] = []
        waiting = list(followers)
        while waiting:
            target = waiting.pop().target
            ready += self._close(target)
            if self._open[target] == 0 and target not in self._arrived:
                waiting += self._nodes[target].followers
        return ready

    def _close(self, target: str) -> list[Ready]:
        """Count down an edge of `target`; it is ready when none is open and one has arrived."""
        node = self._nodes[target]
        left = self._open[target] = self._open.get(target, node.incoming) - 1
        arrived = self._arrived.get(target)
        if left or not arrived:
            return []
        if len(arrived) == 1:
            only = arrived[0]
            return [Ready(node, only.output, only.text, only.source)]
        arrived.sort(key=lambda one: one.place)
        last = arrived[-1]
        body = joined([one.output for one in arrived])
        return [Ready(node, body, self._text_of(body), last.source)]


def joined(outputs: Sequence[Any]) -> Any:
    """What a join is given: maps in one, where later edges win; else the last output."""
    maps = [one for one in outputs if isinstance(one, dict)]
    if len(maps) < len(outputs):
        return outputs[-1]
    return {key: value for one in maps for key, value in one.items()}


def split(
    followers: tuple[Follower, ...], handle: str | None
) -> tuple[tuple[Follower, ...], tuple[Follower, ...]]:
    """The edges of the branch that was chosen, and the others."""
    chosen = tuple(edge for edge in followers if edge.handle == handle and handle is not None)
    return chosen, tuple(edge for edge in followers if edge not in chosen)


class _Done(msgspec.Struct, frozen=True):
    """What came of a node."""

    output: Any
    text: str | None
    """`output` as the trace shows it."""
    followers: tuple[Follower, ...]
    """Edges to follow."""
    barred: tuple[Follower, ...]
    """Edges of the branches that were not taken."""


@dataclass(kw_only=True, eq=False)
class Execution:
    """Runs a plan for a run, whose traces, status and output it fills in."""

    plan: Plan
    run: Run
    limits: Limits
    seal: Seal
    turn: Turn = nullcontext
    dry_run: bool = False

    def __post_init__(self) -> None:
        """Begin with nothing done."""
        self._trace = Trace(self.run)
        self._edges = Edges(self.plan, self._trace.text_of)
        self._outputs: dict[str, Any] = {}
        self._supposed: set[str] = set()
        self._notes: dict[str, list[str]] = {}
        self._clock = asyncio.get_running_loop().time
        self._deadline = 0.0
        self._sealed = False
        self._answered = False

    async def go(self, outputs: Mapping[str, Any] | None = None) -> None:
        """Run to the end, as if nodes had put out `outputs`; raises nothing but a cancellation."""
        run, entry, begun = self.run, self.plan.entry, time.monotonic()
        self._deadline = self._clock() + self.limits.run_seconds
        self._outputs = {**(outputs or {}), entry.id: run.entered}
        run.output, text = run.entered, self._trace.text_of(run.entered)
        self._trace.add(entry, run.started_at, 0, output=text)
        following = self._edges.follow(entry, entry.followers, run.entered, text)
        await self._follow(following)
        run.error = self._trace.error
        run.status = "SUCCESS" if run.error is None else "ERROR"
        run.time_cost = _since(begun)

    async def _follow(self, following: list[Ready]) -> None:
        """Run nodes and what follows, one after the other; branches in tasks of their own."""
        while len(following) == 1:
            following = await self._node(following[0])
        if following:
            async with asyncio.TaskGroup() as branches:
                for one in following:
                    branches.create_task(self._follow([one]))

    async def _node(self, ready: Ready) -> list[Ready]:
        """Run one node, and give those that are ready then."""
        node, started, begun = ready.node, now_ms(), time.monotonic()
        done: _Done | None = None
        error: str | None = None
        try:
            with trace_step(f"node {node.type.name}", attributes={"thingway.node": node.id}):
                done = await self._work(ready)
        except NotKnown:  # nothing can be said of it, nor of what follows
            return self._edges.bar(node.followers)
        except (NodeFailed, ThingwayError) as failure:
            error = str(failure) or type(failure).__name__
        except RecursionError:
            error = "a value has too many lists and maps inside one another"
        except TimeoutError:
            error = self._late(time.monotonic() - begun)
        except Exception as failure:
            log.exception("flow %s: node %s broke", self.run.flow_id, node.id)
            error = f"the node broke: {type(failure).__name__}"
        self._trace.add(
            node,
            started,
            _since(begun),
            given=ready.text,
            parent=ready.parent,
            output=done.text if done else None,
            error=error,
            note="; ".join(self._notes.pop(node.id, ())) or None,
        )
        if done is None:
            return self._edges.bar(node.followers)
        self._outputs[node.id] = done.output
        self._answer(node, done.output)
        following = self._edges.follow(node, done.followers, done.output, done.text)
        return [*following, *self._edges.bar(done.barred)]

    async def _work(self, ready: Ready) -> _Done:
        """Do the work of a node, and see that the log can show what came of it."""
        outcome, followers = await self._step(ready.node, ready.body), ready.node.followers
        barred: tuple[Follower, ...] = ()
        if isinstance(outcome, Sample):
            self._supposed.add(ready.node.id)
            outcome = outcome.output
        if isinstance(outcome, BranchChoice):
            followers, barred = split(followers, outcome.handle)
            outcome = outcome.output
        text = ready.text if outcome is ready.body else self._trace.text_of(outcome)
        return _Done(outcome, text, followers, barred)

    async def _step(self, node: PlanNode, body: Any) -> Any:
        run, now = self.run, self._clock()
        if now >= self._deadline:
            raise NodeFailed(SPENT.format(self.limits.run_seconds))
        trace_step = node.type
        assert isinstance(trace_step, Step)  # noqa: S101 - a checked plan has entries nowhere else
        if not (trace_step.repeatable or self._sealed or self.dry_run):
            await self.seal(run)
            self._sealed = True
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
            supposed=self._supposed,
            notes=self._notes.setdefault(node.id, []),
        )
        if node.instant:
            return await trace_step.run(context, node.parameters, body)
        turn = self.turn if trace_step.group is Group.EXTERNAL else nullcontext
        async with asyncio.timeout_at(context.deadline), turn():
            return await trace_step.run(context, node.parameters, body)

    def _late(self, seconds: float) -> str:
        if self._clock() >= self._deadline:
            return SPENT.format(self.limits.run_seconds)
        if seconds >= self.limits.node_seconds:
            return f"the node took longer than {self.limits.node_seconds:g} s"
        return "what the node asked did not answer in time"

    def _answer(self, node: PlanNode, output: Any) -> None:
        """Keep the output of the last node, or that of the last one that is there to answer."""
        answers = isinstance(node.type, Step) and node.type.answers
        if answers or not self._answered:
            self.run.output = output
        self._answered = self._answered or answers


def _since(begun: float) -> int:
    """Milliseconds."""
    return round((time.monotonic() - begun) * 1000)
