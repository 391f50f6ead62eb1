"""Logs on the wire."""

from typing import Literal

import msgspec

from libs.common.http.console import PageRequest, Shown
from services.workflow.runs.records import Run, TraceItem

Ended = Literal["SUCCESS", "ERROR"]


class SearchLogs(PageRequest, kw_only=True):
    """Body of `POST /workflow/flows/{id}/logs/search`."""

    status: Literal["SUCCESS", "ERROR", ""] | None = None


class ShownLog(msgspec.Struct, kw_only=True):
    """A run in the list; `start_time` and `time_cost` in ms."""

    id: str
    start_time: int
    time_cost: int
    status: Ended
    version: int


class ShownRun(Shown, kw_only=True):
    """A run with what each node did; the entry has only an output."""

    id: str
    start_time: int
    time_cost: int
    status: Ended
    version: int
    error_message: str | None = None
    """Why it failed, or was not run at all."""
    trace_info: list[TraceItem]


def shown_log(run: Run) -> ShownLog:
    """A row of the list."""
    return ShownLog(
        id=str(run.id),
        start_time=run.started_at,
        time_cost=run.time_cost,
        status=ended(run),
        version=run.version,
    )


def shown_run(run: Run) -> ShownRun:
    """The detail."""
    return ShownRun(
        id=str(run.id),
        start_time=run.started_at,
        time_cost=run.time_cost,
        status=ended(run),
        version=run.version,
        error_message=run.error,
        trace_info=run.traces,
    )


def ended(run: Run) -> Ended:
    """How a run ended."""
    return "SUCCESS" if run.status == "SUCCESS" else "ERROR"
