"""The engine: records runs, lets them in, carries them out, and records what became of them."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, zip_longest
from typing import Any, NamedTuple, TypeVar

import msgspec
from opentelemetry import metrics
from opentelemetry.trace import SpanKind

from libs.common.clock import now_ms
from libs.common.errors import Conflict, ThingwayError
from libs.common.limits.tenants import count_limited
from libs.common.store.ids import IdAllocator
from libs.common.telemetry.logs import name_lines
from libs.common.telemetry.tracing import continue_trace, mark_failed
from services.workflow.engine.execution import Execution
from services.workflow.engine.log_entries import CircuitBreaker, RefusedRuns
from services.workflow.engine.plans import Plans
from services.workflow.engine.queue import Limits, NoRoom, Place, RunQueue, place_of
from services.workflow.graph.design import DesignInvalid
from services.workflow.graph.plan import Plan
from services.workflow.runs.log import ReplicaLog
from services.workflow.runs.model import MOST_HOPS, Cause, Deployed, Owner, Run

log = logging.getLogger(__name__)

T = TypeVar("T")

_ended = metrics.get_meter("thingway").create_counter(
    "thingway_flow_runs", description="Runs of flows that ended, by status"
)

TEST_SECONDS = 25.0
"""How long a test may take: somebody waits, behind a gateway that waits for thirty."""
NO_MORE = "waitingRuns"
"""The limit of what had no room for so long that it is given up."""
AT_ONCE = 200
"""Runs of events or timers that are recorded in one go."""
PACE = 20
"""Runs that begin before other tasks of the process go on."""
LOOPED = f"stopped: {MOST_HOPS} flows have led to one another, see if they loop"


@dataclass(frozen=True, slots=True)
class Start:
    """A flow that shall run."""

    flow: Deployed
    entered: Any
    """The output of its entry."""
    cause: Cause


class Admitted(NamedTuple):
    """What came of flows that shall run."""

    runs: list[Run]
    """Recorded now; what a cause has begun before is left out."""
    refused: list[Start]
    """Those that cannot even wait."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Engine:
    """Runs flows in this process."""

    plans: Plans
    log: ReplicaLog
    breaker: CircuitBreaker
    limits: Limits
    queue: RunQueue
    refused: RefusedRuns
    ids: IdAllocator
    _in_hand: dict[int, Place] = field(default_factory=dict, init=False)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

    async def start(self, flow: Deployed, entered: Any, cause: Cause) -> Run:
        """Run a flow and give the run when it has ended, well or not.

        Raises `Conflict` when this cause has made the flow run before, `TooManyRequests` when
        too many wait. The run goes on when the caller is cancelled.
        """
        # Shielded from the beginning: a run that is recorded has to be carried out.
        return await asyncio.shield(self._kept(self._start(Start(flow, entered, cause))))

    async def _start(self, start: Start) -> Run:
        run = await self.begin(start)
        await self.go(run)
        return run

    async def begin(self, start: Start) -> Run:
        """Record a run that somebody asks for, and who is told when it cannot be.

        Raises `Conflict` when its cause has made the flow run before, `TooManyRequests` when too
        many wait.
        """
        place = _place(start.flow, start.entered)
        try:
            self.queue.enter(place)
        except NoRoom as error:
            count_limited(error.limit, place.owner.tenant)
            raise
        runs = await self._record([(start, place)])
        if not runs:
            text = f"flow {start.flow.flow_id} has run for {start.cause.key} before"
            raise Conflict(text, field="key")
        return runs[0]

    async def admit(self, starts: Sequence[Start]) -> Admitted:
        """Record runs that nobody is told of, in one write, as far as they may wait.

        The caller acknowledges what caused them and then lets each `go`. A crash between the
        two is repaired by `recovery`.
        """
        entered: list[tuple[Start, Place]] = []
        refused: list[Start] = []
        for start in starts:
            place = _place(start.flow, start.entered)
            try:
                self.queue.enter(place)
            except NoRoom:
                refused.append(start)
            else:
                entered.append((start, place))
        return Admitted(await self._record(entered) if entered else [], refused)

    def refuse(self, start: Start) -> None:
        """Give up a run for which there is no room; it is counted, and the flow's log says so."""
        limit = self.queue.lacks(Place(Owner(start.flow.tenant, start.flow.flow_id))) or NO_MORE
        self.refused.note(start.flow, limit)

    def fits(self, tenant: str, number: int) -> bool:
        """Whether so many more runs of a tenant may wait; always when none does."""
        return self.queue.fits(tenant, number)

    def has_room(self, run: Run) -> bool:
        """Whether a run that is recorded may wait here."""
        return not self.queue.lacks(_place(run, run.entered))

    async def _record(self, entered: Sequence[tuple[Start, Place]]) -> list[Run]:
        """Record runs that have their places; those that are not new leave them."""
        now, runs = now_ms(), list[Run]()
        begun: set[int] = set()
        try:
            for start, place in entered:
                run = Run(
                    id=await self.ids.take(),
                    tenant=start.flow.tenant,
                    flow_id=start.flow.flow_id,
                    version=start.flow.version,
                    cause=start.cause,
                    entered=start.entered,
                    started_at=now,
                )
                runs.append(run)
                self._in_hand[run.id] = place
            begun = {run.id for run in await self.log.begin(runs)}
        finally:
            ids = [run.id for run in runs]
            for run_id, (_, place) in zip_longest(ids, entered):
                if run_id not in begun:
                    self.queue.leave(place)
                    self._in_hand.pop(run_id, None)
        return [run for run in runs if run.id in begun]

    def go(self, run: Run) -> "asyncio.Task[None]":
        """Carry out a run that is recorded, beside everything else."""
        if run.id not in self._in_hand:
            place = self._in_hand[run.id] = _place(run, run.entered)
            self.queue.put(place)
        return self._kept(self._carry_out(run))

    def in_hand(self) -> frozenset[int]:
        """The runs that are being recorded or carried out."""
        return frozenset(self._in_hand)

    def _kept(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Do it beside everything else; `drain` waits for it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def test(
        self, plan: Plan, run: Run, *, dry_run: bool, outputs: Mapping[str, Any] | None = None
    ) -> None:
        """Run a plan, as if nodes had put out `outputs`, and fill in `run`; record nothing."""
        place = Place(Owner(run.tenant, run.flow_id))
        self.queue.enter(place)
        limits = replace(self.limits, run_seconds=min(self.limits.run_seconds, TEST_SECONDS))
        turn = partial(self.queue.request, place.owner)
        execution = Execution(
            plan=plan, run=run, limits=limits, seal=_nothing, turn=turn, dry_run=dry_run
        )
        try:
            await self.queue.run(place, partial(execution.go, outputs))
        finally:
            self.queue.leave(place)

    async def drain(self, seconds: float) -> None:
        """Give runs in hand time to end; what is left is interrupted and recovered elsewhere."""
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=seconds)
            for task in left:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _carry_out(self, run: Run) -> None:
        name_lines(tenant=run.tenant, runId=str(run.id), flowId=str(run.flow_id))
        try:
            with continue_trace("run flow", SpanKind.CONSUMER, run.cause.trace) as span:
                if run.cause.hops >= MOST_HOPS:
                    _refuse(run, LOOPED)
                else:
                    await self._execute(run)
                span.set_attributes({"thingway.flow": run.flow_id, "thingway.run": run.id})
                if run.status == "ERROR":
                    mark_failed(span, "run")
                await self.log.finish(run)
            _ended.add(1, {"status": run.status})
        finally:
            self.queue.leave(self._in_hand.pop(run.id))
        await self.breaker.note(run)

    async def _execute(self, run: Run) -> None:
        try:
            plan = await self.plans.find(run.tenant, run.flow_id, run.version)
        except (DesignInvalid, ThingwayError) as error:
            _refuse(run, f"the design cannot run: {error}")
            return
        place, limits, seal = self._in_hand[run.id], self.limits, self.log.seal
        turn = partial(self.queue.request, place.owner)
        execution = Execution(plan=plan, run=run, limits=limits, seal=seal, turn=turn)
        await self.queue.run(place, execution.go, quick=plan.quick)


async def admitted(engine: Engine, starts: Iterable[Start]) -> list[Start]:
    """Record runs of events or timers and let them go; give those for which there is no room.

    Nobody waits here for the room of another. What raises has let go all that is recorded; to do
    all of it once more does no harm, as a cause makes one run.
    """
    refused: list[Start] = []
    left = iter(starts)
    while chunk := list(islice(left, AT_ONCE)):
        runs, more = await engine.admit(chunk)
        refused += more
        for begin in range(0, len(runs) or 1, PACE):
            for run in runs[begin : begin + PACE]:
                engine.go(run)
            await asyncio.sleep(0)
    return refused


def _place(flow: Deployed | Run, entered: Any) -> Place:
    size = len(msgspec.json.encode(entered, enc_hook=str))
    return place_of(Owner(flow.tenant, flow.flow_id), size)


def _refuse(run: Run, reason: str) -> None:
    run.status, run.error = "ERROR", reason


async def _nothing(_: Run) -> None:
    """Record nothing: it is a test."""
