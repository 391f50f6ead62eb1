"""Conditions in CEL (https://cel.dev): `properties.node.temperature > 30 && body.on`.

CEL has no loops of its own and no way out, so it runs here; its texts are short, and its
macros (`all`, `exists`, `map`) may not stand inside one another without bound.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import cel

LONGEST = 2000
"""Characters of one expression."""
MOST_MACROS = 2
"""Walks over lists in one expression: each may multiply what the others cost."""
_MACRO = re.compile(r"\.\s*(all|exists|exists_one|map|filter)\s*\(")


class CelFailed(Exception):
    """An expression cannot be read, or has no value."""


@lru_cache(maxsize=5_000)
def compile_cel(text: str) -> cel.Program:
    """The program; raise `CelFailed` with what is wrong."""
    if not text.strip():
        raise CelFailed("is empty")
    if len(text) > LONGEST:
        raise CelFailed(f"has more than {LONGEST} characters")
    if len(_MACRO.findall(text)) > MOST_MACROS:
        raise CelFailed(f"walks over lists more than {MOST_MACROS} times; use a code node")
    try:
        return cel.compile(text)
    except (ValueError, TypeError, RuntimeError) as error:
        raise CelFailed(f"cannot be read as CEL: {error!s:.300}") from error


def evaluate(text: str, variables: Mapping[str, Any]) -> Any:
    """The value of an expression; raise `CelFailed`."""
    program = compile_cel(text)
    try:
        return program.execute(dict(variables))
    except (ValueError, TypeError, RuntimeError, KeyError, ArithmeticError) as error:
        raise CelFailed(f"has no value: {error!s:.300}") from error
