"""Faults under load, and the table of their results."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from tests.e2e.callers import Application
from tests.faults.load import Load
from tests.faults.operations import Operations, Verdict
from tests.kubernetes.installed import Installed

HEAD = ("stores", "fault", "operations", "acknowledged", "lost", "doubled", "longest silence (s)")
PATIENCE = 300.0
"""Seconds in which every device is served again, on a busy machine."""


class Row(NamedTuple):
    """A fault and its result."""

    stores: str
    fault: str
    operations: Operations
    verdict: Verdict
    silence: float
    """Most seconds that passed until every device had been given a further acknowledgement."""

    def cells(self) -> tuple[str, ...]:
        """Return the printed cells."""
        counts, broken = self.operations, (self.verdict.lost, self.verdict.doubled)
        numbers = (counts.invoked, counts.acknowledged, *map(len, broken))
        return (
            self.stores,
            self.fault,
            *(f"{number:,}" for number in numbers),
            f"{self.silence:.1f}",
        )


TABLE: list[Row] = []
"""Of this run."""


def table(rows: Iterable[Row]) -> str:
    """Return the rows as Markdown."""
    lines = [HEAD, ("---", "---", *("---:",) * 5), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


@contextlib.asynccontextmanager
async def under_load(
    installed: Installed, application: Application, before: dict[str, int], fault: str
) -> AsyncIterator[Load]:
    """Run a fault under load; check service and losses, and add a row."""
    load = Load(installed, application)
    silence = 0.0

    async def listen() -> None:
        nonlocal silence
        while True:
            began = time.monotonic()
            await load.goes_on(PATIENCE)
            silence = max(silence, time.monotonic() - began)

    async with load.running(2):
        listening = asyncio.create_task(listen())
        try:
            yield load
            await load.goes_on(PATIENCE)
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
    await installed.settled()
    verdict = await load.judge()
    TABLE.append(Row(installed.stores, fault, load.operations, verdict, silence))
    await load.check(before)
