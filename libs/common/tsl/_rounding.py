"""Decimal places (`fractionDigits`): numbers are rounded once, where they are read.

Half up, away from zero, of the decimal as it is written: with two places 2.675 is 2.68, whatever
the float nearest to it is. What was sent is checked against the bounds, and rounding does not
lead out of them.
"""

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from libs.common.tsl._node import Node

Rounder = Callable[[Any], Any]
"""Gives a value that is checked with its numbers rounded; objects and arrays are changed."""

_EXACT = Context(prec=40)
"""A float below 2^53 with 15 places has at most 31 digits; beyond that it is a whole number."""


def rounded(node: Node, number: float) -> float:
    """Give `number`, which is within the bounds of `node`, with as many places as it keeps."""
    digits = node.digits
    if digits is None or round(number, digits) == number:
        return number
    place = Decimal(1).scaleb(-digits)
    near = float(Decimal(repr(number)).quantize(place, ROUND_HALF_UP, _EXACT)) + 0.0  # no -0.0
    if node.high is not None and near > node.high:
        return node.high
    return near if node.low is None or near >= node.low else node.low


def rounders(members: Mapping[str, Node]) -> dict[str, Rounder]:
    """Make the rounders of those members that hold a number with `fractionDigits`."""
    made = {key: _rounder(node) for key, node in members.items()}
    return {key: rounder for key, rounder in made.items() if rounder is not None}


def round_members(members: Mapping[str, Rounder], values: dict[str, Any]) -> dict[str, Any]:
    """Round what is among `values`."""
    for key, rounder in members.items():
        if key in values:
            values[key] = rounder(values[key])
    return values


def _rounder(node: Node) -> Rounder | None:
    if node.kind in {"FLOAT", "DOUBLE"}:
        return None if node.digits is None else lambda number: rounded(node, number)
    if node.kind == "STRUCT":
        inner = rounders(node.members)
        return (lambda values: round_members(inner, values)) if inner else None
    element = _rounder(node.element) if node.kind == "ARRAY" and node.element else None
    return None if element is None else lambda items: [element(item) for item in items]
