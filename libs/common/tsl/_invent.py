"""Invent a value for one node, near to the one before."""

import random
from typing import Any, Final

from libs.common.tsl._check import check_value
from libs.common.tsl._node import Node
from libs.common.tsl._spec_rules import default_of
from libs.common.tsl.faults import Fault
from libs.common.tsl.limits import INT_RANGE, LONG_RANGE, MAX_DATE

_CHANGE: Final = 0.1
"""Chance that a switch or choice changes from one report to the next."""

_SPAN: Final = 100
"""Width of the range of a number whose document bounds it on one side or on none."""

_START: Final = 1_767_225_600
"""First DATE, 2026-01-01 in epoch seconds."""

_DAY: Final = 86_400

_FEW: Final = 4
"""Most elements that are made where the document does not ask for more."""

_SHORT: Final = 8
"""Most characters that are made where the document does not ask for more."""

_TYPE_BOUNDS: Final = {
    "INT": INT_RANGE,
    "LONG": LONG_RANGE,
    "DATE": (0, MAX_DATE),
    "FLOAT": (None,),
    "DOUBLE": (None,),
}
"""Bounds that come from the type and say nothing of what is usual."""

_HUGE: Final = 1e300

_ALPHABETS = {"HEX": "0123456789ABCDEF", "BASE64": "ABCDEFGHabcdefgh01234567"}
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_UNITS = {"HEX": 2, "BASE64": 4}


def invent(node: Node, rng: random.Random, previous: object = None) -> Any:
    """Give a value that `node` accepts, near to `previous` if that is acceptable."""
    if node.kind == "STRUCT":
        before = previous if isinstance(previous, dict) else {}
        return {key: invent(item, rng, before.get(key)) for key, item in node.members.items()}
    if node.kind == "ARRAY":
        return _elements(node, rng, previous if isinstance(previous, list) else [])
    known = _accepted(node, previous)
    if known is None:
        known = _accepted(node, default_of(node.kind, node.default))
    return _fresh(node, rng) if known is None else _next(node, rng, known)


def _accepted(node: Node, value: object) -> Any:
    faults: list[Fault] = []
    checked = check_value(node, value, "", faults)
    return None if faults else checked


def _elements(node: Node, rng: random.Random, before: list[Any]) -> list[Any]:
    if node.element is None:
        return []
    most = max(_FEW, node.min_size)
    if node.max_size is not None:
        most = min(most, node.max_size)
    fits = node.min_size <= len(before) <= most and before
    size = len(before) if fits else rng.randint(node.min_size, most)
    padded = [*before, *[None] * size][:size]
    return [invent(node.element, rng, item) for item in padded]


def _fresh(node: Node, rng: random.Random) -> Any:
    match node.kind:
        case "BOOL":
            return rng.random() < 1 / 2
        case "ENUM":
            return rng.choice(list(node.choices))
        case "STRING":
            return _text(node, rng)
        case _:
            low, high = _usual(node)
            at = rng.random()
            return _number(node, low * (1 - at) + high * at, low, high)


def _next(node: Node, rng: random.Random, known: Any) -> Any:
    if node.kind in {"BOOL", "ENUM"}:
        return _fresh(node, rng) if rng.random() < _CHANGE else known
    if node.kind == "STRING":
        return known
    if node.kind == "DATE":
        return min(known + rng.randint(1, _SPAN), node.high)
    low, high = _usual(node)
    low, high = min(low, known), max(high, known)
    return _number(node, known + rng.gauss(0, _stride(node, low, high)), low, high)


def _stride(node: Node, low: float, high: float) -> float:
    stride = min(high / _SPAN - low / _SPAN, _HUGE)
    return stride if node.kind in {"FLOAT", "DOUBLE"} else max(stride, 1 / 2)


def _usual(node: Node) -> tuple[float, float]:
    """Give a range to draw numbers from: the bounds of the document, as far as it has any."""
    base, width = (_START, _DAY) if node.kind == "DATE" else (0, _SPAN)
    low = None if node.low in _TYPE_BOUNDS[node.kind] else node.low
    high = None if node.high in _TYPE_BOUNDS[node.kind] else node.high
    if low is None:
        low = base if high is None else min(base, high - width)
    if high is None:
        high = low + width
    return _clamped(node, low), _clamped(node, high)


def _clamped(node: Node, number: float) -> float:
    if node.low is not None:
        number = max(number, node.low)
    return number if node.high is None else min(number, node.high)


def _number(node: Node, number: float, low: float, high: float) -> float:
    """Round `number` as the node wants it, without leaving the range."""
    inside = min(max(number, low), high)
    if node.kind not in {"FLOAT", "DOUBLE"}:
        return int(_clamped(node, round(inside)))
    rounded = round(inside, 2 if node.digits is None else node.digits)
    return float(rounded if low <= rounded <= high else inside)


def _text(node: Node, rng: random.Random) -> str:
    unit = _UNITS.get(node.encoding or "", 1)
    least = -(-node.min_size // unit)
    most = max(_SHORT // unit, least)
    if node.max_size is not None:
        most = min(most, node.max_size // unit)
    alphabet = _ALPHABETS.get(node.encoding or "", _LETTERS)
    return "".join(rng.choices(alphabet, k=unit * rng.randint(least, most)))
