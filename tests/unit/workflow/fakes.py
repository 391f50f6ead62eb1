"""Node types that tests play, and plans of them."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from services.workflow.engine.execution import Execution
from services.workflow.engine.queue import EngineLimits
from services.workflow.graph.plan import Plan, compile_design
from services.workflow.nodes.base import (
    BranchChoice,
    Entry,
    NodeContext,
    NodeRegistry,
    PaletteGroup,
    Step,
)
from services.workflow.nodes.parameters import Parameters
from services.workflow.runs.model import Cause, Run


class PlayedParameters(Parameters):
    """Which way to go, and anything."""

    way: str | None = None
    text: Any = None


class Begin(Entry[PlayedParameters]):
    """An entry."""

    name = "begin"
    title = description = "Begin"
    parameters = PlayedParameters


class Work(Step[PlayedParameters]):
    """A step with a given action that records its runs."""

    name = "work"
    title = description = "Work"
    group = PaletteGroup.ACTION
    parameters = PlayedParameters
    repeatable = True

    def __init__(self) -> None:
        self.ran: list[tuple[str, Any]] = []
        self.contexts: list[NodeContext] = []
        self.does: dict[str, Callable[[NodeContext, Any], Any]] = {}

    async def run(self, context: NodeContext, parameters: PlayedParameters, body: Any) -> Any:
        """Put out `{node: True}` unless the test says otherwise."""
        self.ran.append((context.node_id, body))
        self.contexts.append(context)
        if parameters.text is not None:
            return context.resolve_references(parameters.text)
        if context.node_id in self.does:
            found = self.does[context.node_id](context, body)
            return await found if asyncio.iscoroutine(found) else found
        return {context.node_id: True}


class Harm(Work):
    """The same, and must not be done twice."""

    name = "harm"
    repeatable = False


class Answer(Work):
    """A step whose output is the response of the flow."""

    name = "answer"
    answers = True


class Fork(Step[PlayedParameters]):
    """Goes the way of its parameters."""

    name = "fork"
    title = description = "Fork"
    group = PaletteGroup.CONTROL
    parameters = PlayedParameters
    repeatable = True
    forks = True

    def list_handles(self, parameters: PlayedParameters) -> list[str]:
        """Left and right."""
        return ["left", "right"]

    async def run(
        self, context: NodeContext, parameters: PlayedParameters, body: Any
    ) -> BranchChoice:
        """Choose."""
        return BranchChoice(parameters.way, body)


class Flow:
    """A design of fake nodes: `Flow("a>b b>c", fork="f")`. Names define the type."""

    def __init__(self, edges: str, **parameters: dict[str, Any]) -> None:
        self.work, self.harm, self.answer = Work(), Harm(), Answer()
        self.registry = NodeRegistry([Begin(), self.work, self.harm, self.answer, Fork()])
        pairs = [pair.split(">") for pair in edges.split()]
        names = dict.fromkeys(one.partition(":")[0] for pair in pairs for one in pair)
        self.text = json.dumps(
            {
                "nodes": [
                    {
                        "id": name,
                        "componentName": _type(name),
                        "data": {"nodeName": name, "parameters": parameters.get(name, {})},
                    }
                    for name in names
                ],
                "edges": [_edge(*pair) for pair in pairs],
            }
        )

    @property
    def plan(self) -> Plan:
        """Compiled."""
        return compile_design(self.text, self.registry)

    async def run(
        self, entered: Any = None, *, seals: list[Run] | None = None, **limits: float
    ) -> Run:
        """Run the flow; `seals` records sealed runs."""

        async def mark_unrepeatable(run: Run) -> None:
            if seals is not None:
                seals.append(run)

        run = Run(
            id=1,
            tenant="t",
            flow_id=2,
            version=3,
            cause=Cause(kind="EVENT", key="k", hops=4),
            entered={} if entered is None else entered,
            started_at=0,
        )
        await Execution(
            plan=self.plan,
            run=run,
            limits=EngineLimits(**limits),
            mark_unrepeatable=mark_unrepeatable,
        ).execute()
        return run


def _type(name: str) -> str:
    for kind in ("begin", "fork", "harm", "answer"):
        if name.startswith(kind):
            return kind
    return "work"


def _edge(source: str, target: str) -> dict[str, Any]:
    node, _, handle = source.partition(":")
    return {"source": node, "target": target} | ({"sourceHandle": handle} if handle else {})
