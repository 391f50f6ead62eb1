"""The trace of one run: what each node was given and put out, as JSON text within bounds.

Secrets are masked, and what is too long is cut. No I/O.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from services.workflow.graph.plan import PlanNode
from services.workflow.runs.model import Run, TraceItem

LONGEST_TEXT = 16 * 1024
"""Characters of one input or output in a trace; of a longer one the beginning is kept."""
LONGEST_TRACE = 1024 * 1024
"""Characters of all inputs and outputs of one run; what comes later is left out."""
MASK = "******"

FULL = '{"truncated":"","reason":"the trace is full"}'

_WORDS = (
    "pass(word|wd|phrase)|secret|token|authorization|cookie|api[_-]?key|private_?key|credential"
)
_HINT = re.compile(b"pass|secret|token|auth|cookie|key|credential")
"""A part of any of these words in lower case, which is found much sooner."""
_SECRET = re.compile(_WORDS, re.IGNORECASE)
_SECRET_KEY = re.compile(b'"[^"]*(%b)[^"]*"\\s*:' % _WORDS.encode(), re.IGNORECASE)


class Trace:
    """Writes into `run.traces`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._room = LONGEST_TRACE

    def text_of(self, value: Any) -> str | None:
        """A value as the trace shows it, while there is room."""
        text = shown_text(value)
        if text is None:
            return None
        if len(text) > self._room:
            return FULL
        self._room -= len(text)
        return text

    def add(
        self,
        node: PlanNode,
        started: int,
        cost: int,
        *,
        given: str | None = None,
        output: str | None = None,
        parent: str | None = None,
        error: str | None = None,
        note: str | None = None,
    ) -> None:
        """Note what a node did; times in ms. With an `error` it failed."""
        self._run.traces.append(
            TraceItem(
                message_id=str(self._run.id),
                node_id=node.id,
                node_label=node.type.name,
                node_name=node.name,
                status="SUCCESS" if error is None else "ERROR",
                start_time=started,
                time_cost=cost,
                error_message=error,
                note=note,
                input=given,
                output=output,
                parent_trace_id=None if parent is None else f"{self._run.id}-{parent}",
            )
        )

    @property
    def error(self) -> str | None:
        """The first error that there was."""
        return next((one.error_message for one in self._run.traces if one.error_message), None)


def shown_text(value: Any) -> str | None:
    """`value` as JSON text; None for nothing.

    What is too long becomes `{"truncated": its beginning, "characters": how many it has}`, so
    that the text is JSON in any case.
    """
    if value is None:
        return None
    encoded = msgspec.json.encode(value, enc_hook=str)
    if _HINT.search(encoded.lower()) and _SECRET_KEY.search(encoded):
        encoded = msgspec.json.encode(masked(msgspec.json.decode(encoded)))
    text = encoded.decode()
    if len(text) <= LONGEST_TEXT:
        return text
    short = {"truncated": text[:LONGEST_TEXT], "characters": len(text)}
    return msgspec.json.encode(short).decode()


def masked(value: Any) -> Any:
    """`value` without what stands under the name of a secret."""
    if isinstance(value, Mapping):
        return {
            key: MASK if _SECRET.search(str(key)) and one not in (None, "") else masked(one)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [masked(one) for one in value]
    return value
