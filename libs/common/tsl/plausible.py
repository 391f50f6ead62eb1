"""Plausible values of a thing for simulators: valid, and changing gradually."""

import math
import random
import string
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from libs.common.tsl._check import check_value
from libs.common.tsl._decoders import Values
from libs.common.tsl._document_rules import parse_default
from libs.common.tsl._node import Node, build_tree
from libs.common.tsl.document import ParamSpec, TslDocument, ids_from_keys, keyed_entries
from libs.common.tsl.faults import Fault
from libs.common.tsl.limits import INT_RANGE, LONG_RANGE

_DEFAULT_SPAN = 100
"""Width of the range of numbers without bounds in the TSL."""

_CHANGE_PROBABILITY = 0.1
"""Probability that a BOOL or ENUM changes."""

_MAX_STEP_RATIO = 0.01
"""Maximum change of a number, as a fraction of its range."""

_DEFAULT_TEXT_LENGTH = 8
_DEFAULT_DIGITS = 2
_HEX = "0123456789ABCDEF"
_BASE64 = string.ascii_letters + string.digits + "+/"


def plausible_properties(
    document: TslDocument, rng: random.Random, previous: Values | None = None
) -> Values:
    """Return values that `check_report` accepts, for all readable properties.

    Numbers change gradually from `previous`, the last result of this function. Settings (RW) and
    texts stay unchanged while they are valid. A DATE that is not a setting is the current time.
    """
    return _members(build_tree(ids_from_keys(document).properties), rng, previous)


def plausible_params(params: Sequence[ParamSpec], rng: random.Random) -> Values:
    """Return values for the outputs of an event, or the inputs or outputs of a service."""
    owner = params[0].id.partition(".")[0] if params else ""
    tree = build_tree(keyed_entries(params), owner)
    return {key: _value(node, rng, None) for key, node in tree.items()}


def _members(members: Mapping[str, Node], rng: random.Random, previous: object) -> Values:
    previous_values = previous if isinstance(previous, dict) else {}
    return {
        key: _value(node, rng, previous_values.get(key))
        for key, node in members.items()
        if node.readable
    }


def _value(node: Node, rng: random.Random, previous: object) -> Any:
    if node.kind == "STRUCT":
        return _struct(node, rng, previous)
    last = _valid(node, previous)
    if last is not None and (node.writable or node.kind == "STRING"):
        return last
    if last is None and node.writable and node.default is not None:
        last = _valid(node, parse_default(node.kind, node.default))
        if last is not None:
            return last
    return _GENERATOR_BY_TYPE[node.kind](node, rng, last)


def _valid(node: Node, value: object) -> Any:
    faults: list[Fault] = []
    checked = check_value(node, value, "", faults)
    return None if faults else checked


def _struct(node: Node, rng: random.Random, previous: object) -> Values:
    members = {key: item for key, item in node.members.items() if item.readable}
    previous_values = previous if isinstance(previous, dict) else {}
    return {key: _value(item, rng, previous_values.get(key)) for key, item in members.items()}


def _array(node: Node, rng: random.Random, last: list[Any] | None) -> list[Any]:
    least = max(node.min_size, 1)
    before = last or [None] * (least if node.max_size is None else min(least, node.max_size))
    return [_value(node.element, rng, item) for item in before] if node.element else []


def _bool(node: Node, rng: random.Random, last: Any) -> bool:
    return (
        rng.choice((False, True))
        if last is None or rng.random() < _CHANGE_PROBABILITY
        else bool(last)
    )


def _enum(node: Node, rng: random.Random, last: str | None) -> str:
    return (
        rng.choice(list(node.choices))
        if last is None or rng.random() < _CHANGE_PROBABILITY
        else last
    )


def _date(node: Node, rng: random.Random, last: int | None) -> int:
    low, high = _range(node)
    return int(min(max(int(time.time()), low), high))


def _integer(node: Node, rng: random.Random, last: int | None) -> int:
    low, high = (int(bound) for bound in _range(node))
    if last is None:
        quarter = (high - low) // 4
        return rng.randint(low + quarter, high - quarter)
    step = max(1, int((high - low) * _MAX_STEP_RATIO))
    return min(max(last + rng.randint(-step, step), min(low, last)), max(high, last))


def _number(node: Node, rng: random.Random, last: float | None) -> float:
    low, high = (float(bound) for bound in _range(node))
    quarter = high / 4 - low / 4
    if last is None:
        return _round_to_places(rng.uniform(low + quarter, high - quarter), node, low, high)
    step = max(4 * _MAX_STEP_RATIO * quarter, 10.0 ** -_digits(node))
    low, high = min(low, last), max(high, last)
    return _round_to_places(last + rng.uniform(-step, step), node, low, high)


def _digits(node: Node) -> int:
    return _DEFAULT_DIGITS if node.digits is None else node.digits


def _round_to_places(number: float, node: Node, low: float, high: float) -> float:
    """Return the decimal nearest to `number` in the bounds, else the limited `number`."""
    digits = _digits(node)
    number = min(max(number, low), high)
    for nudge in (0, 1, -1):
        decimal = round(number + nudge * 10.0**-digits, digits)
        if low <= decimal <= high:
            return decimal + 0.0  # no -0.0
    return number


def _range(node: Node) -> tuple[int | float, int | float]:
    """Return the declared range of a number, or a small one without bounds."""
    least, greatest = _DEFAULT_RANGE_BY_TYPE.get(node.kind, (-math.inf, math.inf))
    low = None if node.low == least else node.low
    high = None if node.high == greatest else node.high
    if low is None:
        low = 0 if high is None or high > 0 else max(least, high - _DEFAULT_SPAN)
    return low, min(greatest, low + _DEFAULT_SPAN) if high is None else high


def _text(node: Node, rng: random.Random, last: str | None) -> str:
    unit, alphabet = _UNIT_AND_ALPHABET_BY_ENCODING.get(
        node.encoding or "", (1, string.ascii_letters)
    )
    maximum = math.inf if node.max_size is None else node.max_size
    size = -(-max(node.min_size, min(_DEFAULT_TEXT_LENGTH, maximum)) // unit) * unit
    size = size if size <= maximum else maximum // unit * unit
    return "".join(rng.choices(alphabet, k=int(size)))


_UNIT_AND_ALPHABET_BY_ENCODING = {"HEX": (2, _HEX), "BASE64": (4, _BASE64)}
_DEFAULT_RANGE_BY_TYPE = {"INT": INT_RANGE, "LONG": LONG_RANGE}
_GENERATOR_BY_TYPE: dict[str, Callable[[Node, random.Random, Any], Any]] = {
    "BOOL": _bool,
    "ENUM": _enum,
    "DATE": _date,
    "INT": _integer,
    "LONG": _integer,
    "FLOAT": _number,
    "DOUBLE": _number,
    "STRING": _text,
    "ARRAY": _array,
}
