"""References to what nodes have put out: `#{properties.<nodeId>['<key>']}`.

A text that is one reference and nothing else becomes the value itself, of whatever type; in
any other text each reference becomes text. `properties.<nodeId>` alone is the whole output.
No I/O.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

_REFERENCE = re.compile(r"#\{([^{}]*)\}")
_HEAD = re.compile(r"\s*properties\s*")
_STEP = re.compile(
    r"""\s*(?:
    \.\s*(?P<name>[A-Za-z0-9_]+)
    | \[\s*'(?P<single>(?:[^']|'')*)'\s*\]
    | \[\s*"(?P<double>[^"]*)"\s*\]
    | \[\s*(?P<index>[0-9]{1,9})\s*\]
    )\s*""",
    re.VERBOSE,
)
MOST_STEPS = 32
"""Keys of one reference, one below the other."""
DEEPEST = 32
"""Lists and maps inside one another that a parameter may have."""


class ReferenceInvalid(ValueError):
    """A text holds something that looks like a reference and is none."""


class ReferenceMissing(LookupError):
    """A reference is to something that does not exist in what a node has put out."""

    def __init__(self, text: str, node: str) -> None:
        super().__init__(text)
        self.node = node


@dataclass(frozen=True, slots=True)
class Reference:
    """One reference: the node, and the way into its output."""

    text: str
    """As it was written, without the braces."""
    node: str
    path: tuple[str | int, ...]

    def value_in(self, properties: Mapping[str, Any]) -> Any:
        """What is referred to; raise `ReferenceMissing`."""
        if self.node not in properties:
            raise ReferenceMissing(f"{self.text}: node {self.node} has put out nothing", self.node)
        found: Any = properties[self.node]
        for step in self.path:
            found = self._into(found, step)
        return found

    def _into(self, found: Any, step: str | int) -> Any:
        if isinstance(found, Mapping):
            for key in (step, str(step)):
                if key in found:
                    return found[key]
        elif isinstance(found, list) and str(step).isdecimal() and int(step) < len(found):
            return found[int(step)]
        text = f"{self.text}: there is no {step!r} in the output of {self.node}"
        raise ReferenceMissing(text, self.node)


Part = str | Reference


@lru_cache(maxsize=20_000)
def parts_of(text: str) -> tuple[Part, ...]:
    """The text, taken apart; raise `ReferenceInvalid` naming what is wrong."""
    parts: list[Part] = []
    end = 0
    for match in _REFERENCE.finditer(text):
        if match.start() > end:
            parts.append(text[end : match.start()])
        parts.append(parse(match.group(1)))
        end = match.end()
    rest = text[end:]
    if "#{" in rest or any(isinstance(part, str) and "#{" in part for part in parts):
        raise ReferenceInvalid(f"a reference is not closed, or has another one inside: {text:.100}")
    if rest or not parts:
        parts.append(rest)
    return tuple(parts)


def parse(text: str) -> Reference:
    """What stands between the braces; raise `ReferenceInvalid`."""
    head = _HEAD.match(text)
    end = head.end() if head else 0
    steps: list[str | int] = []
    while head and end < len(text) and len(steps) <= MOST_STEPS:
        step = _STEP.match(text, end)
        if step is None:
            break
        steps.append(_step_of(step))
        end = step.end()
    if head is None or end < len(text) or not steps or len(steps) > MOST_STEPS:
        raise ReferenceInvalid(
            f"#{{{text:.100}}} is no reference; write #{{properties.<node id>['<key>']}}"
        )
    return Reference(text.strip(), str(steps[0]), tuple(steps[1:]))


def _step_of(match: re.Match[str]) -> str | int:
    if match["index"] is not None:
        return int(match["index"])
    if match["single"] is not None:
        return match["single"].replace("''", "'")
    return match["name"] if match["name"] is not None else match["double"]


def resolve(value: Any, properties: Mapping[str, Any]) -> Any:
    """`value` with every reference in it replaced, in lists and in maps too (not in keys)."""
    if isinstance(value, str):
        return _text(value, properties) if "#{" in value else value
    if isinstance(value, Mapping):
        return {key: resolve(one, properties) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [resolve(one, properties) for one in value]
    return value


def _text(text: str, properties: Mapping[str, Any]) -> Any:
    parts = parts_of(text)
    if len(parts) == 1:
        (only,) = parts
        return only if isinstance(only, str) else only.value_in(properties)
    return "".join(
        part if isinstance(part, str) else as_text(part.value_in(properties)) for part in parts
    )


def as_text(value: Any) -> str:
    """A value inside a text: text as it is, nothing as nothing, all else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value, enc_hook=str).decode()


def is_constant(value: Any) -> bool:
    """Whether `value` holds no reference; raise `ReferenceInvalid` as `references_in`."""
    return next(references_in(value), None) is None


def references_in(value: Any, depth: int = 0) -> Iterator[Reference]:
    """Every reference in `value`; raise `ReferenceInvalid` for one that cannot be read."""
    if depth > DEEPEST:
        raise ReferenceInvalid(f"is nested more than {DEEPEST} deep")
    if isinstance(value, str):
        if "#{" in value:
            yield from (part for part in parts_of(value) if isinstance(part, Reference))
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from references_in(one, depth + 1)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from references_in(one, depth + 1)
