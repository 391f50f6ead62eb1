"""The queue of runs: who may wait in it, and whose turn it is."""

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from libs.common.contracts.limits import Limits as TenantLimits
from libs.common.errors import TooManyRequests
from libs.common.scheduling import Caps, FairScheduler
from services.workflow.runs.model import Owner

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
        self._free = limits.waiting
        self._waiting: Counter[str | Owner] = Counter()
        """Places of each tenant, and of each flow."""
        self._slots = self._scheduler("flow runs", limits)
        self._quick = self._scheduler("quick flow runs", limits, QUICK)
        self._requests = self._scheduler("requests of flows", limits)
        metrics.get_meter("thingway").create_observable_gauge(
            "thingway_flow_runs_waiting",
            [self._observed],
            description="Runs of flows that wait for their turn, by tenant",
        )

    def lacks(self, place: Place) -> str:
        """The limit that keeps a run from waiting, as `Limits` has it on the wire; else nothing."""
        (tenant, _), number = place
        if self._waiting[place.owner] + number > self._of(tenant).each_waiting_runs:
            return "eachWaitingRuns"
        return "" if number <= self._room(tenant) else "waitingRuns"

    def fits(self, tenant: str, number: int) -> bool:
        """Whether a tenant has so many places left, or has all that it may have."""
        return number <= self._room(tenant) or not self._waiting[tenant]

    def _room(self, tenant: str) -> int:
        """Return how many places a tenant may still take: it leaves as many free as it has."""
        return min(self._of(tenant).waiting_runs, self._free) - self._waiting[tenant]

    def enter(self, place: Place) -> None:
        """Let a run wait; raise `NoRoom` when it cannot even do that."""
        limit = self.lacks(place)
        if limit:
            raise NoRoom(limit)
        self.put(place)

    def put(self, place: Place) -> None:
        """Let a run wait that has to be carried out in any case."""
        self._add(place.owner, place.number)

    def leave(self, place: Place) -> None:
        """A run does not wait any more."""
        self._add(place.owner, -place.number)

    def _add(self, owner: Owner, number: int) -> None:
        self._free -= number
        for key in (owner.tenant, owner):
            if places := self._waiting[key] + number:
                self._waiting[key] = places
            else:
                del self._waiting[key]

    async def run(
        self, place: Place, job: Callable[[], Awaitable[object]], *, quick: bool = False
    ) -> None:
        """Wait for the turn of a run, and then carry out `job`.

        The run waits again afterwards, to be recorded. A `quick` run waits for nobody but stores.
        """
        tenant, flow_id = place.owner
        slots = self._quick if quick else self._slots
        began = await slots.acquire(tenant, sub=flow_id)
        self.leave(place)
        try:
            await job()
        finally:
            self.put(place)
            slots.release(tenant, began, sub=flow_id)

    def request(self, owner: Owner) -> AbstractAsyncContextManager[None]:
        """Wait for the turn of a request to another system: a run may have many at once.

        A tenant has as many at a time as runs.
        """
        return self._requests.slot(owner.tenant, sub=owner.flow_id)

    def use(self, tenant: str) -> dict[str, int]:
        """How much a tenant uses of its limits in this process, by their names."""
        running = self._slots.held(tenant) + self._quick.held(tenant)
        return {"runs": running, "waitingRuns": self._waiting[tenant]}

    def _scheduler(self, name: str, limits: Limits, times: int = 1) -> FairScheduler:
        caps = partial(self._caps, times)
        return FairScheduler(name, times * limits.running, items=sys.maxsize, caps=caps)

    def _caps(self, times: int, tenant: str) -> Caps:
        limits = self._of(tenant)
        return Caps(times * limits.runs, times * limits.each_runs)

    def _observed(self, _: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(number, {"tenant": key})
            for key, number in self._waiting.items()
            if isinstance(key, str)
        ]
