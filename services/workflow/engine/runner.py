"""The engine: records runs, lets them in, carries them out, and records what became of them."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from libs.common.errors import Conflict, ThingwayError
from services.workflow.engine.execution import Execution
from services.workflow.engine.limits import Limits, Slots
from services.workflow.graph.design import DesignInvalid
from services.workflow.graph.plan import Plan
from services.workflow.runs.records import MOST_HOPS, Cause, Deployed, Run

log = logging.getLogger(__name__)


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
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, flow: Deployed, entered: Any, cause: Cause) -> Run:
        """Run a flow and give the run when it has ended, well or not.

        Raises `Conflict` when this cause has made the flow run before, `TooManyRequests` when
        too many wait. The run goes on when the caller is cancelled.
        """
        runs = await self.admit([Start(flow, entered, cause)])
        if not runs:
            raise Conflict(f"flow {flow.flow_id} has run for {cause.key} before", field="key")
        (run,) = runs
        await asyncio.shield(self.go(run))
        return run

    async def admit(self, starts: Sequence[Start]) -> list[Run]:
        """Record runs in one write; those of a cause that was there before are left out.

        The caller acknowledges what caused them and then lets each `go`. A crash between the
        two is repaired by `recovery`.
        """
        self._slots.check(len(starts))
        now = int(time.time() * 1000)
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
        return await self._log.begin(runs)

    def go(self, run: Run) -> "asyncio.Task[None]":
        """Carry out a run that is recorded, beside everything else."""
        task = asyncio.ensure_future(self._carry_out(run))
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
        async with self._slots.taken(run.tenant, 0):
            execution = Execution(
                plan=plan, run=run, limits=self._limits, seal=_nothing, dry_run=dry_run
            )
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
        async with self._slots.taken(run.tenant, run.flow_id):
            if run.cause.hops >= MOST_HOPS:
                _refuse(run, f"stopped: {MOST_HOPS} flows have led to one another, see if they loop")
            else:
                await self._execute(run)
            await self._log.finish(run)
        await self._breaker.note(run)

    async def _execute(self, run: Run) -> None:
        try:
            plan = await self._plans.of(run.tenant, run.flow_id, run.version)
        except (DesignInvalid, ThingwayError) as error:
            _refuse(run, f"the design cannot run: {error}")
            return
        await Execution(plan=plan, run=run, limits=self._limits, seal=self._log.seal).go()


def _refuse(run: Run, reason: str) -> None:
    run.status, run.error = "ERROR", reason


async def _nothing(_: Run) -> None:
    """Record nothing: it is a test."""
