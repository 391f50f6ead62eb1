"""`design_data`: the JSON text of a design in the form of editors. No I/O.

Editors store fields of their own in it (positions, sizes, a viewport), which are kept and ignored.
An existing editor fails on a design without `nodes` and `edges`, and on a node without a position
or type. These are added on reading.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from libs.common.decoding import parse_validation_error
from libs.common.errors import InvalidInput, TooLarge

T = TypeVar("T")

MAX_DESIGN_CHARACTERS = 1024 * 1024
"""Maximum characters of a design."""
MAX_NODES = 500
MAX_EDGES = 2000


EDITOR_TYPES_BY_COMPONENT = {
    "simpleTimer": "timer",
    "eventListener": "listener",
    "choice": "ifelse",
    "entityAssigner": "assigner",
    "entitySelector": "select",
    "serviceInvocation": "service",
}
"""Node types whose `type` in editors differs from their `componentName`."""
_COMPONENTS_BY_EDITOR_TYPE = {
    kind: component for component, kind in EDITOR_TYPES_BY_COMPONENT.items()
}
DESIGN_FIELD = "design_data"
NODE_SPACING_X, NODE_SPACING_Y = 320, 160
"""Pixels between nodes without a position."""


class DesignFaultReason(NamedTuple):
    """A reason why a design cannot run: the place, and what to do."""

    node_id: str | None
    """None if the reason concerns no single node."""
    field: str
    """Path of the invalid field, for example `edges[3].target` or `parameters.webhookUrl`."""
    reason: str

    def to_detail(self) -> dict[str, str]:
        """Return the reason in the form of responses."""
        node = {} if self.node_id is None else {"node_id": self.node_id}
        return {**node, "field": self.field, "reason": self.reason}

    def __str__(self) -> str:
        node = "" if self.node_id is None else f"node {self.node_id}: "
        return f"{node}{self.field}: {self.reason}"


class DesignInvalid(Exception):
    """A design cannot run."""

    def __init__(self, reasons: list[DesignFaultReason]) -> None:
        super().__init__("; ".join(map(str, reasons[:3])))
        self.reasons = reasons

    @classmethod
    def raise_if_any(cls, reasons: list[DesignFaultReason]) -> None:
        """Raise the error if it has reasons."""
        if reasons:
            raise cls(reasons)


class NodeData(msgspec.Struct, rename="camel"):
    """Name and parameters of a node."""

    node_name: str | None = None
    parameters: dict[str, Any] | None = None


class DesignNode(msgspec.Struct, rename="camel"):
    """A node."""

    id: str
    component_name: str = ""
    data: NodeData = msgspec.field(default_factory=NodeData)
    type: Any = None
    """Node type in editors. For types that an editor does not know, `component_name` is missing."""

    def __post_init__(self) -> None:
        """Derive a missing `component_name` from `type`."""
        self.component_name = self.component_name or _map_to_component(self.type)


class DesignEdge(msgspec.Struct, rename="camel"):
    """An edge. `source_handle` is the branch of a fork where it starts."""

    source: str
    target: str
    source_handle: str | None = None


class Design(msgspec.Struct):
    """The parts of a design that the engine uses."""

    nodes: list[DesignNode] = []
    edges: list[DesignEdge] = []


def read_component_name(node: Mapping[str, Any]) -> str:
    """Return the component name of a node of a draft, which may contain anything."""
    return str(node.get("componentName") or _map_to_component(node.get("type")))


def _map_to_component(kind: Any) -> str:
    return _COMPONENTS_BY_EDITOR_TYPE.get(kind, kind) if isinstance(kind, str) else ""


_decode_design = msgspec.json.Decoder(Design).decode
_decode_node = msgspec.json.Decoder(DesignNode).decode


def decode_design(text: str) -> Design:
    """Parse `design_data`; raise `DesignInvalid`."""
    design = _decode_limited(text, _decode_design, "design_data")
    for name, parts, maximum in (
        ("nodes", len(design.nodes), MAX_NODES),
        ("edges", len(design.edges), MAX_EDGES),
    ):
        if parts > maximum:
            raise DesignInvalid(
                [DesignFaultReason(None, name, f"must have at most {maximum} items. Got {parts}.")]
            )
    return design


def decode_node(text: str) -> DesignNode:
    """Parse a single node of a design; raise `DesignInvalid`."""
    return _decode_limited(text, _decode_node, "node_config")


def _decode_limited(text: str, decode: Callable[[str], T], field: str) -> T:
    if len(text) > MAX_DESIGN_CHARACTERS:
        reason = f"must have at most {MAX_DESIGN_CHARACTERS} characters; split the flow"
        raise DesignInvalid([DesignFaultReason(None, field, reason)])
    try:
        return decode(text)
    except msgspec.ValidationError as error:
        wrong = parse_validation_error(str(error), field)
        raise DesignInvalid([DesignFaultReason(None, wrong.place, wrong.reason)]) from error
    except (msgspec.DecodeError, RecursionError) as error:
        reason = f"must be JSON: {error or 'nested too deep'}"
        raise DesignInvalid([DesignFaultReason(None, field, reason)]) from error


def prepare_to_store(text: str | None) -> str:
    """Return `design_data` to store, `{}` if it is empty.

    It may be a draft that cannot run. Raises `TooLarge`, or `InvalidInput` for a text that editors
    cannot open.
    """
    if not text:
        return "{}"
    if len(text) > MAX_DESIGN_CHARACTERS:
        raise TooLarge(f"must have at most {MAX_DESIGN_CHARACTERS} characters", field=DESIGN_FIELD)
    try:
        design = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput("must be JSON", field=DESIGN_FIELD) from error
    if not isinstance(design, dict):
        raise InvalidInput("must be a JSON object", field=DESIGN_FIELD)
    for name in ("nodes", "edges"):
        rows = design.get(name) or []
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InvalidInput(f"{name} must be an array of objects", field=DESIGN_FIELD)
    return text


def add_editor_fields(text: str) -> str:
    """Return `design_data` with all fields that editors need, unchanged if complete."""
    design = msgspec.json.decode(text)
    changed = False
    for name in ("nodes", "edges"):
        if not isinstance(design.get(name), list):
            design[name], changed = [], True
    nodes, edges = design["nodes"], design["edges"]
    if not all(map(_has_editor_fields, nodes)):
        places, changed = _compute_positions(nodes, edges), True
        for node, place in zip(nodes, places, strict=True):
            _add_node_fields(node, place)
    return msgspec.json.encode(design).decode() if changed else text


def _has_editor_fields(node: dict[str, Any]) -> bool:
    return (
        _has_position(node)
        and isinstance(node.get("type"), str)
        and isinstance(node.get("data"), dict)
    )


def _has_position(node: dict[str, Any]) -> bool:
    position = node.get("position")
    return isinstance(position, dict) and all(
        isinstance(position.get(axis), int | float) for axis in ("x", "y")
    )


def _add_node_fields(node: dict[str, Any], place: dict[str, int]) -> None:
    component = read_component_name(node)
    if not _has_position(node):
        node["position"] = place
    if not isinstance(node.get("type"), str):
        node["type"] = EDITOR_TYPES_BY_COMPONENT.get(component, component)
    if not isinstance(node.get("data"), dict):
        node["data"] = {}


def _compute_positions(
    nodes: list[dict[str, Any]], edges: list[dict[str, Any]]
) -> list[dict[str, int]]:
    """Return positions of nodes: the column is the distance from the entry."""
    followers: dict[Any, list[Any]] = defaultdict(list)
    for edge in edges:
        followers[str(edge.get("source"))].append(str(edge.get("target")))
    reached = {str(edge.get("target")) for edge in edges}
    ids = [str(node.get("id")) for node in nodes]
    depth = {node_id: 0 for node_id in ids if node_id not in reached}
    waiting = list(depth)
    for node_id in waiting:  # grows during the loop; each node is added once
        for target in followers[node_id]:
            if target not in depth:
                depth[target] = depth[node_id] + 1
                waiting.append(target)
    rows: dict[int, int] = defaultdict(int)
    places = []
    for node_id in ids:
        column = depth.get(node_id, 0)
        places.append({"x": column * NODE_SPACING_X, "y": rows[column] * NODE_SPACING_Y})
        rows[column] += 1
    return places
