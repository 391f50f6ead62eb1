"""Faults under load: what was asked of the platform meanwhile, and the table of what came of it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import NamedTuple

from tests.e2e.callers import Application
from tests.e2e.devices import Device
from tests.faults.load import Attempt, Load
from tests.kubernetes.installed import Installed

HEAD = ("stores", "fault", "operations", "acknowledged", "lost", "doubled", "longest silence (s)")
PATIENCE = 300.0
"""Seconds in which every device is served again, on a busy machine."""


class Row(NamedTuple):
    """A fault that lost and doubled nothing; one that did has failed its test."""

    stores: str
    fault: str
    operations: int
    acknowledged: int
    silence: float
    """Most seconds that passed until every device had been given a further acknowledgement."""

    def cells(self) -> tuple[str, ...]:
        """As it is printed."""
        counts = (f"{self.operations:,}", f"{self.acknowledged:,}")
        return (self.stores, self.fault, *counts, "0", "0", f"{self.silence:.1f}")


TABLE: list[Row] = []
"""Of this run."""


def table(rows: Iterable[Row]) -> str:
    """The rows as Markdown."""
    lines = [HEAD, ("---", "---", *("---:",) * 5), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


class Counted(Load):
    """A load that counts what it asks for."""

    operations = 0

    async def _report(
        self,
        device: Device,
        numbers: Iterable[int],
        waiting: list[Attempt],
        send: Callable[[bytes], Awaitable[object]],
        has_bad: bool,
    ) -> None:
        async def counted(body: bytes) -> object:
            self.operations += 1
            return await send(body)

        await super()._report(device, numbers, waiting, counted, has_bad)


@contextlib.asynccontextmanager
async def under_load(
    installed: Installed, application: Application, before: dict[str, int], fault: str
) -> AsyncIterator[Load]:
    """A fault happens inside; then all serves, nothing is lost or doubled, and a row tells."""
    load = Counted(installed, application)
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
    await load.check(before)
    TABLE.append(Row(installed.stores, fault, load.operations, load.acknowledged, silence))
