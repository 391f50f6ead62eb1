"""Recovery of recorded runs that no replica executes.

`OrphanedRunRecovery` takes over runs of stopped replicas. It restarts them if that is harmless,
else records them as interrupted. `PendingRunRecovery` starts runs that this replica recorded but
never executed: if the store fails during a write, the replica does not know which runs were
recorded. A repeated event does not start them, because its cause already has a run.
`OrphanedRunRecovery` does not start them either, because their replica is alive.

`replicas`: `{_id: replica, until}`. Each replica renews its entry; time is that of the database.
"""

import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from libs.common.scheduling.turns import IDLE_PERIOD_SECONDS, repeat
from libs.common.store.mongo import Database, Document, StoreError
from services.workflow.engine.runner import Engine
from services.workflow.runs.log import ReplicaRunLog
from services.workflow.runs.model import Run
from services.workflow.runs.store import RunStore

REPLICA_EXPIRY_SECONDS = 15.0
"""Seconds after which a replica that does not renew its entry counts as stopped."""
log = logging.getLogger(__name__)

RECOVERY_PERIOD_SECONDS, PENDING_PERIOD_SECONDS = 2.0, 10.0
"""Seconds between two recoveries of each kind."""
RUNS_PER_BATCH = 200
"""Runs that are read together."""
MAX_RUN_ATTEMPTS = 3
"""Maximum attempts, so that a run that crashes its replica does not crash all replicas."""
INTERRUPTED_REASON = "interrupted: the service stopped during the run"


class ReplicaRegistry:
    """The replicas of the service."""

    def __init__(self, database: Database, replica: str) -> None:
        self._replicas = database["replicas"]
        self.replica = replica

    async def renew_entry(self) -> None:
        """Create or renew the entry of this replica."""
        until = {
            "$dateAdd": {
                "startDate": "$$NOW",
                "unit": "millisecond",
                "amount": int(REPLICA_EXPIRY_SECONDS * 1000),
            }
        }
        await self._replicas.update_one(
            {"_id": self.replica}, [{"$set": {"until": until}}], upsert=True
        )

    async def keep_renewing(self) -> None:
        """Renew the entry of this replica until cancelled."""
        await repeat(
            self.renew_entry,
            REPLICA_EXPIRY_SECONDS / 3,
            f"the entry of replica {self.replica} was not renewed; retrying",
        )

    async def delete_entry(self) -> None:
        """Delete the entry of this replica, so that its runs are recovered immediately.

        After a failure, they are recovered when the entry expires.
        """
        with suppress(StoreError):
            await self._replicas.delete_one({"_id": self.replica})

    async def list_alive(self) -> list[str]:
        """Delete expired entries and return the ids of live replicas.

        They include this replica unless its own entry has expired.
        """
        late: Document = {"$lt": ["$until", "$$NOW"]}
        documents = await self._replicas.find({}, {"late": late}).to_list(None)
        if any(row["late"] for row in documents):
            await self._replicas.delete_many({"$expr": late})
        return [row["_id"] for row in documents if not row["late"]]


@dataclass
class OrphanedRunRecovery:
    """Recovers runs of stopped replicas; one replica at a time."""

    store: RunStore
    replicas: ReplicaRegistry
    engine: Engine
    log: ReplicaRunLog
    _last_complete: tuple[list[str], float] = field(default=([], 0.0), init=False)
    """Live replicas at the last complete recovery, and the monotonic time of the next one."""

    async def recover(self) -> None:
        """Recover all runs for which the queue has room, fairly by tenant.

        Runs are read when replicas have changed, and every `IDLE_PERIOD_SECONDS`.
        """
        alive, now = await self.replicas.list_alive(), time.monotonic()
        if alive == self._last_complete[0] and now < self._last_complete[1]:
            return
        full: set[str] = set()
        while orphans := await self.store.list_orphans(alive, RUNS_PER_BATCH, full):
            for run in orphans:
                if self.engine.has_room_for_run(run):
                    await self._restart_or_interrupt(run, alive)
                else:
                    full.add(run.tenant)
        self._last_complete = ([], 0.0) if full else (alive, now + IDLE_PERIOD_SECONDS)

    async def _restart_or_interrupt(self, run: Run, alive: list[str]) -> None:
        replica = self.replicas.replica
        if run.tries < MAX_RUN_ATTEMPTS and await self.store.take_over(
            run, replica, alive, restart=True
        ):
            run.tries += 1
            log.info("run %d restarts", run.id)
            self.engine.execute(run)
        elif await self.store.take_over(run, replica, alive, restart=False):
            run.tries += 1
            run.status, run.error = "ERROR", INTERRUPTED_REASON
            await self.log.record_end(run)


@dataclass(frozen=True)
class PendingRunRecovery:
    """Starts runs that this replica recorded but never started."""

    store: RunStore
    replicas: ReplicaRegistry
    engine: Engine

    async def recover(self) -> None:
        """Start all pending runs for which the queue has room."""
        replica, full = self.replicas.replica, set[str]()
        started = True
        while started:
            pending = await self.store.list_pending(
                replica, self.engine.list_active_run_ids(), RUNS_PER_BATCH, full
            )
            others = (
                [name for name in await self.replicas.list_alive() if name != replica]
                if pending
                else []
            )
            full_before = len(full)
            full |= {run.tenant for run in pending if not self.engine.has_room_for_run(run)}
            started = len(full) > full_before
            for run in pending:
                if run.tenant not in full and await self._start_pending(run, replica, others):
                    started = True

    async def _start_pending(self, run: Run, replica: str, others: Iterable[str]) -> bool:
        if run.id in self.engine.list_active_run_ids():
            return False
        if not await self.store.take_over(run, replica, others, restart=True):
            return False
        run.tries += 1
        log.info("pending run %d starts", run.id)
        self.engine.execute(run)
        return True
