"""The edges of one run: which were followed, which never can be, and who is ready then. No I/O."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from services.workflow.graph.plan import Follower, Plan, PlanNode


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
