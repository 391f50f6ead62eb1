"""Conditions in CEL (https://cel.dev): `properties.node.temperature > 30 && body.on`.

CEL has no way out, and no loops but its macros (`all`, `exists`, `map`). What is over at once
(`light`) may be evaluated here; all else can be made to take hours, and goes to the sandbox.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

import msgspec

LONGEST = 2000
"""Characters of one expression."""
MOST_MACROS = 2
"""Walks over lists in one expression: each may multiply what the others cost."""
_MACRO = re.compile(r"\.\s*(all|exists|exists_one|map|filter)\s*\(")
LIGHTEST = 16 * 1024
"""Bytes of values as JSON that a light expression is given."""
MOST_SUMS = 10
"""A sum of texts or lists is as large as all of them: `body + body + …`."""
_CALL = re.compile(r"(\w+)\s*\(")
_LIGHT = frozenset(
    {"size", "contains", "startsWith", "endsWith", "has", "int", "uint", "double", "string", "in"}
)
"""Functions that look at each value once at most."""
_ONE_OUTPUT = re.compile(r"\bproperties\s*(?:\.\s*\w+\b(?!\s*\()|\[\s*[\"'])")


class CelFailed(Exception):
    """An expression cannot be read, or has no value."""


@lru_cache(maxsize=5_000)
def compile_cel(text: str) -> Any:
    """The program; raise `CelFailed` with what is wrong."""
    if not text.strip():
        raise CelFailed("is empty")
    if len(text) > LONGEST:
        raise CelFailed(f"has more than {LONGEST} characters")
    if len(_MACRO.findall(text)) > MOST_MACROS:
        raise CelFailed(f"walks over lists more than {MOST_MACROS} times; use a code node")
    try:
        return _extension().compile(text)
    except (ValueError, TypeError, RuntimeError) as error:
        raise CelFailed(f"cannot be read as CEL: {error!s:.300}") from error


def light(text: str) -> bool:
    """Whether an expression takes no longer than looking at each of its values some times."""
    return text.count("+") <= MOST_SUMS and all(name in _LIGHT for name in _CALL.findall(text))


def fits(variables: Mapping[str, Any]) -> bool:
    """Whether values are few enough for a light expression."""
    return len(msgspec.json.encode(variables, enc_hook=str)) <= LIGHTEST


def named(text: str, properties: Mapping[str, Any], body: Any) -> dict[str, Any]:
    """The variables of an expression, as far as it names them: handing them over costs."""
    found: dict[str, Any] = {"properties": dict(properties)}
    if len(_ONE_OUTPUT.findall(text)) == text.count("properties"):
        found = {"properties": {node: one for node, one in properties.items() if node in text}}
    return {**found, "body": body} if "body" in text else found


def evaluate(text: str, variables: Mapping[str, Any]) -> Any:
    """The value of an expression; raise `CelFailed`."""
    program = compile_cel(text)
    try:
        return program.execute(dict(variables))
    except KeyError as error:
        raise CelFailed(f"has no value: there is no key {error!s:.300}") from error
    except MemoryError as error:
        raise CelFailed("needs too much memory") from error
    except Exception as error:  # whatever the library raises, the expression is at fault
        raise CelFailed(f"has no value: {str(error) or type(error).__name__:.300}") from error


@lru_cache(maxsize=1)
def _extension() -> Any:
    """`cel.cel` alone: its package brings a command line along, which takes 0.4 s to import."""
    package = find_spec("cel")
    spec = package and PathFinder.find_spec("cel.cel", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError("common-expression-language is not installed")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_extension()  # before a worker gives up its files
