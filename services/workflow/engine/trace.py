"""The trace of a run: input and output of each node as JSON text within limits.

Secrets are masked, and long texts are truncated. No I/O.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from services.workflow.graph.plan import PlanNode
from services.workflow.runs.model import Run, TraceItem

MAX_TEXT_CHARACTERS = 16 * 1024
"""Maximum characters of an input or output in a trace; longer ones are truncated."""
MAX_TRACE_CHARACTERS = 1024 * 1024
"""Maximum characters of all inputs and outputs of a run; later ones are left out."""
MASK_TEXT = "******"

FULL_TRACE_PLACEHOLDER = '{"truncated":"","reason":"the trace is full"}'

_MASKED_WORDS = (
    "pass(word|wd|phrase)|secret|token|authorization|cookie|api[_-]?key|private_?key|credential"
)
_SECRET_HINT = re.compile(b"pass|secret|token|auth|cookie|key|credential")
"""A faster test that runs first: each word of `_MASKED_WORDS` contains one of these parts."""
_SECRET_NAME = re.compile(_MASKED_WORDS, re.IGNORECASE)
_SECRET_KEY = re.compile(b'"[^"]*(%b)[^"]*"\\s*:' % _MASKED_WORDS.encode(), re.IGNORECASE)


class RunTrace:
    """Writes `run.traces`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._room = MAX_TRACE_CHARACTERS

    def render(self, value: Any) -> str | None:
        """Return a value as text for the trace, or a placeholder if the trace is full."""
        text = render_value(value)
        if text is None:
            return None
        if len(text) > self._room:
            return FULL_TRACE_PLACEHOLDER
        self._room -= len(text)
        return text

    def record_node(
        self,
        node: PlanNode,
        started: int,
        duration: int,
        *,
        input_text: str | None = None,
        output: str | None = None,
        parent: str | None = None,
        error: str | None = None,
        note: str | None = None,
    ) -> None:
        """Record the trace of a node; times in ms. With `error`, it failed."""
        self._run.traces.append(
            TraceItem(
                message_id=str(self._run.id),
                node_id=node.id,
                node_label=node.type.name,
                node_name=node.name,
                status="SUCCESS" if error is None else "ERROR",
                start_time=started,
                time_cost=duration,
                error_message=error,
                note=note,
                input=input_text,
                output=output,
                parent_trace_id=None if parent is None else f"{self._run.id}-{parent}",
            )
        )

    @property
    def first_error(self) -> str | None:
        """Return the first error of the run."""
        return next((item.error_message for item in self._run.traces if item.error_message), None)


def render_value(value: Any) -> str | None:
    """Return `value` as JSON text; None stays None.

    A long text becomes `{"truncated": its start, "characters": its length}`, so the text is always
    JSON.
    """
    if value is None:
        return None
    encoded = msgspec.json.encode(value, enc_hook=str)
    if _SECRET_HINT.search(encoded.lower()) and _SECRET_KEY.search(encoded):
        encoded = msgspec.json.encode(mask_secrets(msgspec.json.decode(encoded)))
    text = encoded.decode()
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    short = {"truncated": text[:MAX_TEXT_CHARACTERS], "characters": len(text)}
    return msgspec.json.encode(short).decode()


def mask_secrets(value: Any) -> Any:
    """Return `value` with masked values of keys that name secrets."""
    if isinstance(value, Mapping):
        return {
            key: MASK_TEXT
            if _SECRET_NAME.search(str(key)) and item not in (None, "")
            else mask_secrets(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [mask_secrets(item) for item in value]
    return value
