"""Numbers that codecs give as text, as `toFixed` of JavaScript makes them."""

from collections.abc import Mapping
from typing import Any

from libs.common.numbers import parse_number
from libs.common.tsl._node import Node
from libs.common.tsl.document import NUMBERS


def parse_members(members: Mapping[str, Node], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with text that is a number parsed where `members` hold numbers."""
    return {
        key: _parse(members[key], value) if key in members else value
        for key, value in values.items()
    }


def _parse(node: Node, value: Any) -> Any:
    if isinstance(value, str) and node.kind in NUMBERS:
        number = parse_number(value)
        return value if number is None else number
    if isinstance(value, dict):
        return parse_members(node.members, value)
    if isinstance(value, list) and node.element is not None:
        return [_parse(node.element, item) for item in value]
    return value
