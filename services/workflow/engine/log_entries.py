"""Log entries that the engine writes about disabled flows and rejected runs."""

import logging
from collections import OrderedDict

from libs.common.clock import now_ms
from libs.common.limits.tenants import count_rejection
from libs.common.lru_cache import LruCache
from libs.common.store.ids import IdAllocator
from services.workflow.flows.service import FlowService
from services.workflow.runs.log import ReplicaRunLog
from services.workflow.runs.model import Cause, CauseKind, DeployedFlow, Run

log = logging.getLogger(__name__)

MAX_REASON_CHARACTERS = 1_000
"""Maximum characters of the reason that a disabled flow shows; its log has the full reason."""
MAX_COUNTED_FLOWS = 10_000
"""Maximum flows whose failures or rejected runs are counted."""
REJECTED_RUNS_LOG_SECONDS = 60.0
"""Seconds between two entries about rejected runs of a flow."""


class UnstartedRunLog:
    """Writes entries about runs that never started to the logs of flows."""

    def __init__(self, log: ReplicaRunLog, ids: IdAllocator) -> None:
        self._log = log
        self._ids = ids

    async def log_unstarted_run(
        self, kind: CauseKind, flow: DeployedFlow | Run, reason: str
    ) -> None:
        """Write an entry to the log of a flow: a run that never started, with the reason."""
        run_id = await self._ids.allocate()
        entry = Run(
            id=run_id,
            tenant=flow.tenant,
            flow_id=flow.flow_id,
            version=flow.version,
            cause=Cause(kind=kind, key=f"{kind.lower()}-{run_id}"),
            entered=None,
            started_at=now_ms(),
        )
        await self._log.record_unless_deferred([entry])
        entry.status, entry.error = "ERROR", reason
        await self._log.record_end(entry)


class CircuitBreaker:
    """Disables flows after consecutive failures in this process.

    The counts are in memory. Each replica sees a share of a flow's runs, and a flow that always
    fails does so in every replica.
    """

    def __init__(self, flows: FlowService, writer: UnstartedRunLog, maximum: int) -> None:
        self._flows = flows
        self._writer = writer
        self._maximum = maximum
        self._failures: LruCache[tuple[int, int], int] = LruCache(MAX_COUNTED_FLOWS)

    async def count_result(self, run: Run) -> None:
        """Count a failure, or reset the count after a success.

        At the maximum, the flow is disabled.
        """
        key = (run.flow_id, run.version)
        if run.status == "SUCCESS":
            self._failures.pop(key)
            return
        count = (self._failures.get(key) or 0) + 1
        self._failures.put(key, count)
        if count >= self._maximum:
            self._failures.pop(key)
            await self._disable_flow(run, count)

    async def _disable_flow(self, run: Run, count: int) -> None:
        why = f"it failed {count} times in a row; latest error: {run.error}"
        if not await self._flows.disable_failing(
            run.tenant, run.flow_id, run.version, why[:MAX_REASON_CHARACTERS]
        ):
            return
        reason = f"the flow was disabled: {why}"
        log.warning("flow %d: %s", run.flow_id, reason)
        await self._writer.log_unstarted_run("BREAKER", run, reason)


class RejectedRunCounter:
    """Counts runs that were rejected because too many runs waited."""

    def __init__(self, writer: UnstartedRunLog) -> None:
        self._writer = writer
        self._flows: OrderedDict[int, tuple[DeployedFlow, int]] = OrderedDict()

    def count_rejected(self, flow: DeployedFlow, limit: str) -> None:
        """Count a run that was rejected because of a limit such as `waitingRuns`."""
        count_rejection(limit, flow.tenant)
        _, number = self._flows.pop(flow.flow_id, (flow, 0))
        self._flows[flow.flow_id] = flow, number + 1
        if len(self._flows) > MAX_COUNTED_FLOWS:
            self._flows.popitem(last=False)

    async def write_counts(self) -> None:
        """Write the number of rejected runs to the log of each flow."""
        flows, self._flows = self._flows, OrderedDict()
        for flow, number in flows.values():
            reason = f"{number} runs were rejected because too many wait"
            await self._writer.log_unstarted_run("LIMIT", flow, reason)
