"""Values of entities that are write-only now, in what a run recorded. No I/O.

A run may be from before an import made its property write-only, or from a version that gave such
values to flows (decision 0044).
"""

import re
from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from services.workflow.runs.records import TraceItem

MASK = "******"
_KEY = re.compile(r'"([^"\\\s]{1,500}\.[^"\\\s]{1,500})\\?"\s*:')
"""A name that may be the key of an entity; in the text of what was cut off, quotes are escaped."""


def entity_keys(traces: Iterable[TraceItem], most: int) -> list[str]:
    """Return up to `most` names in inputs and outputs that may be keys of entities."""
    found: dict[str, None] = {}
    for trace in traces:
        for text in (trace.input, trace.output):
            for match in _KEY.finditer(text or ""):
                found.setdefault(match[1])
    return list(found)[:most]


def without_values(traces: Iterable[TraceItem], hidden: Collection[str]) -> list[TraceItem]:
    """Return traces with a mask in the place of the values of `hidden` entities."""
    return [
        replace(one, input=_masked(one.input, hidden), output=_masked(one.output, hidden))
        for one in traces
    ]


def _masked(text: str | None, hidden: Collection[str]) -> str | None:
    if text is None or not any(key in text for key in hidden):
        return text
    return msgspec.json.encode(_without(msgspec.json.decode(text), hidden)).decode()


def _without(value: Any, hidden: Collection[str]) -> Any:
    if isinstance(value, dict):
        if isinstance(cut := value.get("truncated"), str) and any(key in cut for key in hidden):
            return value | {"truncated": MASK}
        return {
            key: MASK if key in hidden and one is not None else _without(one, hidden)
            for key, one in value.items()
        }
    return [_without(one, hidden) for one in value] if isinstance(value, list) else value
