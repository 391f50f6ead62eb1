"""The log of the runs of this replica: batched writes, and retention."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from libs.common.bus import OutboxEntry
from libs.common.bus.event_shortening import encode_shortened_event
from libs.common.bus.subjects import workflow_event
from libs.common.clock import now_ms
from libs.common.contracts.events import WorkflowFinished
from libs.common.errors import Conflict
from libs.common.store.mongo import StoreError
from libs.common.telemetry.tracing import trace_header
from services.workflow.batches import WriteBatcher
from services.workflow.runs.model import Run
from services.workflow.runs.store import RunStore

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
"""Seconds between attempts while the store is unavailable."""
LINGER_SECONDS = 0.05
"""Seconds for which ends of deferred runs are collected, as nobody waits for them."""
CLEANUP_SECONDS = 60.0
"""Seconds between two cleanups."""
MIN_DELETION_AGE = timedelta(minutes=10)
"""Minimum age of surplus runs to delete. A stored run prevents a second run for the same event."""


class ReplicaRunLog:
    """Records the runs of one replica."""

    def __init__(self, store: RunStore, replica: str) -> None:
        self._store = store
        self._replica = replica
        self._begins: WriteBatcher[Run, bool] = WriteBatcher("flow run begins", self._write_starts)
        self._seals: WriteBatcher[Run, bool] = WriteBatcher(
            "flow run seals", self._write_unrepeatable
        )
        self._ends: WriteBatcher[Run, None] = WriteBatcher(
            "flow run ends", self._write_ends, size=_count_trace_characters
        )
        self._deferred_ends: WriteBatcher[Run, None] = WriteBatcher(
            "deferred flow run ends",
            self._write_ends,
            size=_count_trace_characters,
            linger=LINGER_SECONDS,
        )
        self._grown: set[int] = set()

    async def record_unless_deferred(self, runs: Sequence[Run]) -> list[Run]:
        """Record the starts of runs except deferred ones; return the runs to execute.

        Runs that are recorded already are left out. Deferred runs are recorded at their end.
        """
        recorded_ids = {
            run.id for run in await self.record_starts([run for run in runs if run.recorded])
        }
        return [run for run in runs if run.id in recorded_ids or not run.recorded]

    async def record_starts(self, runs: Sequence[Run]) -> list[Run]:
        """Record the start of runs; return those that no replica has recorded before."""
        new = await self._begins.write_all(runs)
        recorded = [run for run, fresh in zip(runs, new, strict=True) if fresh]
        for run in recorded:
            run.recorded = True
        return recorded

    async def mark_unrepeatable(self, run: Run) -> None:
        """Record that a run must not be restarted.

        Raises `Conflict` if another replica has taken over the run, or its flow was deleted. The
        other replica executes the run again, or has recorded it as interrupted, so this replica
        must stop it.
        """
        if not await self._seals.write(run):
            raise Conflict("another replica has taken over this run")
        run.has_unrepeatable_step = True

    async def record_end(self, run: Run) -> None:
        """Record the end of a run; return after it is stored."""
        while True:
            try:
                await (self._ends if run.recorded else self._deferred_ends).write(run)
                self._grown.add(run.flow_id)
            except StoreError as error:
                log.warning("the end of run %d was not recorded; retrying: %s", run.id, error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def pop_grown_flows(self) -> set[int]:
        """Return the flows whose logs have grown since the last call."""
        grown_flows, self._grown = self._grown, set()
        return grown_flows

    async def _write_starts(self, runs: Sequence[Run]) -> list[bool]:
        return await self._store.insert_starts(runs, self._replica)

    async def _write_unrepeatable(self, runs: Sequence[Run]) -> Sequence[bool]:
        return await self._store.mark_unrepeatable([run.id for run in runs], self._replica)

    async def _write_ends(self, runs: Sequence[Run]) -> list[None]:
        await self._store.store_ends(
            [(run, build_finished_event(run)) for run in runs], self._replica
        )
        return [None] * len(runs)


def _count_trace_characters(run: Run) -> int:
    """Return the number of characters in the trace of a run: its size in a batch."""
    return sum(len(trace.input or "") + len(trace.output or "") for trace in run.traces)


def build_finished_event(run: Run) -> OutboxEntry:
    """Return the outbox entry of `event.{tenant}.workflow.{flowId}.finished`."""
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
    return OutboxEntry(subject, encode_shortened_event(body), headers=trace_header(run.cause.trace))


class RunRetention:
    """Deletes old runs of all flows, and surplus runs of flows of this replica."""

    def __init__(self, store: RunStore, log: ReplicaRunLog, days: int, maximum: int) -> None:
        self._store = store
        self._log = log
        self._age = timedelta(days=days)
        self._maximum = maximum
        self._flows: set[int] = set()

    async def clean(self, now: datetime | None = None) -> None:
        """Apply the limits of age and number as of `now`."""
        now = now or datetime.now(UTC)
        await self._store.delete_older(now - self._age)
        self._flows |= self._log.pop_grown_flows()
        for flow_id in sorted(self._flows):
            run_id = await self._store.find_latest_surplus(flow_id, self._maximum)
            if run_id is None:
                self._flows.discard(flow_id)
            else:
                await self._store.delete_surplus(flow_id, run_id, now - MIN_DELETION_AGE)
