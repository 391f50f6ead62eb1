"""Reads and checks the parameters of one node. No I/O."""

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from libs.common.decoding import worded
from services.workflow.expressions.references import Reference, ReferenceInvalid, references_in
from services.workflow.graph.design import DesignNode, Reason
from services.workflow.nodes.base import Parameters, Registry
from services.workflow.nodes.reading import read

MOST_NAME = 50
"""Characters of a node's name; editors have the same limit."""


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
