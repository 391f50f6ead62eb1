"""Runs whose replica died: begun anew when that does no harm, else recorded as interrupted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from services.workflow.runs.records import Run

log = logging.getLogger(__name__)

PERIOD = 2.0
"""Seconds between looks."""
CHUNK = 200
MOST_TRIES = 3
"""Times that a run begins: one that kills its replica shall not kill them all."""
INTERRUPTED = "interrupted: the service ended while the flow ran"


class Store(Protocol):
    """Where runs are kept."""

    async def orphans(
        self, alive: Iterable[str], most: int, without: Iterable[str]
    ) -> Sequence[Run]:
        """Runs of replicas that are no more, but for those of some tenants."""

    async def adopt(self, run: Run, replica: str, alive: Iterable[str], *, anew: bool) -> bool:
        """Take over a run; False when that is not possible."""


class Replicas(Protocol):
    """Knows replicas."""

    own: str

    async def alive(self) -> list[str]:
        """Those that live."""


class Engine(Protocol):
    """Carries out runs."""

    def go(self, run: Run) -> Any:
        """Carry out a run that is recorded."""

    def has_room(self, run: Run) -> bool:
        """Whether a run that is recorded may wait here."""


class Recovery:
    """Looks after orphans, in one replica at a time."""

    def __init__(
        self,
        store: Store,
        replicas: Replicas,
        engine: Engine,
        finish: Callable[[Run], Awaitable[None]],
        failures: tuple[type[Exception], ...],
    ) -> None:
        """`failures` are those of a store that is away."""
        self._store = store
        self._replicas = replicas
        self._engine = engine
        self._finish = finish
        self._failures = failures

    async def run(self) -> None:
        """Look for ever."""
        while True:
            try:
                await self.look()
            except self._failures as error:
                log.warning("interrupted runs have to wait: %s", error)
            await asyncio.sleep(PERIOD)

    async def look(self) -> None:
        """Take care of all orphans that there are, and for which there is room."""
        alive = await self._replicas.alive()
        full: set[str] = set()
        while orphans := await self._store.orphans(alive, CHUNK, full):
            for run in orphans:
                if self._engine.has_room(run):
                    await self._take(run, alive)
                else:
                    full.add(run.tenant)

    async def _take(self, run: Run, alive: list[str]) -> None:
        own = self._replicas.own
        if run.tries < MOST_TRIES and await self._store.adopt(run, own, alive, anew=True):
            run.tries += 1
            log.info("run %d begins anew", run.id)
            self._engine.go(run)
        elif await self._store.adopt(run, own, alive, anew=False):
            run.status, run.error = "ERROR", INTERRUPTED
            await self._finish(run)
