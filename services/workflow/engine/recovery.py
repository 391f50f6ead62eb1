"""Runs that nobody carries out, though they are recorded.

`Recovery` takes those whose replica died: it begins them anew when that does no harm, else records
them as interrupted. `Unbegun` takes those of this replica that it never began: when the store fails
while it takes runs, whoever wanted them cannot know which of them it has taken. Their cause makes
no other run, and their replica lives, so they are no orphans: each replica looks for its own.
"""

import logging
from collections.abc import Iterable

from services.workflow.engine.replicas import Replicas
from services.workflow.engine.runner import Engine
from services.workflow.runs.log import ReplicaLog
from services.workflow.runs.records import Run
from services.workflow.runs.store import RunStore

log = logging.getLogger(__name__)

RECOVERY_PERIOD, UNBEGUN_PERIOD = 2.0, 10.0
"""Seconds between looks."""
CHUNK = 200
MOST_TRIES = 3
"""Times that a run begins: one that kills its replica shall not kill them all."""
INTERRUPTED = "interrupted: the service ended while the flow ran"


class Recovery:
    """Looks after orphans, in one replica at a time."""

    def __init__(
        self, store: RunStore, replicas: Replicas, engine: Engine, runs: ReplicaLog
    ) -> None:
        self._store = store
        self._replicas = replicas
        self._engine = engine
        self._log = runs

    async def look(self) -> None:
        """Take care of all orphans that there are, and for which there is room, tenants in turn."""
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
            run.tries += 1
            run.status, run.error = "ERROR", INTERRUPTED
            await self._log.finish(run)


class Unbegun:
    """Looks after runs of this replica that it has recorded and not begun."""

    def __init__(self, store: RunStore, replicas: Replicas, engine: Engine) -> None:
        self._store = store
        self._replicas = replicas
        self._engine = engine

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
