"""The trace of one run: what each node was given and put out, within bounds. No I/O."""

from typing import Any

from services.workflow.graph.plan import PlanNode
from services.workflow.runs.records import Run, TraceItem
from services.workflow.runs.texts import LONGEST_TRACE, shown_text

FULL = '{"truncated":"","reason":"the trace is full"}'


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
                input=given,
                output=output,
                parent_trace_id=None if parent is None else f"{self._run.id}-{parent}",
            )
        )

    @property
    def error(self) -> str | None:
        """The first error that there was."""
        return next((one.error_message for one in self._run.traces if one.error_message), None)
