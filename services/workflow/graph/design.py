"""`design_data`: the JSON text of a design as editors write and need it. No I/O.

Editors keep much in it that is theirs (positions, sizes, a viewport); it is kept and not read.
An existing editor fails on a design without `nodes` and `edges`, and on a node without a
position or a type of its own: these are added on reading.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from libs.common.decoding import worded
from libs.common.errors import InvalidInput, TooLarge

T = TypeVar("T")

MOST_CHARACTERS = 1024 * 1024
"""Of one design."""
MOST_NODES = 500
MOST_EDGES = 2000


EDITOR_TYPES = {
    "simpleTimer": "timer",
    "eventListener": "listener",
    "choice": "ifelse",
    "entityAssigner": "assigner",
    "entitySelector": "select",
    "serviceInvocation": "service",
}
"""`type` of nodes that editors have under another name than their `componentName`."""
_COMPONENTS = {kind: component for component, kind in EDITOR_TYPES.items()}
FIELD = "design_data"
STEP_X, STEP_Y = 320, 160
"""Pixels between nodes that are given a place."""


class Reason(NamedTuple):
    """Why a design cannot run: where, and what to do."""

    node_id: str | None
    """None when no node is at fault alone."""
    field: str
    """`edges[3].target`, `parameters.webhookUrl`."""
    reason: str

    def shown(self) -> dict[str, str]:
        """As answers have it."""
        node = {} if self.node_id is None else {"node_id": self.node_id}
        return {**node, "field": self.field, "reason": self.reason}

    def __str__(self) -> str:
        node = "" if self.node_id is None else f"node {self.node_id}: "
        return f"{node}{self.field}: {self.reason}"


class DesignInvalid(Exception):
    """A design cannot run."""

    def __init__(self, reasons: list[Reason]) -> None:
        super().__init__("; ".join(map(str, reasons[:3])))
        self.reasons = reasons

    @classmethod
    def raise_for(cls, reasons: list[Reason]) -> None:
        """Raise the error if it has reasons."""
        if reasons:
            raise cls(reasons)


class NodeData(msgspec.Struct, rename="camel"):
    """What a node does and is called."""

    node_name: str | None = None
    parameters: dict[str, Any] | None = None


class DesignNode(msgspec.Struct, rename="camel"):
    """One node."""

    id: str
    component_name: str = ""
    data: NodeData = msgspec.field(default_factory=NodeData)
    type: Any = None
    """An editor sends nothing else of a node type that it does not know itself."""

    def __post_init__(self) -> None:
        """What `type` says where there is no `componentName`."""
        self.component_name = self.component_name or _component_of(self.type)


class DesignEdge(msgspec.Struct, rename="camel"):
    """One edge; `source_handle` is the branch of a fork that it begins at."""

    source: str
    target: str
    source_handle: str | None = None


class Design(msgspec.Struct):
    """What of a design is run."""

    nodes: list[DesignNode] = []
    edges: list[DesignEdge] = []


def component_of(node: Mapping[str, Any]) -> str:
    """`componentName` of a node of a draft, which may have anything anywhere."""
    return str(node.get("componentName") or _component_of(node.get("type")))


def _component_of(kind: Any) -> str:
    return _COMPONENTS.get(kind, kind) if isinstance(kind, str) else ""


_decode = msgspec.json.Decoder(Design).decode
_decode_node = msgspec.json.Decoder(DesignNode).decode


def read_design(text: str) -> Design:
    """Read `design_data`; raise `DesignInvalid`."""
    design = _read(text, _decode, "design_data")
    for name, found, most in (
        ("nodes", len(design.nodes), MOST_NODES),
        ("edges", len(design.edges), MOST_EDGES),
    ):
        if found > most:
            raise DesignInvalid([Reason(None, name, f"has {found}, at most {most}")])
    return design


def read_node(text: str) -> DesignNode:
    """Read one node as designs have it; raise `DesignInvalid`."""
    return _read(text, _decode_node, "node_config")


def _read(text: str, decode: Callable[[str], T], field: str) -> T:
    if len(text) > MOST_CHARACTERS:
        reason = f"has more than {MOST_CHARACTERS} characters; split the flow"
        raise DesignInvalid([Reason(None, field, reason)])
    try:
        return decode(text)
    except msgspec.ValidationError as error:
        wrong = worded(str(error), field)
        raise DesignInvalid([Reason(None, wrong.place, wrong.reason)]) from error
    except (msgspec.DecodeError, RecursionError) as error:
        reason = f"cannot be read as JSON: {error or 'nested too deep'}"
        raise DesignInvalid([Reason(None, field, reason)]) from error


def storable(text: str | None) -> str:
    """`design_data` as it may be kept, also that of a draft.

    Raises `TooLarge`, or `InvalidInput` for what no editor could open again.
    """
    if not text:
        return "{}"
    if len(text) > MOST_CHARACTERS:
        raise TooLarge(f"must have at most {MOST_CHARACTERS} characters", field=FIELD)
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput("must be JSON", field=FIELD) from error
    if not isinstance(found, dict):
        raise InvalidInput("must be a JSON object", field=FIELD)
    for name in ("nodes", "edges"):
        rows = found.get(name) or []
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InvalidInput(f"{name} must be an array of objects", field=FIELD)
    return text


def openable(text: str) -> str:
    """`design_data` with all that editors need; the very same when nothing is missing."""
    design = msgspec.json.decode(text)
    changed = False
    for name in ("nodes", "edges"):
        if not isinstance(design.get(name), list):
            design[name], changed = [], True
    nodes, edges = design["nodes"], design["edges"]
    if not all(map(_complete, nodes)):
        places, changed = _places(nodes, edges), True
        for node, place in zip(nodes, places, strict=True):
            _complete_with(node, place)
    return msgspec.json.encode(design).decode() if changed else text


def _complete(node: dict[str, Any]) -> bool:
    return (
        _placed(node) and isinstance(node.get("type"), str) and isinstance(node.get("data"), dict)
    )


def _placed(node: dict[str, Any]) -> bool:
    position = node.get("position")
    return isinstance(position, dict) and all(
        isinstance(position.get(axis), int | float) for axis in ("x", "y")
    )


def _complete_with(node: dict[str, Any], place: dict[str, int]) -> None:
    component = component_of(node)
    if not _placed(node):
        node["position"] = place
    if not isinstance(node.get("type"), str):
        node["type"] = EDITOR_TYPES.get(component, component)
    if not isinstance(node.get("data"), dict):
        node["data"] = {}


def _places(nodes: list[dict[str, Any]], edges: list[dict[str, Any]]) -> list[dict[str, int]]:
    """A place for each node: as far to the right as it is from the entry."""
    followers: dict[Any, list[Any]] = defaultdict(list)
    for edge in edges:
        followers[str(edge.get("source"))].append(str(edge.get("target")))
    reached = {str(edge.get("target")) for edge in edges}
    ids = [str(node.get("id")) for node in nodes]
    depth = {one: 0 for one in ids if one not in reached}
    waiting = list(depth)
    for one in waiting:  # grows while it is walked; each node is put in it once
        for target in followers[one]:
            if target not in depth:
                depth[target] = depth[one] + 1
                waiting.append(target)
    rows: dict[int, int] = defaultdict(int)
    places = []
    for one in ids:
        column = depth.get(one, 0)
        places.append({"x": column * STEP_X, "y": rows[column] * STEP_Y})
        rows[column] += 1
    return places
