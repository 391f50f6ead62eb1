"""How much people's code may use, and what it may hand over."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MIB = 1024**2
LONGEST_REASON = 500
DEEPEST = 64
"""Lists and maps inside one another in a result."""
LARGEST_INTEGER = 2**63
_HALF = re.compile("[\ud800-\udfff]")


class CodeFailed(Exception):
    """Code has no value: it is wrong, raised something, or was ended; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one run."""

    seconds: float = 1.0
    memory: int = 16 * MIB
    """Bytes of what the code allocates."""
    output: int = 256 * 1024
    """Bytes of the result as JSON."""
    printed: int = 64 * 1024
    """Bytes that the code may print; nobody reads them."""
    given: int = MIB
    """Bytes of the code and its arguments as JSON."""
    depth: int = 200
    """Calls inside one another."""


class _Allowance:
    """What is left of the size of a result."""

    def __init__(self, size: int) -> None:
        self._left = size

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise CodeFailed("its result is too large")


def plain(value: Any, size: int) -> Any:
    """A result as JSON values of about `size` bytes at most; raise `CodeFailed`.

    Walks no further than the size allows: a small object may be its own part a thousand times.
    """
    return _plain(value, _Allowance(size), 0)


def _plain(value: Any, allowance: _Allowance, depth: int) -> Any:
    allowance.spend(2)
    if depth > DEEPEST:
        raise CodeFailed(f"its result has more than {DEEPEST} lists and maps inside one another")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, str):
        return _text(value, allowance)
    if isinstance(value, list | tuple):
        return [_plain(one, allowance, depth + 1) for one in value]
    if isinstance(value, Mapping):
        return {
            _key(key, allowance): _plain(one, allowance, depth + 1) for key, one in value.items()
        }
    raise CodeFailed("its result must be text, a number, a boolean, nothing, or lists and maps")


def _number(value: float) -> float:
    if isinstance(value, float) and not math.isfinite(value):
        raise CodeFailed("its result has a number that is not finite")
    if isinstance(value, int) and not -LARGEST_INTEGER <= value < LARGEST_INTEGER:
        raise CodeFailed("its result has an integer of more than 64 bits")
    return value


def _key(key: Any, allowance: _Allowance) -> str:
    if not isinstance(key, str):
        raise CodeFailed("its result has a map with keys that are no text")
    return _text(key, allowance)


def _text(value: str, allowance: _Allowance) -> str:
    """Text that UTF-8 can say: half of a character (`"🔥".slice(1)`) becomes U+FFFD."""
    allowance.spend(len(value))
    return value if value.isascii() else _HALF.sub("\N{REPLACEMENT CHARACTER}", value)
