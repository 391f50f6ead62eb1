"""Makes runs of events."""

from collections.abc import Iterator

from libs.common.changes import Changed
from services.workflow.engine.runner import Start
from services.workflow.runs.records import Cause
from services.workflow.triggers.listeners.index import ListenerIndex


def starts_of(index: ListenerIndex, change: Changed, hops: int) -> Iterator[Start]:
    """A run for each flow that listens to one of the values that came.

    The event's id makes it the same run when the event comes again.
    """
    cause = Cause(kind="EVENT", key=f"e-{change.event_id}", hops=hops)
    for flow, values in index.match(change.tenant, change.values):
        yield Start(flow, values, cause)
