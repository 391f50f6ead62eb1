"""The queue of runs: who may wait in it, and whose turn it is."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from libs.common.contracts.limits import Limits as TenantLimits
from libs.common.errors import TooManyRequests
from services.workflow.fairness.shares import Shares
from services.workflow.fairness.turns import Bounds, Owner, Turns

QUICK = 16
"""Times as many quick runs may go on: they wait for stores alone, which take many at once."""
PLACE = 8192
"""Bytes of what a run begins with that one place in the queue is for."""
RETRY_AFTER = 1.0
"""Seconds."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The bounds of one process; those of tenants are `contracts.limits.Limits`."""

    running: int = 256
    """Runs at a time; more wait."""
    waiting: int = 20_000
    """Runs that wait; more are refused."""
    run_seconds: float = 300.0
    """How long a run may take."""
    node_seconds: float = 60.0
    """How long a node may take."""


class NoRoom(TooManyRequests):
    """429: so many runs of a flow or tenant wait that no other can; `limit` says which."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"too many runs wait ({limit}); come back later", retry_after=RETRY_AFTER)
        self.limit = limit


class Place(NamedTuple):
    """What a run takes in the queue."""

    owner: Owner
    number: int = 1
    """More than one when it begins with much."""


def place_of(owner: Owner, size: int) -> Place:
    """The place of a run that begins with `size` bytes."""
    return Place(owner, 1 + size // PLACE)


class RunQueue:
    """Lets runs wait, and gives them their turn."""

    def __init__(self, limits: Limits, of: Callable[[str], TenantLimits]) -> None:
        """`of` gives the limits of a tenant."""
        self._of = of
        self._waiting = Shares(limits.waiting)
        self._of_flows: dict[Owner, int] = {}
        """Places by flow."""
        self._slots = Turns(limits.running, self._bounds)
        self._quick = Turns(QUICK * limits.running, self._quick_bounds)
        metrics.get_meter("thingway").create_observable_gauge(
            "thingway_flow_runs_waiting",
            [self._observed],
            description="Runs of flows that wait for their turn, by tenant",
        )

    def lacks(self, place: Place) -> str:
        """The limit that keeps a run from waiting, as `Limits` has it on the wire; else nothing."""
        (tenant, _), number = place
        limits = self._of(tenant)
        if self._of_flows.get(place.owner, 0) + number > limits.each_waiting_runs:
            return "eachWaitingRuns"
        few = self._waiting.of(tenant) + number <= limits.waiting_runs
        return "" if few and self._waiting.fits(tenant, number) else "waitingRuns"

    def enter(self, place: Place) -> None:
        """Let a run wait; raise `NoRoom` when it cannot even do that."""
        limit = self.lacks(place)
        if limit:
            raise NoRoom(limit)
        self.put(place)

    def put(self, place: Place) -> None:
        """Let a run wait that has to be carried out in any case."""
        self._waiting.take(place.owner.tenant, place.number)
        self._of_flows[place.owner] = self._of_flows.get(place.owner, 0) + place.number

    def leave(self, place: Place) -> None:
        """A run does not wait any more."""
        self._waiting.give_back(place.owner.tenant, place.number)
        left = self._of_flows[place.owner] - place.number
        if left:
            self._of_flows[place.owner] = left
        else:
            del self._of_flows[place.owner]

    @asynccontextmanager
    async def turn(self, place: Place, *, quick: bool = False) -> AsyncIterator[None]:
        """Wait for the turn of a run and let it go on around the block.

        It waits again afterwards, to be recorded. A `quick` run waits for nobody but stores.
        """
        slots = self._quick if quick else self._slots
        await slots.take(place.owner)
        self.leave(place)
        try:
            yield
        finally:
            self.put(place)
            slots.give_back(place.owner)

    def use(self, tenant: str) -> dict[str, int]:
        """How much a tenant uses of its limits in this process, by their names."""
        running = self._slots.held(tenant) + self._quick.held(tenant)
        return {"runs": running, "waitingRuns": self._waiting.of(tenant)}

    def _bounds(self, tenant: str) -> Bounds:
        limits = self._of(tenant)
        return Bounds(limits.runs, limits.each_runs)

    def _quick_bounds(self, tenant: str) -> Bounds:
        limits = self._of(tenant)
        return Bounds(QUICK * limits.runs, QUICK * limits.each_runs)

    def _observed(self, _: CallbackOptions) -> Iterable[Observation]:
        found = self._waiting.held()
        return [Observation(number, {"tenant": tenant}) for tenant, number in found.items()]
