"""Invent a value for one node, near to the one before."""

import random
from typing import Any, Final

from libs.common.tsl._check import check_value
from libs.common.tsl._node import Node
from libs.common.tsl._spec_rules import default_of
from libs.common.tsl.faults import Fault

_CHANGE: Final = 0.1
"""Chance that a switch or choice changes from one report to the next."""

_SPAN: Final = 100
"""Width of the range of a number whose document bounds it on one side or on none."""

_START: Final = 1_767_225_600
"""First DATE, 2026-01-01 in epoch seconds."""

_FEW: Final = 4
"""Most elements and, where the document allows so few, most characters that are made."""

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
            low, high = _range(node)
            return _number(node, low + rng.random() * (high - low), low, high)


def _next(node: Node, rng: random.Random, known: Any) -> Any:
    if node.kind in {"BOOL", "ENUM"}:
        return _fresh(node, rng) if rng.random() < _CHANGE else known
    if node.kind == "STRING":
        return known
    low, high = _range(node)
    low, high = min(low, known), max(high, known)
    step = 1 + rng.random() * _SPAN if node.kind == "DATE" else rng.gauss(0, (high - low) / 100)
    return _number(node, known + step, low, high)
