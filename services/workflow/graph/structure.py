"""Checks how the nodes of a design hang together. No I/O."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from services.workflow.graph.design import Design, DesignNode, Reason
from services.workflow.graph.parameters import unknown
from services.workflow.nodes.base import Entry, Parameters, Registry, Step

_ID = re.compile(r"(?!_)[A-Za-z0-9_]{1,64}").fullmatch
"""Ids of nodes, as editors make them; references can name no others."""


def structure_faults(design: Design, registry: Registry) -> list[Reason]:
    """Every reason why the graph cannot run; parameters are not looked at."""
    if not design.nodes:
        return [Reason(None, "nodes", "there are none; add an entry")]
    reasons = [*_ids(design), *_types(design, registry), *_edges(design)]
    return reasons or [*_entry(design, registry), *_cycles(design)]


def entries_of(design: Design) -> list[DesignNode]:
    """The nodes that no edge leads to."""
    reached = {edge.target for edge in design.edges}
    return [node for node in design.nodes if node.id not in reached]


def _ids(design: Design) -> Iterator[Reason]:
    for node_id, times in Counter(node.id for node in design.nodes).items():
        if times > 1:
            yield Reason(node_id, "id", f"{times} nodes have this id; give each its own")
        if not _ID(node_id):
            text = "must be letters, digits and underscores, and not begin with one"
            yield Reason(node_id[:100], "id", text)


def _types(design: Design, registry: Registry) -> Iterator[Reason]:
    for node in design.nodes:
        if registry.find(node.component_name) is None:
            yield unknown(node)


def _edges(design: Design) -> Iterator[Reason]:
    known = {node.id for node in design.nodes}
    for place, edge in enumerate(design.edges):
        for end, node_id in (("source", edge.source), ("target", edge.target)):
            if node_id not in known:
                text = f"there is no node {node_id:.100}; remove the edge"
                yield Reason(None, f"edges[{place}].{end}", text)
    pairs = Counter((edge.source, edge.source_handle, edge.target) for edge in design.edges)
    for (source, _, target), times in pairs.items():
        if times > 1:
            yield Reason(source, "edges", f"{times} edges lead to {target:.100}; leave one")


def _entry(design: Design, registry: Registry) -> Iterator[Reason]:
    begins = entries_of(design)
    if not begins:
        yield Reason(None, "nodes", "every node has one before it; a flow needs an entry")
    for node in begins:
        if not isinstance(registry.find(node.component_name), Entry):
            text = "nothing leads here; connect it, or begin the flow with an entry"
            yield Reason(node.id, "nodes", text)
        elif len(begins) > 1:
            text = "is one of several nodes that nothing leads to; a flow has exactly one entry"
            yield Reason(node.id, "nodes", text)
    first = {node.id for node in begins}
    for node in design.nodes:
        if node.id not in first and isinstance(registry.find(node.component_name), Entry):
            yield Reason(node.id, "edges", "is an entry; no edge may lead to it")


def _cycles(design: Design) -> Iterator[Reason]:
    """Take away what nothing leads to until nothing is left, or a cycle."""
    followers: dict[str, list[str]] = defaultdict(list)
    before: Counter[str] = Counter()
    for edge in design.edges:
        followers[edge.source].append(edge.target)
        before[edge.target] += 1
    free = [node.id for node in design.nodes if not before[node.id]]
    while free:
        for target in followers.pop(free.pop(), ()):
            before[target] -= 1
            if not before[target]:
                free.append(target)
    for node in design.nodes:
        if before[node.id] > 0:
            yield Reason(node.id, "edges", "is on a cycle or behind one; remove an edge of it")


def handle_faults(
    design: Design, registry: Registry, parameters: Mapping[str, Parameters]
) -> list[Reason]:
    """Edges that begin at a branch which their node has not."""
    reasons: list[Reason] = []
    branches: dict[str, set[str]] = {}
    for node in design.nodes:
        kind = registry.find(node.component_name)
        if isinstance(kind, Step) and kind.forks:
            branches[node.id] = set(kind.handles(parameters[node.id]))
    for place, edge in enumerate(design.edges):
        if edge.source in branches and edge.source_handle not in branches[edge.source]:
            what = (
                f"branch {edge.source_handle:.100}" if edge.source_handle else "branch named here"
            )
            text = f"{edge.source} has no {what}; connect one that it has"
            reasons.append(Reason(edge.source, f"edges[{place}].sourceHandle", text))
    return reasons
