"""Booleans as makers' codecs give them: 0 and 1."""

from collections.abc import Mapping
from typing import Any

from libs.common.tsl._node import Node


def booleans(members: Mapping[str, Node]) -> dict[str, Any]:
    """Where a tree has booleans: True for one, and what is below for what holds some."""
    found = {key: _below(node) for key, node in members.items()}
    return {key: below for key, below in found.items() if below}


def _below(node: Node) -> Any:
    if node.kind == "BOOL":
        return True
    if node.element is not None:
        return [below] if (below := _below(node.element)) else None
    return booleans(node.members)


def with_booleans(places: Any, value: Any) -> Any:
    """`value` with 0 and 1 made booleans, where a tree has some."""
    if places is True:
        return bool(value) if type(value) in {int, float} and value in {0, 1} else value
    if isinstance(places, list) and isinstance(value, list):
        return [with_booleans(places[0], one) for one in value]
    if isinstance(places, dict) and isinstance(value, dict):
        made = {key: with_booleans(places[key], value[key]) for key in places if key in value}
        return {**value, **made}
    return value
