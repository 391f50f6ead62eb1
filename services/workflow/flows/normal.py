"""Designs as editors need them: what they cannot do without is added on reading.

An existing editor fails on a design without `nodes` and `edges`, and on a node without a
position or a type of its own. No I/O.
"""

from collections import defaultdict
from typing import Any

import msgspec

from libs.common.errors import InvalidInput, TooLarge
from services.workflow.graph.design import EDITOR_TYPES, MOST_CHARACTERS, component_of

FIELD = "design_data"
STEP_X, STEP_Y = 320, 160
"""Pixels between nodes that are given a place."""


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
