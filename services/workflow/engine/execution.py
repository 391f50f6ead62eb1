"""One run of a plan, from its entry to the end of every path.

Branches run in parallel; a node that several edges lead to (a join) waits until each of them
was followed or has become impossible, and runs once. A node that fails ends its path and makes
the run an error; the other paths go on.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import msgspec

from libs.common.clock import now_ms
from libs.common.errors import ThingwayError
from libs.common.telemetry.tracing import step
from services.workflow.engine.edges import Edges, Ready, split
from services.workflow.engine.queue import Limits
from services.workflow.engine.trace import Trace
from services.workflow.errors import NodeFailed, NotKnown
from services.workflow.graph.plan import Follower, Plan, PlanNode
from services.workflow.nodes.base import Chosen, Group, NodeContext, Step, Supposed
from services.workflow.runs.records import Run

log = logging.getLogger(__name__)

Seal = Callable[[Run], Awaitable[None]]
"""Records that the run does, from now on, what must not be done twice."""
Turn = Callable[[], AbstractAsyncContextManager[None]]
"""Waits for the turn of a node that talks to other systems, and holds its place."""

SPENT = "the run took longer than {:g} s"


class _Done(msgspec.Struct, frozen=True):
    """What came of a node."""

    output: Any
    text: str | None
    """`output` as the trace shows it."""
    followers: tuple[Follower, ...]
    """Edges to follow."""
    barred: tuple[Follower, ...]
    """Edges of the branches that were not taken."""


class Execution:
    """Runs a plan for a run, whose traces, status and output it fills in."""

    def __init__(
        self,
        *,
        plan: Plan,
        run: Run,
        limits: Limits,
        seal: Seal,
        turn: Turn = nullcontext,
        dry_run: bool = False,
    ) -> None:
        self._plan = plan
        self._run = run
        self._limits = limits
        self._seal = seal
        self._turn = turn
        self._dry_run = dry_run
        self._trace = Trace(run)
        self._edges = Edges(plan, self._trace.text_of)
        self._outputs: dict[str, Any] = {}
        self._supposed: set[str] = set()
        self._notes: dict[str, list[str]] = {}
        self._clock = asyncio.get_running_loop().time
        self._deadline = 0.0
        self._sealed = False
        self._answered = False

    async def go(self, outputs: Mapping[str, Any] | None = None) -> None:
        """Run to the end, as if nodes had put out `outputs`; raises nothing but a cancellation."""
        run, entry, begun = self._run, self._plan.entry, time.monotonic()
        self._deadline = self._clock() + self._limits.run_seconds
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
            with step(f"node {node.type.name}", attributes={"thingway.node": node.id}):
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
            log.exception("flow %s: node %s broke", self._run.flow_id, node.id)
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
        if isinstance(outcome, Supposed):
            self._supposed.add(ready.node.id)
            outcome = outcome.output
        if isinstance(outcome, Chosen):
            followers, barred = split(followers, outcome.handle)
            outcome = outcome.output
        text = ready.text if outcome is ready.body else self._trace.text_of(outcome)
        return _Done(outcome, text, followers, barred)

    async def _step(self, node: PlanNode, body: Any) -> Any:
        run, now = self._run, self._clock()
        if now >= self._deadline:
            raise NodeFailed(SPENT.format(self._limits.run_seconds))
        step = node.type
        assert isinstance(step, Step)  # noqa: S101 - a checked plan has entries nowhere else
        if not (step.repeatable or self._sealed or self._dry_run):
            await self._seal(run)
            self._sealed = True
        context = NodeContext(
            tenant=run.tenant,
            flow_id=run.flow_id or None,
            run_id=run.id,
            node_id=node.id,
            node_name=node.name,
            hops=run.cause.hops,
            dry_run=self._dry_run,
            deadline=min(self._deadline, now + self._limits.node_seconds),
            properties=self._outputs,
            supposed=self._supposed,
            notes=self._notes.setdefault(node.id, []),
        )
        if node.instant:
            return await step.run(context, node.parameters, body)
        turn = self._turn if step.group is Group.EXTERNAL else nullcontext
        async with asyncio.timeout_at(context.deadline), turn():
            return await step.run(context, node.parameters, body)

    def _late(self, seconds: float) -> str:
        if self._clock() >= self._deadline:
            return SPENT.format(self._limits.run_seconds)
        if seconds >= self._limits.node_seconds:
            return f"the node took longer than {self._limits.node_seconds:g} s"
        return "what the node asked did not answer in time"

    def _answer(self, node: PlanNode, output: Any) -> None:
        """Keep the output of the last node, or that of the last one that is there to answer."""
        answers = isinstance(node.type, Step) and node.type.answers
        if answers or not self._answered:
            self._run.output = output
        self._answered = self._answered or answers


def _since(begun: float) -> int:
    """Milliseconds."""
    return round((time.monotonic() - begun) * 1000)
