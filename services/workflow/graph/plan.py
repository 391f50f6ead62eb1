"""Plans: designs that have been checked, in the form that the engine runs. No I/O."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from services.workflow.graph.design import Design, DesignInvalid, DesignNode, read_design
from services.workflow.graph.parameters import read_parameters
from services.workflow.graph.structure import entries_of, handle_faults, structure_faults
from services.workflow.nodes.base import Entry, Parameters, Registry, Step


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
    reasons = structure_faults(design, registry)
    if reasons:
        raise DesignInvalid(reasons)
    known = {node.id for node in design.nodes}
    parameters: dict[str, Parameters] = {}
    for node in design.nodes:
        found, faults = read_parameters(node, registry, known)
        reasons += faults
        if found is not None:
            parameters[node.id] = found
    reasons = reasons or handle_faults(design, registry, parameters)
    if reasons:
        raise DesignInvalid(reasons)
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
