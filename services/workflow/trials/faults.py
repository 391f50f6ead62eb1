"""Designs and nodes that cannot run, as the outcome of a test shows them. No I/O."""

from collections import defaultdict
from collections.abc import Iterable

from services.workflow.flows.deploying import refused
from services.workflow.graph.design import (
    DesignInvalid,
    DesignNode,
    Reason,
    read_design,
    read_node,
)
from services.workflow.graph.plan import name_of
from services.workflow.runs.records import Run, TraceItem


def faulty(text: str, error: DesignInvalid, run: Run) -> list[TraceItem]:
    """A trace with the nodes at fault; what is no node's fault stands with the first one.

    Raises `InvalidInput` for a text that is no design, or one without nodes.
    """
    try:
        nodes = {node.id: node for node in read_design(text).nodes}
    except DesignInvalid:
        nodes = {}
    if not nodes:
        raise refused(error) from error
    first = next(iter(nodes))
    reasons: dict[str, list[Reason]] = defaultdict(list)
    for one in error.reasons:
        reasons[one.node_id if one.node_id in nodes else first].append(one)
    return [_item(nodes[node_id], found, run) for node_id, found in reasons.items()]


def faulty_node(config: str, error: DesignInvalid, run: Run) -> TraceItem:
    """The trace of a node that is tested alone; raise `InvalidInput` for a text that is none."""
    try:
        node = read_node(config)
    except DesignInvalid:
        raise refused(error, "node_config") from error
    return _item(node, error.reasons, run)


def _item(node: DesignNode, reasons: Iterable[Reason], run: Run) -> TraceItem:
    return TraceItem(
        message_id=str(run.id),
        node_id=node.id,
        node_label=node.component_name,
        node_name=name_of(node),
        status="ERROR",
        start_time=run.started_at,
        time_cost=0,
        error_message="; ".join(f"{one.field}: {one.reason}" for one in reasons),
    )
