"""The log of this replica: written with others in few writes, kept within its bounds."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from libs.common.bus import OutboxEntry
from libs.common.bus.fitting import fitted
from libs.common.bus.subjects import workflow_event
from libs.common.clock import now_ms
from libs.common.contracts.events import WorkflowFinished
from libs.common.errors import Conflict
from libs.common.store.mongo import StoreError
from libs.common.telemetry.tracing import trace_header
from services.workflow.batches import Batches
from services.workflow.runs.model import Run
from services.workflow.runs.store import RunStore

log = logging.getLogger(__name__)

PAUSE = 0.5
"""Seconds until another attempt, while the store is away."""
RETENTION_PERIOD = 60.0
"""Seconds between two looks."""
FRESH = timedelta(minutes=10)
"""Runs that are younger stay: by them an event that comes again is known."""


class ReplicaLog:
    """Records the runs of one replica."""

    def __init__(self, store: RunStore, replica: str) -> None:
        self._store = store
        self._replica = replica
        self._begins: Batches[Run, bool] = Batches("flow run begins", self._begin)
        self._seals: Batches[Run, bool] = Batches("flow run seals", self._seal)
        self._ends: Batches[Run, None] = Batches("flow run ends", self._end, size=_size)
        self._grown: set[int] = set()

    async def begin(self, runs: Sequence[Run]) -> list[Run]:
        """Record runs that begin; give those that no replica has recorded before."""
        new = await self._begins.put_all(runs)
        return [run for run, fresh in zip(runs, new, strict=True) if fresh]

    async def seal(self, run: Run) -> None:
        """Record that a run must not begin anew.

        Raises `Conflict` when this replica was taken for dead, so that another one has the
        run: what must not be done twice is done there, or has been recorded as interrupted.
        """
        if not await self._seals.put(run):
            raise Conflict("another replica has taken over this run")
        run.sealed = True

    async def finish(self, run: Run) -> None:
        """Record how a run ended; does not return before it is stored."""
        while True:
            try:
                await self._ends.put(run)
                self._grown.add(run.flow_id)
            except StoreError as error:
                log.warning("run %d cannot be recorded yet: %s", run.id, error)
                await asyncio.sleep(PAUSE)
            else:
                return

    def grown(self) -> set[int]:
        """Flows whose logs have grown since this was asked before."""
        found, self._grown = self._grown, set()
        return found

    async def _begin(self, runs: Sequence[Run]) -> list[bool]:
        return await self._store.begin(runs, self._replica)

    async def _seal(self, runs: Sequence[Run]) -> Sequence[bool]:
        return await self._store.seal([run.id for run in runs], self._replica)

    async def _end(self, runs: Sequence[Run]) -> list[None]:
        await self._store.finish([(run, finished(run)) for run in runs], self._replica)
        return [None] * len(runs)


def _size(run: Run) -> int:
    """Characters of a trace."""
    return sum(len(one.input or "") + len(one.output or "") for one in run.traces)


def finished(run: Run) -> OutboxEntry:
    """`event.{tenant}.workflow.{flowId}.finished`."""
    body = WorkflowFinished(
        event_id=f"w-{run.id}",
        created_at=now_ms(),
        tenant=run.tenant,
        flow_id=run.flow_id,
        run_id=run.id,
        version=run.version,
        status="ERROR" if run.status == "ERROR" else "SUCCESS",
        started_at=run.started_at,
        time_cost=run.time_cost,
        error=run.error or "",
    )
    subject = workflow_event(run.tenant, run.flow_id, "finished")
    return OutboxEntry(subject, fitted(body), headers=trace_header(run.cause.trace))


class Retention:
    """Deletes what is too old or too much; each replica looks at the flows that it has run."""

    def __init__(self, store: RunStore, log: ReplicaLog, days: int, most: int) -> None:
        self._store = store
        self._log = log
        self._age = timedelta(days=days)
        self._most = most
        self._looked_at: set[int] = set()

    async def clean(self, now: datetime | None = None) -> None:
        """Keep the bounds as of `now`."""
        now = now or datetime.now(UTC)
        await self._store.forget_all(now - self._age)
        self._looked_at |= self._log.grown()
        for flow_id in sorted(self._looked_at):
            run_id = await self._store.surplus(flow_id, self._most)
            if run_id is None:
                self._looked_at.discard(flow_id)
            else:
                await self._store.forget(flow_id, run_id, now - FRESH)
