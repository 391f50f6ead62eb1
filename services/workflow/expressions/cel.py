"""Conditions in CEL (https://cel.dev), such as `properties.node.temperature > 30`.

CEL has no I/O and no loops except its macros (`all`, `exists`, `map`). Expressions that finish
immediately (`is_cheap`) are evaluated in this process. All others can take hours and run in the
sandbox.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

import msgspec

MAX_EXPRESSION_CHARACTERS = 2000
"""Maximum characters of an expression."""
MAX_MACROS = 2
"""Maximum macros of an expression, because each one can multiply the cost of the others."""
_MACRO_CALL = re.compile(r"\.\s*(all|exists|exists_one|map|filter)\s*\(")
MAX_CHEAP_INPUT_BYTES = 16 * 1024
"""Maximum bytes of the values of a cheap expression as JSON."""
MAX_SUMS = 10
"""Maximum `+` of a cheap expression, because sums of texts or lists grow: `body + body + …`."""
_FUNCTION_CALL = re.compile(r"(\w+)\s*\(")
_CHEAP_FUNCTIONS = frozenset(
    {"size", "contains", "startsWith", "endsWith", "has", "int", "uint", "double", "string", "in"}
)
"""Functions that read each value at most once."""
_OUTPUT_REFERENCE = re.compile(r"\bproperties\s*(?:\.\s*\w+\b(?!\s*\()|\[\s*[\"'])")


class CelFailed(Exception):
    """An expression is invalid or too long, or has no value."""


@lru_cache(maxsize=5_000)
def compile_cel(text: str) -> Any:
    """Return the compiled program; raise `CelFailed`."""
    if not text.strip():
        raise CelFailed("must not be empty")
    if len(text) > MAX_EXPRESSION_CHARACTERS:
        raise CelFailed(f"must have at most {MAX_EXPRESSION_CHARACTERS} characters")
    if len(_MACRO_CALL.findall(text)) > MAX_MACROS:
        raise CelFailed(f"must have at most {MAX_MACROS} macros such as map; use a code node")
    try:
        return import_cel_extension().compile(text)
    except (ValueError, TypeError, RuntimeError) as error:
        raise CelFailed(f"is not valid CEL: {error!s:.300}") from error


def is_cheap(text: str) -> bool:
    """Return whether an expression reads each of its values only a few times."""
    return text.count("+") <= MAX_SUMS and all(
        name in _CHEAP_FUNCTIONS for name in _FUNCTION_CALL.findall(text)
    )


def is_input_small(variables: Mapping[str, Any]) -> bool:
    """Return whether the values are small enough for a cheap expression."""
    return len(msgspec.json.encode(variables, enc_hook=str)) <= MAX_CHEAP_INPUT_BYTES


def select_variables(text: str, properties: Mapping[str, Any], body: Any) -> dict[str, Any]:
    """Return the variables that an expression names, because passing others is slow."""
    variables: dict[str, Any] = {"properties": dict(properties)}
    if len(_OUTPUT_REFERENCE.findall(text)) == text.count("properties"):
        variables = {
            "properties": {node: output for node, output in properties.items() if node in text}
        }
    return {**variables, "body": body} if "body" in text else variables


def evaluate_cel(text: str, variables: Mapping[str, Any]) -> Any:
    """Return the value of an expression; raise `CelFailed`."""
    program = compile_cel(text)
    try:
        return program.execute(dict(variables))
    except KeyError as error:
        raise CelFailed(f"has no value: key {error!s:.300} does not exist") from error
    except MemoryError as error:
        raise CelFailed("needs too much memory") from error
    except Exception as error:  # the library has no common base class
        raise CelFailed(f"has no value: {str(error) or type(error).__name__:.300}") from error


@lru_cache(maxsize=1)
def import_cel_extension() -> Any:
    """Import `cel.cel` once; its package would also import a command line in 0.4 s."""
    package = find_spec("cel")
    spec = package and PathFinder.find_spec("cel.cel", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError("common-expression-language is not installed")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
