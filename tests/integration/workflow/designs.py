"""Designs that tests save and run."""

import json
from typing import Any

Node = dict[str, Any]


def node(node_id: str, component: str, **parameters: Any) -> Node:
    """A node as editors write it."""
    return {
        "id": node_id,
        "componentName": component,
        "type": component,
        "position": {"x": 0, "y": 0},
        "data": {"nodeName": node_id.upper(), "parameters": parameters},
    }


def edge(source: str, target: str, handle: str | None = None) -> dict[str, Any]:
    """An edge."""
    found = {"id": f"{source}_{target}", "source": source, "target": target}
    return found if handle is None else {**found, "sourceHandle": handle}


def design(nodes: list[Node], *edges: dict[str, Any]) -> str:
    """`design_data`."""
    viewport = {"x": 0, "y": 0, "zoom": 1}
    return json.dumps({"nodes": nodes, "edges": list(edges), "viewport": viewport})


def trigger(*inputs: tuple[str, str]) -> Node:
    """A trigger with inputs of a type."""
    configs = [{"identify": one, "name": f"The {one}", "type": kind} for one, kind in inputs]
    return node("start", "trigger", entityConfigs=configs)


def when(branch: str, key: Any, operator: str, value: Any) -> dict[str, Any]:
    """A branch with one comparison."""
    compared = {"key": key, "operator": operator, "value": value}
    return {
        "id": branch,
        "logicOperator": "AND",
        "expressionType": "condition",
        "conditions": [{"expressionValue": compared}],
    }


def choice(*branches: dict[str, Any], node_id: str = "fork", otherwise: str = "else") -> Node:
    """A fork."""
    return node(node_id, "choice", choice={"when": list(branches), "otherwise": {"id": otherwise}})


HOT = "direct.device.SN1.alarm"
TEMPERATURE = "#{properties.start['temperature']}"


def alarm() -> str:
    """Trigger → choice → assigner: above 30 degrees an alarm is set."""
    return design(
        [
            trigger(("temperature", "DOUBLE")),
            choice(when("hot", TEMPERATURE, "GT", "30")),
            node("set", "entityAssigner", exchangePayload={HOT: TEMPERATURE}),
        ],
        edge("start", "fork"),
        edge("fork", "set", "hot"),
    )
