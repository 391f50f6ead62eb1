"""Limits of user code, format of requests to workers, conversion of results."""

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SECONDS = struct.Struct(">d")
"""Header of a request to a worker: its time limit."""
GRACE = 0.25
"""Elapsed seconds in addition to the limit of the processor time."""
SCRIPT, CONDITION = b"J", b"C"
"""Kind of a request: JavaScript, or a condition in CEL."""
MIB = 1024**2
LONGEST_REASON = 500
MAX_DEPTH = 64
"""Maximum nesting depth of a result."""
LARGEST_INTEGER = 2**63
_HALF = re.compile("[\ud800-\udfff]")


class CodeFailed(Exception):
    """Code has no value, because it is invalid, raised an error or was ended."""


@dataclass(frozen=True, kw_only=True)
class CodeLimits:
    """Limits of one run."""

    seconds: float = 1.0
    memory: int = 16 * MIB
    """Maximum bytes that the code allocates."""
    output: int = 256 * 1024
    """Maximum bytes of the result as JSON."""
    printed: int = 64 * 1024
    """Maximum bytes that the code prints; they are discarded."""
    given: int = MIB
    """Maximum bytes of code and arguments as JSON."""
    depth: int = 200
    """Maximum call depth."""


class _Allowance:
    """The remaining size of a result."""

    def __init__(self, size: int) -> None:
        self._left = size

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise CodeFailed("the result is too large")


def to_json_value(value: Any, size: int) -> Any:
    """Return a result as JSON values; raise `CodeFailed` above about `size` bytes.

    The conversion stops there, because a small object may contain another one many times.
    """
    return _convert(value, _Allowance(size), 0)


def _convert(value: Any, allowance: _Allowance, depth: int) -> Any:
    allowance.spend(2)
    if depth > MAX_DEPTH:
        raise CodeFailed(f"the result must be nested at most {MAX_DEPTH} levels deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, str):
        return _text(value, allowance)
    if isinstance(value, list | tuple):
        return [_convert(item, allowance, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {
            _key(key, allowance): _convert(item, allowance, depth + 1)
            for key, item in value.items()
        }
    raise CodeFailed("the result must be text, a number, a boolean, null, a list or a map")


def _number(value: float) -> float:
    if isinstance(value, float) and not math.isfinite(value):
        raise CodeFailed("the result has a number that is not finite")
    if isinstance(value, int) and not -LARGEST_INTEGER <= value < LARGEST_INTEGER:
        raise CodeFailed("the result has an integer of more than 64 bits")
    return value


def _key(key: Any, allowance: _Allowance) -> str:
    if not isinstance(key, str):
        raise CodeFailed("the result has a map with a key that is not text")
    return _text(key, allowance)


def _text(value: str, allowance: _Allowance) -> str:
    """Return valid Unicode text. Half of a surrogate pair becomes U+FFFD."""
    allowance.spend(len(value))
    return value if value.isascii() else _HALF.sub("\N{REPLACEMENT CHARACTER}", value)
