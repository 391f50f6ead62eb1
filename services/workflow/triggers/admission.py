"""Lets runs in that wait for nobody's answer: those of events and of timers."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, Protocol

from libs.common.errors import TooManyRequests
from services.workflow.engine.runner import Start
from services.workflow.runs.records import Run

AT_ONCE = 500
"""Runs that are recorded in one go."""
PAUSE = 0.05
"""Seconds until another attempt, while too many runs wait."""


class Engine(Protocol):
    """What triggers need of the engine."""

    async def room(self) -> None:
        """Wait until more runs may be admitted."""

    async def admit(self, starts: Sequence[Start]) -> list[Run]:
        """Record runs; those of a cause that was there before are left out."""

    def go(self, run: Run) -> Awaitable[None]:
        """Carry out a run that is recorded, beside everything else."""


async def admitted(engine: Engine, starts: Sequence[Start]) -> int:
    """Record runs and let them go, as there is room; how many there are that were not before.

    What raises has let go all that is recorded; to do all of it once more does no harm, as a
    cause makes one run.
    """
    begun = 0
    for chunk in _chunks(starts):
        runs = await _admit(engine, chunk)
        for run in runs:
            engine.go(run)
        begun += len(runs)
    return begun


async def _admit(engine: Engine, starts: Sequence[Start]) -> list[Run]:
    while True:
        await engine.room()
        try:
            return await engine.admit(starts)
        except TooManyRequests:  # there is room, and not for all of them
            await asyncio.sleep(PAUSE)


def _chunks(starts: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(starts), AT_ONCE):
        yield starts[begin : begin + AT_ONCE]
