"""The engine: records runs, lets them in, carries them out, and records what became of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from libs.common.clock import now_ms
from libs.common.errors import Conflict, ThingwayError
from services.workflow.engine.execution import Execution
from services.workflow.engine.limits import Limits, Slots
from services.workflow.graph.design import DesignInvalid
from services.workflow.graph.plan import Plan
from services.workflow.runs.records import MOST_HOPS, Cause, Deployed, Run

log = logging.getLogger(__name__)

T = TypeVar("T")

TEST_SECONDS = 25.0
"""How long a test may take: somebody waits, behind a gateway that waits for thirty."""
LOOPED = f"stopped: {MOST_HOPS} flows have led to one another, see if they loop"


class Plans(Protocol):
    """Finds plans."""

    async def of(self, tenant: str, flow_id: int, version: int) -> Plan:
        """The plan of a version; raise `NotFound` or `DesignInvalid`."""


class RunLog(Protocol):
    """Where runs are recorded."""

    async def begin(self, runs: Sequence[Run]) -> list[Run]:
        """Record runs that begin; give those that no replica has recorded before."""

    async def seal(self, run: Run) -> None:
        """Record that a run must not begin anew."""

    async def finish(self, run: Run) -> None:
        """Record how a run ended, and say so on the bus."""


class Breaker(Protocol):
    """Watches for flows that only fail."""

    async def note(self, run: Run) -> None:
        """Take notice of how a run ended."""


@dataclass(frozen=True, slots=True)
class Start:
    """A flow that shall run."""

    flow: Deployed
    entered: Any
    """The output of its entry."""
    cause: Cause


class Engine:
    """Runs flows in this process."""

    def __init__(
        self,
        *,
        plans: Plans,
        log: RunLog,
        breaker: Breaker,
        limits: Limits,
        next_id: Callable[[], Awaitable[int]],
    ) -> None:
        self._plans = plans
        self._log = log
        self._breaker = breaker
        self._limits = limits
        self._next_id = next_id
        self._slots = Slots(limits)
        self._in_hand: set[int] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, flow: Deployed, entered: Any, cause: Cause) -> Run:
        """Run a flow and give the run when it has ended, well or not.

        Raises `Conflict` when this cause has made the flow run before, `TooManyRequests` when
        too many wait. The run goes on when the caller is cancelled.
        """
        # Shielded from the beginning: a run that is recorded has to be carried out.
        return await asyncio.shield(self._kept(self._start(Start(flow, entered, cause))))

    async def _start(self, start: Start) -> Run:
        runs = await self.admit([start])
        if not runs:
            text = f"flow {start.flow.flow_id} has run for {start.cause.key} before"
            raise Conflict(text, field="key")
        (run,) = runs
        await self.go(run)
        return run

    async def admit(self, starts: Sequence[Start]) -> list[Run]:
        """Record runs in one write; those of a cause that was there before are left out.

        The caller acknowledges what caused them and then lets each `go`. A crash between the
        two is repaired by `recovery`.
        """
        self._slots.check(len(starts))
        now = now_ms()
        runs = [
            Run(
                id=await self._next_id(),
                tenant=start.flow.tenant,
                flow_id=start.flow.flow_id,
                version=start.flow.version,
                cause=start.cause,
                entered=start.entered,
                started_at=now,
            )
            for start in starts
        ]
        ids = {run.id for run in runs}
        self._in_hand |= ids
        begun: list[Run] = []
        try:
            begun = await self._log.begin(runs)
        finally:
            self._in_hand -= ids - {run.id for run in begun}
        return begun

    def go(self, run: Run) -> "asyncio.Task[None]":
        """Carry out a run that is recorded, beside everything else."""
        self._in_hand.add(run.id)
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

    async def room(self) -> None:
        """Wait until more runs may be admitted; who has a queue of its own asks before it takes."""
        await self._slots.room()

    async def test(
        self, plan: Plan, run: Run, *, dry_run: bool, outputs: Mapping[str, Any]
    ) -> None:
        """Run a plan, as if nodes had put out `outputs`, and fill in `run`; record nothing."""
        self._slots.check()
        limits = replace(self._limits, run_seconds=min(self._limits.run_seconds, TEST_SECONDS))
        execution = Execution(plan=plan, run=run, limits=limits, seal=_nothing, dry_run=dry_run)
        with self._slots.held():
            async with self._slots.taken(run.tenant, 0):
                await execution.go(outputs)

    async def drain(self, seconds: float) -> None:
        """Give runs in hand time to end; what is left is interrupted and recovered elsewhere."""
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=seconds)
            for task in left:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _carry_out(self, run: Run) -> None:
        try:
            with self._slots.held():
                if run.cause.hops >= MOST_HOPS:
                    _refuse(run, LOOPED)
                else:
                    await self._execute(run)
                await self._log.finish(run)
        finally:
            self._in_hand.discard(run.id)
        await self._breaker.note(run)

    async def _execute(self, run: Run) -> None:
        try:
            plan = await self._plans.of(run.tenant, run.flow_id, run.version)
        except (DesignInvalid, ThingwayError) as error:
            _refuse(run, f"the design cannot run: {error}")
            return
        async with self._slots.taken(run.tenant, run.flow_id, quick=plan.quick):
            await Execution(plan=plan, run=run, limits=self._limits, seal=self._log.seal).go()


def _refuse(run: Run, reason: str) -> None:
    run.status, run.error = "ERROR", reason


async def _nothing(_: Run) -> None:
    """Record nothing: it is a test."""
