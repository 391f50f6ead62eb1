"""Runs that this replica has recorded and not begun.

When the store fails while it takes runs, whoever wanted them cannot know which of them it has
taken. Those are recorded, so their cause makes no other run, and their replica lives, so they
are no orphans: each replica looks for its own.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

from services.workflow.runs.records import Run

log = logging.getLogger(__name__)

PERIOD = 10.0
"""Seconds between looks."""
CHUNK = 200


class Store(Protocol):
    """Where runs are kept."""

    async def left(
        self, replica: str, held: Collection[int], most: int, without: Iterable[str]
    ) -> Sequence[Run]:
        """Runs that a replica has, besides those that it holds and those of some tenants."""

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

    def in_hand(self) -> frozenset[int]:
        """The runs that are being recorded or carried out."""


class Unbegun:
    """Looks after them."""

    def __init__(
        self,
        store: Store,
        replicas: Replicas,
        engine: Engine,
        failures: tuple[type[Exception], ...],
    ) -> None:
        """`failures` are those of a store that is away."""
        self._store = store
        self._replicas = replicas
        self._engine = engine
        self._failures = failures

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(PERIOD)
            try:
                await self.look()
            except self._failures as error:
                log.warning("runs that were not begun have to wait: %s", error)

    async def look(self) -> None:
        """Begin those that there are, and for which there is room."""
        own, full = self._replicas.own, set[str]()
        begun = True
        while begun:
            left = await self._store.left(own, self._engine.in_hand(), CHUNK, full)
            others = [one for one in await self._replicas.alive() if one != own] if left else []
            known = len(full)
            full |= {run.tenant for run in left if not self._engine.has_room(run)}
            begun = len(full) > known
            for run in left:
                if run.tenant not in full and await self._begin(run, own, others):
                    begun = True

    async def _begin(self, run: Run, own: str, others: Iterable[str]) -> bool:
        if run.id in self._engine.in_hand():
            return False
        if not await self._store.adopt(run, own, others, anew=True):
            return False
        run.tries += 1
        log.info("run %d was recorded and begins now", run.id)
        self._engine.go(run)
        return True
