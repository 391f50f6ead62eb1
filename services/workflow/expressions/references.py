"""References to outputs of nodes: `#{properties.<nodeId>['<key>']}`.

A text that consists of one reference becomes the value itself, of any type. In any other text each
reference becomes text. `properties.<nodeId>` alone is the whole output. No I/O.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

_REFERENCE_PATTERN = re.compile(r"#\{([^{}]*)\}")
_HEAD_PATTERN = re.compile(r"\s*properties\s*")
_STEP_PATTERN = re.compile(
    r"""\s*(?:
    \.\s*(?P<name>[A-Za-z0-9_]+)
    | \[\s*'(?P<single>(?:[^']|'')*)'\s*\]
    | \[\s*"(?P<double>[^"]*)"\s*\]
    | \[\s*(?P<index>[0-9]{1,9})\s*\]
    )\s*""",
    re.VERBOSE,
)
MAX_PATH_STEPS = 32
"""Maximum steps of a reference: the node id and the keys and indices in its output."""
MAX_PARAMETER_DEPTH = 32
"""Maximum nesting depth of a parameter."""


class ReferenceInvalid(ValueError):
    """A text contains an invalid reference."""


class ReferenceMissing(LookupError):
    """The output of a node lacks the referenced value."""

    def __init__(self, text: str, node: str) -> None:
        super().__init__(text)
        self.node = node


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference: the node, and the path in its output."""

    text: str
    """The reference without braces."""
    node: str
    path: tuple[str | int, ...]

    def look_up(self, properties: Mapping[str, Any]) -> Any:
        """Return the referenced value; raise `ReferenceMissing`."""
        if self.node not in properties:
            raise ReferenceMissing(f"{self.text}: node {self.node} has no output", self.node)
        value: Any = properties[self.node]
        for step in self.path:
            value = self._look_up_step(value, step)
        return value

    def _look_up_step(self, value: Any, step: str | int) -> Any:
        if isinstance(value, dict):
            for key in (step, str(step)):
                if key in value:
                    return value[key]
        elif isinstance(value, list) and str(step).isdecimal() and int(step) < len(value):
            return value[int(step)]
        text = f"{self.text}: the output of node {self.node} has no {step!r}"
        raise ReferenceMissing(text, self.node)


TextPart = str | Reference


@lru_cache(maxsize=20_000)
def split_references(text: str) -> tuple[TextPart, ...]:
    """Split a text into plain texts and references; raise `ReferenceInvalid`."""
    parts: list[TextPart] = []
    end = 0
    for match in _REFERENCE_PATTERN.finditer(text):
        if match.start() > end:
            parts.append(text[end : match.start()])
        parts.append(parse_reference(match.group(1)))
        end = match.end()
    rest = text[end:]
    if "#{" in rest or any(isinstance(part, str) and "#{" in part for part in parts):
        raise ReferenceInvalid(f"has an unclosed or nested reference: {text:.100}")
    if rest or not parts:
        parts.append(rest)
    return tuple(parts)


def parse_reference(text: str) -> Reference:
    """Parse the text between the braces; raise `ReferenceInvalid`."""
    head = _HEAD_PATTERN.match(text)
    end = head.end() if head else 0
    steps: list[str | int] = []
    while head and end < len(text) and len(steps) <= MAX_PATH_STEPS:
        step = _STEP_PATTERN.match(text, end)
        if step is None:
            break
        steps.append(_parse_step(step))
        end = step.end()
    if head is None or end < len(text) or not steps or len(steps) > MAX_PATH_STEPS:
        raise ReferenceInvalid(
            f"#{{{text:.100}}} is not a reference; write #{{properties.<node id>['<key>']}}"
        )
    return Reference(text.strip(), str(steps[0]), tuple(steps[1:]))


def _parse_step(match: re.Match[str]) -> str | int:
    if match["index"] is not None:
        return int(match["index"])
    if match["single"] is not None:
        return match["single"].replace("''", "'")
    return match["name"] if match["name"] is not None else match["double"]


def resolve_references(value: Any, properties: Mapping[str, Any]) -> Any:
    """Return `value` with all references replaced, also in lists and map values.

    Raises `ReferenceMissing` and `ReferenceInvalid`.
    """
    if isinstance(value, str):
        return _resolve_references_in_text(value, properties) if "#{" in value else value
    if isinstance(value, dict):
        return {key: resolve_references(item, properties) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolve_references(item, properties) for item in value]
    return value


def _resolve_references_in_text(text: str, properties: Mapping[str, Any]) -> Any:
    parts = split_references(text)
    if len(parts) == 1:
        (only,) = parts
        return only if isinstance(only, str) else only.look_up(properties)
    return "".join(
        part if isinstance(part, str) else format_text(part.look_up(properties)) for part in parts
    )


def format_text(value: Any) -> str:
    """Return a value as text: None as an empty text, other types as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value, enc_hook=str).decode()


def is_constant(value: Any) -> bool:
    """Return whether `value` has no reference; raises as `find_references`."""
    return next(find_references(value), None) is None


def find_references(value: Any, depth: int = 0) -> Iterator[Reference]:
    """Yield the references in `value`; raise `ReferenceInvalid`."""
    if depth > MAX_PARAMETER_DEPTH:
        raise ReferenceInvalid(f"must be nested at most {MAX_PARAMETER_DEPTH} levels deep")
    if isinstance(value, str):
        if "#{" in value:
            yield from (part for part in split_references(value) if isinstance(part, Reference))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from find_references(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from find_references(item, depth + 1)
