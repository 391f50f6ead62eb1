"""Runs that nobody carries out, though they are recorded.

`Recovery` takes those whose replica died: it begins them anew when that does no harm, else records
them as interrupted. `PendingRunRecovery` takes those of this replica that it never began: when the
store fails while it takes runs, whoever wanted them cannot know which of them it has taken. Their
cause makes no other run, and their replica lives, so they are no orphans: each replica looks for
its own.

`replicas`: `{_id: replica, until}`. Each replica renews its sign of life; time is the database's.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from libs.common.scheduling.turns import repeat
from libs.common.store.mongo import Database
from services.workflow.engine.runner import Engine
from services.workflow.runs.log import ReplicaLog
from services.workflow.runs.model import Run
from services.workflow.runs.store import RunStore

LIFE = 15.0
"""Seconds without a sign after which a replica counts as dead."""
log = logging.getLogger(__name__)

RECOVERY_PERIOD, PENDING_PERIOD = 2.0, 10.0
"""Seconds between looks."""
CHUNK = 200
MOST_TRIES = 3
"""Times that a run begins: one that kills its replica shall not kill them all."""
INTERRUPTED = "interrupted: the service ended while the flow ran"


class Replicas:
    """The replicas of the service, this one among them."""

    def __init__(self, database: Database, replica: str) -> None:
        self._replicas = database["replicas"]
        self.own = replica

    async def sign(self) -> None:
        """Show that this one lives."""
        until = {
            "$dateAdd": {"startDate": "$$NOW", "unit": "millisecond", "amount": int(LIFE * 1000)}
        }
        await self._replicas.update_one(
            {"_id": self.own}, [{"$set": {"until": until}}], upsert=True
        )

    async def renew(self) -> None:
        """Show it for ever."""
        await repeat(self.sign, LIFE / 5, f"replica {self.own} could not show that it lives")

    async def leave(self) -> None:
        """Say that this one is gone, so that nobody waits for it."""
        await self._replicas.delete_one({"_id": self.own})

    async def alive(self) -> list[str]:
        """Those that live; the others are forgotten."""
        late = {"$expr": {"$lt": ["$until", "$$NOW"]}}
        await self._replicas.delete_many(late)
        return [row["_id"] async for row in self._replicas.find({}, {"_id": 1})]


@dataclass(frozen=True)
class Recovery:
    """Looks after orphans, in one replica at a time."""

    store: RunStore
    replicas: Replicas
    engine: Engine
    log: ReplicaLog

    async def look(self) -> None:
        """Take care of all orphans that there are, and for which there is room, tenants in turn."""
        alive = await self.replicas.alive()
        full: set[str] = set()
        while orphans := await self.store.list_orphans(alive, CHUNK, full):
            for run in orphans:
                if self.engine.has_room(run):
                    await self._adopt(run, alive)
                else:
                    full.add(run.tenant)

    async def _adopt(self, run: Run, alive: list[str]) -> None:
        own = self.replicas.own
        if run.tries < MOST_TRIES and await self.store.adopt(run, own, alive, restart=True):
            run.tries += 1
            log.info("run %d begins anew", run.id)
            self.engine.go(run)
        elif await self.store.adopt(run, own, alive, restart=False):
            run.tries += 1
            run.status, run.error = "ERROR", INTERRUPTED
            await self.log.finish(run)


@dataclass(frozen=True)
class PendingRunRecovery:
    """Looks after runs of this replica that it has recorded and not begun."""

    store: RunStore
    replicas: Replicas
    engine: Engine

    async def look(self) -> None:
        """Begin those that there are, and for which there is room."""
        own, full = self.replicas.own, set[str]()
        begun = True
        while begun:
            left = await self.store.list_pending(own, self.engine.in_hand(), CHUNK, full)
            others = [one for one in await self.replicas.alive() if one != own] if left else []
            known = len(full)
            full |= {run.tenant for run in left if not self.engine.has_room(run)}
            begun = len(full) > known
            for run in left:
                if run.tenant not in full and await self._begin(run, own, others):
                    begun = True

    async def _begin(self, run: Run, own: str, others: Iterable[str]) -> bool:
        if run.id in self.engine.in_hand():
            return False
        if not await self.store.adopt(run, own, others, restart=True):
            return False
        run.tries += 1
        log.info("run %d was recorded and begins now", run.id)
        self.engine.go(run)
        return True
