"""`design_data`: the JSON text of a design as editors write it. No I/O.

Editors keep much in it that is theirs (positions, sizes, a viewport); it is kept and not read.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from libs.common.decoding import worded

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
