"""The engine: records runs, executes them, and records their results."""

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, zip_longest
from typing import Any, NamedTuple, TypeVar

import msgspec
from opentelemetry import metrics
from opentelemetry.metrics import Observation
from opentelemetry.trace import SpanKind

from libs.common.clock import now_ms
from libs.common.errors import Conflict, ThingwayError
from libs.common.limits.tenants import count_rejection
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import StoreError
from libs.common.telemetry.logs import add_log_fields
from libs.common.telemetry.tracing import continue_trace, mark_failed
from services.workflow.engine.execution import Execution
from services.workflow.engine.log_entries import CircuitBreaker, RejectedRunCounter
from services.workflow.engine.plans import PlanCache
from services.workflow.engine.queue import (
    EngineLimits,
    QueueFull,
    QueuePlaces,
    RunQueue,
    compute_places,
)
from services.workflow.graph.design import DesignInvalid
from services.workflow.graph.plan import Plan
from services.workflow.runs.log import ReplicaRunLog
from services.workflow.runs.model import MAX_HOPS, Cause, DeployedFlow, FlowOwner, Run, RunIdentity

log = logging.getLogger(__name__)

T = TypeVar("T")

_ended_runs: Counter[str] = Counter()
metrics.get_meter("thingway").create_observable_counter(
    "thingway_flow_runs",
    [lambda _: [Observation(number, {"status": status}) for status, number in _ended_runs.items()]],
    description="Ended runs of flows, by status",
)

MAX_TEST_SECONDS = 25.0
"""Maximum seconds of a test, because the gateway's timeout is 30 seconds."""
DROPPED_RUNS_LIMIT = "waitingRuns"
"""Name of the limit on waiting runs, for reports of runs that were dropped."""
RUNS_PER_WRITE = 200
"""Maximum runs of events or timers per write."""
STARTS_PER_ITERATION = 20
"""Runs started before the event loop runs other tasks."""
LOOP_REASON = f"stopped: {MAX_HOPS} flows have started one another; check for a loop"


@dataclass(frozen=True, slots=True)
class FlowStart:
    """A flow to run."""

    flow: DeployedFlow
    entered: Any
    """The output of the entry node."""
    cause: Cause
    is_held: bool = False
    """Whether the event is certainly new and stays unacknowledged until the run ends.

    A quick run of such an event is recorded only at its end.
    """

    @property
    def identity(self) -> RunIdentity:
        """Return the identity of the run."""
        return self.flow.flow_id, self.cause.key


class AdmissionResult(NamedTuple):
    """The runs to execute, and the starts without room in the queue."""

    runs: list[Run]
    """Runs to execute: recorded or deferred ones. Runs that exist already are left out."""
    without_room: list[FlowStart]
    """Starts of runs that have no room to wait, or that a deferred run executes already."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Engine:
    """Runs flows in this process."""

    plans: PlanCache
    log: ReplicaRunLog
    breaker: CircuitBreaker
    limits: EngineLimits
    queue: RunQueue
    rejected_runs: RejectedRunCounter
    ids: IdAllocator
    _active: dict[int, QueuePlaces] = field(default_factory=dict, init=False)
    _deferred: set[RunIdentity] = field(default_factory=set, init=False)
    """Runs that are executed before they are recorded."""
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

    async def run_to_end(self, flow: DeployedFlow, entered: Any, cause: Cause) -> Run:
        """Run a flow and return its run after the end, successful or not.

        Raises `Conflict` if its cause has started the flow before, `TooManyRequests` if too many
        runs wait. The run continues if the caller is cancelled.
        """
        # Shielded from the start, because a recorded run must be executed.
        return await asyncio.shield(
            self.run_in_background(self._record_and_run(FlowStart(flow, entered, cause)))
        )

    async def _record_and_run(self, start: FlowStart) -> Run:
        run = await self.record_start(start)
        await self.execute(run)
        return run

    async def record_start(self, start: FlowStart) -> Run:
        """Add a run to the queue and record its start; the caller executes it.

        Raises `Conflict` if its cause has started the flow before, `TooManyRequests` if too many
        runs wait.
        """
        places = _compute_run_places(start.flow, start.entered)
        try:
            self.queue.add_if_room(places)
        except QueueFull as error:
            count_rejection(error.limit, places.owner.tenant)
            raise
        runs = await self._record_queued([(start, places)])
        if not runs:
            text = f"flow {start.flow.flow_id} has already run for {start.cause.key}"
            raise Conflict(text, field="key")
        return runs[0]

    async def record_starts(self, starts: Sequence[FlowStart]) -> AdmissionResult:
        """Record the starts of runs together, except those that have no room to wait.

        Quick runs of held causes are deferred: they are recorded at their end. A start whose
        deferred run has not ended yet counts as one without room. The caller executes each run, and
        acknowledges its cause when the run is recorded. `recovery` handles a crash in between.
        """
        queued: list[tuple[FlowStart, QueuePlaces]] = []
        without_room: list[FlowStart] = []
        flows = {start.flow.flow_id: start.flow for start in starts if start.is_held}
        quick = {flow_id for flow_id, flow in flows.items() if await self._is_quick(flow)}
        for start in starts:
            places = _compute_run_places(start.flow, start.entered)
            if start.identity in self._deferred or self.queue.find_reached_limit(places):
                without_room.append(start)
                continue
            self.queue.add(places)
            queued.append((start, places))
            if start.is_held and start.flow.flow_id in quick:
                self._deferred.add(start.identity)
        return AdmissionResult(await self._record_queued(queued) if queued else [], without_room)

    def count_rejected(self, start: FlowStart) -> None:
        """Count a run that was rejected for lack of room, for the flow's log."""
        limit = (
            self.queue.find_reached_limit(
                QueuePlaces(FlowOwner(start.flow.tenant, start.flow.flow_id))
            )
            or DROPPED_RUNS_LIMIT
        )
        self.rejected_runs.count_rejected(start.flow, limit)

    def has_room_for(self, tenant: str, number: int) -> bool:
        """Return whether `number` runs with small inputs have room in the queue.

        They always have room if no run of the tenant waits.
        """
        return self.queue.has_places(tenant, number)

    def has_room_for_run(self, run: Run) -> bool:
        """Return whether the queue of this replica has room for a recorded run."""
        return not self.queue.find_reached_limit(_compute_run_places(run, run.entered))

    async def _record_queued(self, queued: Sequence[tuple[FlowStart, QueuePlaces]]) -> list[Run]:
        """Record runs that occupy places in the queue; return the new ones.

        Runs that exist already release their places.
        """
        now, runs = now_ms(), list[Run]()
        ids_to_execute: set[int] = set()
        try:
            for start, places in queued:
                run = Run(
                    id=await self.ids.allocate(),
                    tenant=start.flow.tenant,
                    flow_id=start.flow.flow_id,
                    version=start.flow.version,
                    cause=start.cause,
                    entered=start.entered,
                    started_at=now,
                    recorded=start.identity not in self._deferred,
                )
                runs.append(run)
                self._active[run.id] = places
            ids_to_execute = {run.id for run in await self.log.record_unless_deferred(runs)}
        finally:
            ids = [run.id for run in runs]
            for run_id, (start, places) in zip_longest(ids, queued):
                if run_id not in ids_to_execute:
                    self.queue.remove(places)
                    self._deferred.discard(start.identity)
                    self._active.pop(run_id, None)
        return [run for run in runs if run.id in ids_to_execute]

    async def _is_quick(self, flow: DeployedFlow) -> bool:
        """Return whether the flow has only quick nodes, which may all be repeated."""
        try:
            return (await self.plans.get(flow.tenant, flow.flow_id, flow.version)).quick
        except (DesignInvalid, ThingwayError, StoreError):
            return False

    def execute(self, run: Run) -> "asyncio.Task[None]":
        """Execute a recorded or deferred run in the background; return the task."""
        if run.id not in self._active:
            places = self._active[run.id] = _compute_run_places(run, run.entered)
            self.queue.add(places)
        # A run of an event continues the trace of the event, and not that of its batch.
        return self.run_in_background(
            self._run_and_record(run), None if run.recorded else Context()
        )

    def list_active_run_ids(self) -> frozenset[int]:
        """Return the ids of runs that are being recorded or executed."""
        return frozenset(self._active)

    def run_in_background(
        self, coroutine: Coroutine[Any, Any, T], context: Context | None = None
    ) -> "asyncio.Task[T]":
        """Run a coroutine in the background; `drain` waits for it."""
        task = asyncio.get_running_loop().create_task(coroutine, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run_test(
        self, plan: Plan, run: Run, *, dry_run: bool, outputs: Mapping[str, Any] | None = None
    ) -> None:
        """Execute a plan with given `outputs` of nodes, and fill in `run`; record nothing.

        Raises `QueueFull` if too many runs wait.
        """
        places = QueuePlaces(FlowOwner(run.tenant, run.flow_id))
        self.queue.add_if_room(places)
        limits = replace(self.limits, run_seconds=min(self.limits.run_seconds, MAX_TEST_SECONDS))
        acquire_request_slot = partial(self.queue.acquire_request_slot, places.owner)
        execution = Execution(
            plan=plan,
            run=run,
            limits=limits,
            mark_unrepeatable=_skip_unrepeatable_mark,
            acquire_request_slot=acquire_request_slot,
            dry_run=dry_run,
        )
        try:
            await self.queue.run(places, partial(execution.execute, outputs))
        finally:
            self.queue.remove(places)

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for current runs; interrupt the others.

        A replica recovers the interrupted runs later.
        """
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=seconds)
            for task in unfinished:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _run_and_record(self, run: Run) -> None:
        add_log_fields(tenant=run.tenant, runId=str(run.id), flowId=str(run.flow_id))
        try:
            with continue_trace("run flow", SpanKind.CONSUMER, run.cause.trace) as span:
                if run.cause.hops >= MAX_HOPS:
                    _mark_failed(run, LOOP_REASON)
                else:
                    await self._execute_plan(run)
                span.set_attributes({"thingway.flow": run.flow_id, "thingway.run": run.id})
                if run.status == "ERROR":
                    mark_failed(span, "run")
                await self.log.record_end(run)
            _ended_runs[run.status] += 1
        finally:
            self.queue.remove(self._active.pop(run.id))
            self._deferred.discard(run.identity)
        await self.breaker.count_result(run)

    async def _execute_plan(self, run: Run) -> None:
        try:
            plan = await self.plans.get(run.tenant, run.flow_id, run.version)
        except (DesignInvalid, ThingwayError) as error:
            _mark_failed(run, f"the design cannot run: {error}")
            return
        places = self._active[run.id]
        execution = Execution(
            plan=plan,
            run=run,
            limits=self.limits,
            mark_unrepeatable=self.log.mark_unrepeatable,
            acquire_request_slot=partial(self.queue.acquire_request_slot, places.owner),
        )
        await self.queue.run(places, execution.execute, quick=plan.quick)


class ExecutionResult(NamedTuple):
    """Starts without room, and deferred runs by the task that executes them."""

    without_room: list[FlowStart]
    deferred: "dict[asyncio.Task[None], Run]"


async def record_and_execute(engine: Engine, starts: Iterable[FlowStart]) -> ExecutionResult:
    """Record runs of events or timers and execute them.

    The call never waits for room. If it raises an exception, the runs recorded before are executed
    anyway. It can then be repeated, because a cause starts each flow only once.
    """
    without_room: list[FlowStart] = []
    deferred: dict[asyncio.Task[None], Run] = {}
    remaining = iter(starts)
    while chunk := list(islice(remaining, RUNS_PER_WRITE)):
        runs, more = await engine.record_starts(chunk)
        without_room += more
        for begin in range(0, len(runs) or 1, STARTS_PER_ITERATION):
            for run in runs[begin : begin + STARTS_PER_ITERATION]:
                task = engine.execute(run)
                if not run.recorded:
                    deferred[task] = run
            await asyncio.sleep(0)
    return ExecutionResult(without_room, deferred)


def _compute_run_places(flow: DeployedFlow | Run, entered: Any) -> QueuePlaces:
    size = len(msgspec.json.encode(entered, enc_hook=str))
    return compute_places(FlowOwner(flow.tenant, flow.flow_id), size)


def _mark_failed(run: Run, reason: str) -> None:
    run.status, run.error = "ERROR", reason


async def _skip_unrepeatable_mark(_: Run) -> None:
    """Record nothing: a test run of a user never starts again."""
