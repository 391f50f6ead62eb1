"""Lets runs in that wait for nobody's answer: those of events and of timers."""

from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, Protocol

from services.workflow.engine.runner import Admitted, Start
from services.workflow.runs.records import Run

AT_ONCE = 500
"""Runs that are recorded in one go."""


class Engine(Protocol):
    """What triggers need of the engine."""

    async def admit(self, starts: Sequence[Start]) -> Admitted:
        """Record runs, as far as they may wait."""

    def go(self, run: Run) -> Awaitable[None]:
        """Carry out a run that is recorded, beside everything else."""

    def refuse(self, start: Start) -> None:
        """Give up a run for which there is no room."""


async def admitted(engine: Engine, starts: Sequence[Start]) -> list[Start]:
    """Record runs and let them go; give those for which there is no room now.

    Nobody waits here for the room of another. What raises has let go all that is recorded; to do
    all of it once more does no harm, as a cause makes one run.
    """
    refused: list[Start] = []
    for chunk in _chunks(starts):
        runs, more = await engine.admit(chunk)
        refused += more
        for run in runs:
            engine.go(run)
    return refused


def _chunks(starts: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(starts), AT_ONCE):
        yield starts[begin : begin + AT_ONCE]
