"""One run of a plan, from its entry to the end of every path.

Branches run in parallel; a node that several edges lead to (a join) waits until each of them
was followed or has become impossible, and runs once. A node that fails ends its path and makes
the run an error; the other paths go on (notes, section 6.3).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from libs.common.errors import ThingwayError
from services.workflow.engine.limits import Limits
from services.workflow.graph.plan import Follower, Plan, PlanNode
from services.workflow.nodes.base import Chosen, NodeContext, NodeFailed, Step
from services.workflow.runs.records import Run, TraceItem
from services.workflow.runs.texts import LONGEST_TRACE, shown_text

log = logging.getLogger(__name__)

Seal = Callable[[Run], Awaitable[None]]
"""Records that the run does, from now on, what must not be done twice."""

SPENT = "the run took longer than {:g} s"


@dataclass(frozen=True, slots=True)
class _Arrival:
    """An output on its way along an edge."""

    place: int
    output: Any
    text: str | None
    source: str


@dataclass(slots=True)
class _Ready:
    """A node with what it is given."""

    node: PlanNode
    body: Any
    text: str | None
    """`body` as the trace shows it."""
    parent: str


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of a node."""

    output: Any
    text: str | None
    """`output` as the trace shows it."""
    followers: tuple[Follower, ...]
    """Edges to follow."""
    barred: tuple[Follower, ...]
    """Edges of the branches that were not taken."""


@dataclass(slots=True, kw_only=True)
class Execution:
    """Runs `plan` for `run`, whose traces, status and output it fills in."""

    plan: Plan
    run: Run
    limits: Limits
    seal: Seal
    dry_run: bool = False
    _outputs: dict[str, Any] = field(default_factory=dict)
    _open: dict[str, int] = field(default_factory=dict)
    """Edges of a join that have not been followed yet, and may be."""
    _arrived: dict[str, list[_Arrival]] = field(default_factory=dict)
    _deadline: float = 0.0
    _sealed: bool = False
    _room: int = LONGEST_TRACE
    _answered: bool = False

    async def go(self, outputs: Mapping[str, Any] | None = None) -> None:
        """Run to the end, as if nodes had put out `outputs`; raises nothing but a cancellation."""
        self._outputs.update(outputs or {})
        begun = time.monotonic()
        self._deadline = asyncio.get_running_loop().time() + self.limits.run_seconds
        entry, output = self.plan.entry, self.run.entered
        self._outputs[entry.id] = output
        text = self._text(output)
        self._trace(entry, "SUCCESS", self.run.started_at, 0, output=text)
        self.run.output = output
        ready = self._follow(entry, entry.followers, output, text)
        async with asyncio.TaskGroup() as paths:
            for one in ready:
                paths.create_task(self._path(one, paths))
        if any(item.status == "ERROR" for item in self.run.traces):
            self.run.status = "ERROR"
            self.run.error = next(one.error_message for one in self.run.traces if one.error_message)
        else:
            self.run.status = "SUCCESS"
        self.run.time_cost = round((time.monotonic() - begun) * 1000)

    async def _path(self, ready: _Ready, paths: asyncio.TaskGroup) -> None:
        """Run a node and what follows, one after the other; branches in tasks of their own."""
        following = [ready]
        while following:
            first, *others = following
            for one in others:
                paths.create_task(self._path(one, paths))
            following = await self._node(first)

    async def _node(self, ready: _Ready) -> list[_Ready]:
        """Run one node, and give those that are ready then."""
        node, started, begun = ready.node, _now(), time.monotonic()
        done: _Done | None = None
        error: str | None = None
        try:
            done = await self._work(ready)
        except (NodeFailed, ThingwayError) as failure:
            error = str(failure) or type(failure).__name__
        except TimeoutError:
            error = self._late(time.monotonic() - begun)
        except Exception as failure:
            log.exception("flow %s: node %s broke", self.run.flow_id, node.id)
            error = f"the node broke: {type(failure).__name__}"
        self._trace(
            node,
            "SUCCESS" if done else "ERROR",
            started,
            round((time.monotonic() - begun) * 1000),
            given=ready.text,
            parent=ready.parent,
            output=done.text if done else None,
            error=error,
        )
        if done is None:
            return self._dead(node.followers)
        self._outputs[node.id] = done.output
        self._answer(node, done.output)
        following = self._follow(node, done.followers, done.output, done.text)
        return [*following, *self._dead(done.barred)]

    async def _work(self, ready: _Ready) -> _Done:
        """Do the work of a node, and see that the log can show what came of it."""
        outcome, followers = await self._run(ready.node, ready.body), ready.node.followers
        barred: tuple[Follower, ...] = ()
        if isinstance(outcome, Chosen):
            followers, barred = _split(followers, outcome.handle)
            outcome = outcome.output
        text = ready.text if outcome is ready.body else self._text(outcome)
        return _Done(outcome, text, followers, barred)

    async def _run(self, node: PlanNode, body: Any) -> Any:
        loop = asyncio.get_running_loop()
        deadline = min(self._deadline, loop.time() + self.limits.node_seconds)
        if loop.time() >= self._deadline:
            raise NodeFailed(SPENT.format(self.limits.run_seconds))
        step = node.type
        assert isinstance(step, Step)  # noqa: S101 - a checked plan has entries nowhere else
        if not (step.repeatable or self._sealed or self.dry_run):
            await self.seal(self.run)
            self._sealed = True
        context = NodeContext(
            tenant=self.run.tenant,
            flow_id=self.run.flow_id or None,
            run_id=self.run.id,
            node_id=node.id,
            node_name=node.name,
            hops=self.run.cause.hops,
            dry_run=self.dry_run,
            deadline=deadline,
            properties=self._outputs,
        )
        async with asyncio.timeout_at(deadline):
            return await step.run(context, node.parameters, body)

    def _late(self, seconds: float) -> str:
        if asyncio.get_running_loop().time() >= self._deadline:
            return SPENT.format(self.limits.run_seconds)
        if seconds >= self.limits.node_seconds:
            return f"the node took longer than {self.limits.node_seconds:g} s"
        return "what the node asked did not answer in time"

    def _answer(self, node: PlanNode, outcome: Any) -> None:
        """Keep the output of the last node, or that of the last one that is there to answer."""
        answers = isinstance(node.type, Step) and node.type.answers
        if answers or not self._answered:
            self.run.output = outcome
        self._answered = self._answered or answers

    def _follow(
        self, source: PlanNode, followers: tuple[Follower, ...], output: Any, text: str | None
    ) -> list[_Ready]:
        """Go along edges; give the nodes that are ready now."""
        ready = []
        for edge in followers:
            arrival = _Arrival(edge.place, output, text, source.id)
            self._arrived.setdefault(edge.target, []).append(arrival)
            ready += self._close(edge.target)
        return ready

    def _dead(self, followers: tuple[Follower, ...]) -> list[_Ready]:
        """Close edges that are not followed, and all that only they lead to."""
        ready: list[_Ready] = []
        waiting = list(followers)
        while waiting:
            target = waiting.pop().target
            ready += self._close(target)
            if self._open[target] == 0 and target not in self._arrived:
                waiting += self.plan.nodes[target].followers
        return ready

    def _close(self, target: str) -> list[_Ready]:
        """Count down an edge of `target`; it is ready when none is open and one has arrived."""
        node = self.plan.nodes[target]
        self._open[target] = self._open.get(target, node.incoming) - 1
        arrived = self._arrived.get(target)
        if self._open[target] or not arrived:
            return []
        arrived.sort(key=lambda one: one.place)
        last = arrived[-1]
        if len(arrived) == 1:
            return [_Ready(node, last.output, last.text, last.source)]
        body = joined([one.output for one in arrived])
        return [_Ready(node, body, self._text(body), last.source)]

    def _text(self, value: Any) -> str | None:
        text = shown_text(value)
        if text is None:
            return None
        if len(text) > self._room:
            return '{"truncated":"","reason":"the trace is full"}'
        self._room -= len(text)
        return text

    def _trace(
        self,
        node: PlanNode,
        status: Any,
        started: int,
        cost: int,
        *,
        given: str | None = None,
        output: str | None = None,
        parent: str | None = None,
        error: str | None = None,
    ) -> None:
        self.run.traces.append(
            TraceItem(
                message_id=str(self.run.id),
                node_id=node.id,
                node_label=node.type.name,
                node_name=node.name,
                status=status,
                start_time=started,
                time_cost=cost,
                error_message=error,
                input=given,
                output=output,
                parent_trace_id=None if parent is None else f"{self.run.id}-{parent}",
            )
        )


def joined(outputs: list[Any]) -> Any:
    """What a join is given: maps in one, later edges of the design first; else the last output."""
    maps = [one for one in outputs if isinstance(one, dict)]
    if len(maps) < len(outputs):
        return outputs[-1]
    return {key: value for one in maps for key, value in one.items()}


def _split(
    followers: tuple[Follower, ...], handle: str | None
) -> tuple[tuple[Follower, ...], tuple[Follower, ...]]:
    """The edges of the branch that was chosen, and the others."""
    chosen = tuple(edge for edge in followers if edge.handle == handle and handle is not None)
    return chosen, tuple(edge for edge in followers if edge not in chosen)


def _now() -> int:
    return int(time.time() * 1000)
