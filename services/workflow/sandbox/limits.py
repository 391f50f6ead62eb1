"""Limits of user code, format of requests to workers, conversion of results."""

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TIME_LIMIT_HEADER = struct.Struct(">d")
"""Header of a request to a worker: the time limit of the run in seconds."""
ELAPSED_GRACE_SECONDS = 0.25
"""Seconds by which the elapsed time of a run may exceed its limit of processor time."""
JAVASCRIPT_REQUEST, CEL_REQUEST = b"J", b"C"
"""First byte of a request after the header: JavaScript code, or a condition in CEL."""
MIB = 1024**2
MAX_REASON_CHARACTERS = 500
MAX_RESULT_DEPTH = 64
"""Maximum nesting depth of a result."""
INTEGER_BOUND = 2**63
"""Results have signed integers of 64 bits, from `-INTEGER_BOUND` to below `INTEGER_BOUND`."""
_SURROGATE_PATTERN = re.compile("[\ud800-\udfff]")


class CodeFailed(Exception):
    """Code has no value, because it is invalid, raised an error or was ended."""


@dataclass(frozen=True, kw_only=True)
class CodeLimits:
    """Limits of one run of user code."""

    seconds: float = 1.0
    """Maximum seconds of a run, even if its caller allows more."""
    memory_bytes: int = 16 * MIB
    """Maximum bytes that the code allocates."""
    output_bytes: int = 256 * 1024
    """Maximum bytes of the result as JSON."""
    printed_bytes: int = 64 * 1024
    """Maximum bytes that Python prints; the text is discarded."""
    input_bytes: int = MIB
    """Maximum bytes of the code and its arguments as JSON."""
    call_depth: int = 200
    """Maximum depth of nested calls in Python."""


class _SizeBudget:
    """The bytes that the rest of a result may have, counted roughly."""

    def __init__(self, size: int) -> None:
        self._left = size

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise CodeFailed("the result is too large")


def to_json_value(value: Any, size: int) -> Any:
    """Return a result as JSON values.

    Raises `CodeFailed` for types that JSON does not have, and above about `size` bytes. The
    conversion stops at this size, because a small object may contain another one many times.
    """
    return _convert(value, _SizeBudget(size), 0)


def _convert(value: Any, budget: _SizeBudget, depth: int) -> Any:
    budget.spend(2)
    if depth > MAX_RESULT_DEPTH:
        raise CodeFailed(f"the result must be nested at most {MAX_RESULT_DEPTH} levels deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _check_number(value)
    if isinstance(value, str):
        return _convert_text(value, budget)
    if isinstance(value, list | tuple):
        return [_convert(item, budget, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {
            _convert_key(key, budget): _convert(item, budget, depth + 1)
            for key, item in value.items()
        }
    raise CodeFailed("the result must be text, a number, a boolean, null, a list or a map")


def _check_number(value: float) -> float:
    if isinstance(value, float) and not math.isfinite(value):
        raise CodeFailed("the result has a number that is not finite")
    if isinstance(value, int) and not -INTEGER_BOUND <= value < INTEGER_BOUND:
        raise CodeFailed("the result has an integer of more than 64 bits")
    return value


def _convert_key(key: Any, budget: _SizeBudget) -> str:
    if not isinstance(key, str):
        raise CodeFailed("the result has a map with a key that is not text")
    return _convert_text(key, budget)


def _convert_text(value: str, budget: _SizeBudget) -> str:
    """Return valid Unicode text. Half of a surrogate pair becomes U+FFFD."""
    budget.spend(len(value))
    return value if value.isascii() else _SURROGATE_PATTERN.sub("\N{REPLACEMENT CHARACTER}", value)
