"""Plans: designs that have been checked, in the form that the engine runs. No I/O.

A design is checked in its structure first, then in the parameters of its nodes.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from libs.common.decoding import worded
from services.workflow.expressions.references import Reference, ReferenceInvalid, references_in
from services.workflow.graph.design import Design, DesignInvalid, DesignNode, Reason, read_design
from services.workflow.nodes.base import Entry, Registry, Step
from services.workflow.nodes.parameters import Parameters, read

MOST_NAME = 50
"""Characters of a node's name; editors have the same limit."""
_ID = re.compile(r"(?!_)[A-Za-z0-9_]{1,64}").fullmatch
"""Ids of nodes, as editors make them; references can name no others."""


@dataclass(frozen=True, slots=True)
class Follower:
    """An edge, seen from its source."""

    target: str
    handle: str | None
    place: int
    """Of the edge in the design; joins put outputs together in this order."""


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node with all that is needed to run it."""

    id: str
    name: str
    type: Step[Any] | Entry[Any]
    parameters: Parameters
    followers: tuple[Follower, ...]
    incoming: int
    """Edges that lead here; more than one make it a join."""
    instant: bool = False
    """Whether it is done at once (`Step.instant`)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A design that can run; immutable, so that runs share it."""

    nodes: dict[str, PlanNode]
    entry: PlanNode
    raw_entry: dict[str, Any]
    """The entry's parameters as the design has them."""
    quick: bool = False
    """Whether every node is (`Step.quick`)."""


def compile_design(text: str, registry: Registry) -> Plan:
    """The plan of `design_data`; raise `DesignInvalid` with every reason."""
    design = read_design(text)
    DesignInvalid.raise_for(structure_faults(design, registry))
    reasons: list[Reason] = []
    known = {node.id for node in design.nodes}
    parameters: dict[str, Parameters] = {}
    for node in design.nodes:
        found, faults = read_parameters(node, registry, known)
        reasons += faults
        if found is not None:
            parameters[node.id] = found
    DesignInvalid.raise_for(reasons or handle_faults(design, registry, parameters))
    return _plan(design, registry, parameters)


def _plan(design: Design, registry: Registry, parameters: dict[str, Parameters]) -> Plan:
    followers: dict[str, list[Follower]] = defaultdict(list)
    incoming: dict[str, int] = defaultdict(int)
    for place, edge in enumerate(design.edges):
        followers[edge.source].append(Follower(edge.target, edge.source_handle, place))
        incoming[edge.target] += 1
    nodes = {}
    for node in design.nodes:
        kind, given = registry.find(node.component_name), parameters[node.id]
        assert isinstance(kind, Step | Entry)  # noqa: S101 - it was looked up before
        nodes[node.id] = PlanNode(
            id=node.id,
            name=name_of(node),
            type=kind,
            parameters=given,
            followers=tuple(followers[node.id]),
            incoming=incoming[node.id],
            instant=isinstance(kind, Step) and kind.instant(given),
        )
    (entry,) = entries_of(design)
    quick = all(
        node.type.quick(node.parameters) for node in nodes.values() if isinstance(node.type, Step)
    )
    return Plan(nodes, nodes[entry.id], entry.data.parameters or {}, quick)


def name_of(node: DesignNode) -> str:
    """What people call a node."""
    return node.data.node_name or node.id


def read_parameters(
    node: DesignNode, registry: Registry, known: Collection[str]
) -> tuple[Parameters | None, list[Reason]]:
    """The parameters as their struct, or every reason why they cannot be that.

    `known` are the ids that references may be to.
    """
    kind = registry.find(node.component_name)
    if kind is None:
        return None, [unknown(node)]
    raw = node.data.parameters or {}
    reasons = list(_references(node, raw, kind.parameters.verbatim, known))
    if node.data.node_name and len(node.data.node_name) > MOST_NAME:
        reasons.append(Reason(node.id, "data.nodeName", f"has more than {MOST_NAME} characters"))
    try:
        found: Parameters = read(kind.parameters, raw)
    except msgspec.ValidationError as error:
        wrong = worded(str(error), "parameters")
        return None, [*reasons, Reason(node.id, wrong.place, wrong.reason)]
    reasons += [
        _absent(node, field, one) for field, one in found.references() if one.node not in known
    ]
    reasons += [
        Reason(node.id, f"parameters.{one.field}", one.reason) for one in kind.faults(found)
    ]
    return (found, []) if not reasons else (None, reasons)


def unknown(node: DesignNode) -> Reason:
    """Nothing is known of the node's type."""
    if not node.component_name:
        return Reason(node.id, "componentName", "is required")
    text = f"there is no node type {node.component_name:.50}; remove the node or use another one"
    return Reason(node.id, "componentName", text)


def _references(
    node: DesignNode, raw: dict[str, Any], verbatim: Collection[str], known: Collection[str]
) -> Iterator[Reason]:
    for field, value in raw.items():
        if field in verbatim:
            continue
        try:
            for reference in references_in(value):
                if reference.node not in known:
                    yield _absent(node, field, reference)
        except ReferenceInvalid as error:
            yield Reason(node.id, f"parameters.{field}", str(error))


def _absent(node: DesignNode, field: str, reference: Reference) -> Reason:
    text = f"refers to node {reference.node}, which the flow has not"
    return Reason(node.id, f"parameters.{field}", text)


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
    """Name the nodes that no order of the graph can have."""
    sorter = TopologicalSorter[str]()
    for edge in design.edges:
        sorter.add(edge.target, edge.source)
    with suppress(CycleError):  # it sorts what is before a cycle all the same
        sorter.prepare()
    blocked = {edge.target for edge in design.edges}
    while ready := sorter.get_ready():
        blocked.difference_update(ready)
        sorter.done(*ready)
    for node in design.nodes:
        if node.id in blocked:
            yield Reason(node.id, "edges", "is on a cycle or behind one; remove an edge of it")


def handle_faults(
    design: Design, registry: Registry, parameters: Mapping[str, Parameters]
) -> list[Reason]:
    """Edges that begin at a branch which their node has not."""
    reasons: list[Reason] = []
    branches = {
        node.id: set(kind.handles(parameters[node.id]))
        for node in design.nodes
        if isinstance(kind := registry.find(node.component_name), Step) and kind.forks
    }
    for place, edge in enumerate(design.edges):
        if edge.source in branches and edge.source_handle not in branches[edge.source]:
            name = edge.source_handle[:100] if edge.source_handle else "named here"
            text = f"{edge.source} has no branch {name}; connect one that it has"
            reasons.append(Reason(edge.source, f"edges[{place}].sourceHandle", text))
    return reasons
