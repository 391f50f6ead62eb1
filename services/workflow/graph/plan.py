"""Plans: validated designs in the form that the engine runs. No I/O.

The structure of a design is validated first, then the parameters of its nodes.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from libs.common.decoding import parse_validation_error
from services.workflow.expressions.references import Reference, ReferenceInvalid, find_references
from services.workflow.graph.design import (
    Design,
    DesignFaultReason,
    DesignInvalid,
    DesignNode,
    decode_design,
)
from services.workflow.nodes.base import Entry, NodeRegistry, Step
from services.workflow.nodes.parameters import Parameters, convert_parameters

MAX_NODE_NAME_CHARACTERS = 50
"""Maximum characters of a node's name, as in editors."""
_match_node_id = re.compile(r"(?!_)[A-Za-z0-9_]{1,64}").fullmatch
"""Matches node ids that references support; editors generate such ids."""


@dataclass(frozen=True, slots=True)
class OutgoingEdge:
    """An edge in the plan of its source node."""

    target: str
    handle: str | None
    position: int
    """Position of the edge in the design; joins merge outputs in this order."""


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node with everything that the engine needs to run it."""

    id: str
    name: str
    type: Step[Any] | Entry[Any]
    parameters: Parameters
    outgoing_edges: tuple[OutgoingEdge, ...]
    incoming_edge_count: int
    """Number of incoming edges; a node with several is a join."""
    instant: bool = False
    """Whether it finishes immediately (`Step.is_instant`)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A design that can run; immutable, so that runs share it."""

    nodes: dict[str, PlanNode]
    entry: PlanNode
    raw_entry_parameters: dict[str, Any]
    """The parameters of the entry as they are in the design."""
    quick: bool = False
    """Whether all nodes are quick (`Step.is_quick`)."""


def compile_design(text: str, registry: NodeRegistry) -> Plan:
    """Return the plan of `design_data`; raise `DesignInvalid` with the reasons.

    The structure, the parameters and the branches are checked one after another. The reasons are
    those of the first check that fails.
    """
    design = decode_design(text)
    DesignInvalid.raise_if_any(find_structure_faults(design, registry))
    reasons: list[DesignFaultReason] = []
    node_ids = {node.id for node in design.nodes}
    parameters: dict[str, Parameters] = {}
    for node in design.nodes:
        node_parameters, faults = read_parameters(node, registry, node_ids)
        reasons += faults
        if node_parameters is not None:
            parameters[node.id] = node_parameters
    DesignInvalid.raise_if_any(reasons or find_branch_faults(design, registry, parameters))
    return _build_plan(design, registry, parameters)


def _build_plan(design: Design, registry: NodeRegistry, parameters: dict[str, Parameters]) -> Plan:
    outgoing_edges: dict[str, list[OutgoingEdge]] = defaultdict(list)
    incoming: dict[str, int] = defaultdict(int)
    for place, edge in enumerate(design.edges):
        outgoing_edges[edge.source].append(OutgoingEdge(edge.target, edge.source_handle, place))
        incoming[edge.target] += 1
    nodes = {}
    for node in design.nodes:
        kind, node_parameters = registry.find(node.component_name), parameters[node.id]
        assert isinstance(kind, Step | Entry)  # noqa: S101 - validated before
        nodes[node.id] = PlanNode(
            id=node.id,
            name=get_display_name(node),
            type=kind,
            parameters=node_parameters,
            outgoing_edges=tuple(outgoing_edges[node.id]),
            incoming_edge_count=incoming[node.id],
            instant=isinstance(kind, Step) and kind.is_instant(node_parameters),
        )
    (entry,) = find_start_nodes(design)
    quick = all(
        node.type.is_quick(node.parameters)
        for node in nodes.values()
        if isinstance(node.type, Step)
    )
    return Plan(nodes, nodes[entry.id], entry.data.parameters or {}, quick)


def get_display_name(node: DesignNode) -> str:
    """Return the display name of a node."""
    return node.data.node_name or node.id


def read_parameters(
    node: DesignNode, registry: NodeRegistry, node_ids: Collection[str]
) -> tuple[Parameters | None, list[DesignFaultReason]]:
    """Return the parameters as their struct, or None and why they are invalid.

    `node_ids` are the ids of nodes that references may name.
    """
    kind = registry.find(node.component_name)
    if kind is None:
        return None, [build_unknown_type_reason(node)]
    raw = node.data.parameters or {}
    reasons = list(_find_reference_faults(node, raw, kind.parameters.verbatim, node_ids))
    if node.data.node_name and len(node.data.node_name) > MAX_NODE_NAME_CHARACTERS:
        reasons.append(
            DesignFaultReason(
                node.id, "data.nodeName", f"must have at most {MAX_NODE_NAME_CHARACTERS} characters"
            )
        )
    try:
        parsed: Parameters = convert_parameters(kind.parameters, raw)
    except msgspec.ValidationError as error:
        wrong = parse_validation_error(str(error), "parameters")
        return None, [*reasons, DesignFaultReason(node.id, wrong.place, wrong.reason)]
    reasons += [
        _missing_node_reason(node, field, reference)
        for field, reference in parsed.find_verbatim_references()
        if reference.node not in node_ids
    ]
    reasons += [
        DesignFaultReason(node.id, f"parameters.{fault.field}", fault.reason)
        for fault in kind.find_faults(parsed)
    ]
    return (parsed, []) if not reasons else (None, reasons)


def build_unknown_type_reason(node: DesignNode) -> DesignFaultReason:
    """Return the reason for an unknown node type."""
    if not node.component_name:
        return DesignFaultReason(node.id, "componentName", "is required")
    text = f"node type {node.component_name:.50} does not exist; replace or remove the node"
    return DesignFaultReason(node.id, "componentName", text)


def _find_reference_faults(
    node: DesignNode, raw: dict[str, Any], verbatim: Collection[str], node_ids: Collection[str]
) -> Iterator[DesignFaultReason]:
    for field, value in raw.items():
        if field in verbatim:
            continue
        try:
            for reference in find_references(value):
                if reference.node not in node_ids:
                    yield _missing_node_reason(node, field, reference)
        except ReferenceInvalid as error:
            yield DesignFaultReason(node.id, f"parameters.{field}", str(error))


def _missing_node_reason(node: DesignNode, field: str, reference: Reference) -> DesignFaultReason:
    text = f"refers to node {reference.node}, which is not in the flow"
    return DesignFaultReason(node.id, f"parameters.{field}", text)


def find_structure_faults(design: Design, registry: NodeRegistry) -> list[DesignFaultReason]:
    """Return reasons why the graph cannot run, ignoring parameters.

    Entries and cycles are checked only if all ids, node types and edges are valid.
    """
    if not design.nodes:
        return [DesignFaultReason(None, "nodes", "must not be empty; add an entry node")]
    reasons = [
        *_find_id_faults(design),
        *_find_type_faults(design, registry),
        *_find_edge_faults(design),
    ]
    return reasons or [*_find_entry_faults(design, registry), *_find_cycle_faults(design)]


def find_start_nodes(design: Design) -> list[DesignNode]:
    """Return the nodes without incoming edges."""
    reached = {edge.target for edge in design.edges}
    return [node for node in design.nodes if node.id not in reached]


def _find_id_faults(design: Design) -> Iterator[DesignFaultReason]:
    for node_id, times in Counter(node.id for node in design.nodes).items():
        if times > 1:
            yield DesignFaultReason(node_id, "id", f"{times} nodes have this id; it must be unique")
        if not _match_node_id(node_id):
            text = "must have letters, digits and underscores only, without a leading underscore"
            yield DesignFaultReason(node_id[:100], "id", text)


def _find_type_faults(design: Design, registry: NodeRegistry) -> Iterator[DesignFaultReason]:
    for node in design.nodes:
        if registry.find(node.component_name) is None:
            yield build_unknown_type_reason(node)


def _find_edge_faults(design: Design) -> Iterator[DesignFaultReason]:
    node_ids = {node.id for node in design.nodes}
    for place, edge in enumerate(design.edges):
        for end, node_id in (("source", edge.source), ("target", edge.target)):
            if node_id not in node_ids:
                text = f"node {node_id:.100} does not exist; remove the edge"
                yield DesignFaultReason(None, f"edges[{place}].{end}", text)
    pairs = Counter((edge.source, edge.source_handle, edge.target) for edge in design.edges)
    for (source, _, target), times in pairs.items():
        if times > 1:
            yield DesignFaultReason(
                source, "edges", f"{times} edges lead to {target:.100}; keep one"
            )


def _find_entry_faults(design: Design, registry: NodeRegistry) -> Iterator[DesignFaultReason]:
    begins = find_start_nodes(design)
    if not begins:
        yield DesignFaultReason(
            None, "nodes", "all nodes have incoming edges; a flow needs an entry"
        )
    for node in begins:
        if not isinstance(registry.find(node.component_name), Entry):
            text = "has no incoming edge and is not an entry; connect or remove it"
            yield DesignFaultReason(node.id, "nodes", text)
        elif len(begins) > 1:
            text = "is one of several nodes without incoming edges; a flow has exactly one entry"
            yield DesignFaultReason(node.id, "nodes", text)
    first = {node.id for node in begins}
    for node in design.nodes:
        if node.id not in first and isinstance(registry.find(node.component_name), Entry):
            yield DesignFaultReason(
                node.id, "edges", "is an entry, which must not have incoming edges"
            )


def _find_cycle_faults(design: Design) -> Iterator[DesignFaultReason]:
    """Yield a reason for each node on a cycle, and for each node behind a cycle."""
    sorter = TopologicalSorter[str]()
    for edge in design.edges:
        sorter.add(edge.target, edge.source)
    with suppress(CycleError):  # nodes before a cycle are sorted nevertheless
        sorter.prepare()
    blocked = {edge.target for edge in design.edges}
    while ready := sorter.get_ready():
        blocked.difference_update(ready)
        sorter.done(*ready)
    for node in design.nodes:
        if node.id in blocked:
            yield DesignFaultReason(
                node.id, "edges", "is on or behind a cycle; remove an edge of the cycle"
            )


def find_branch_faults(
    design: Design, registry: NodeRegistry, parameters: Mapping[str, Parameters]
) -> list[DesignFaultReason]:
    """Return reasons for edges whose branch does not exist."""
    reasons: list[DesignFaultReason] = []
    branches = {
        node.id: set(kind.list_handles(parameters[node.id]))
        for node in design.nodes
        if isinstance(kind := registry.find(node.component_name), Step) and kind.forks
    }
    for place, edge in enumerate(design.edges):
        if edge.source in branches and edge.source_handle not in branches[edge.source]:
            name = edge.source_handle[:100] if edge.source_handle else "named here"
            text = f"{edge.source} has no branch {name}; connect an existing branch"
            reasons.append(DesignFaultReason(edge.source, f"edges[{place}].sourceHandle", text))
    return reasons
