"""The queue of runs: limits of waiting runs, and their order."""

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
from services.workflow.runs.model import FlowOwner

QUICK_RUNS_FACTOR = 16
"""Quick runs, which wait only for stores, may exceed the limits of running runs by this factor."""
INPUT_BYTES_PER_PLACE = 8192
"""Bytes of a run's input per place in the queue."""
RETRY_AFTER_SECONDS = 1.0
"""Seconds after which a rejected caller may try again."""


@dataclass(frozen=True, kw_only=True)
class EngineLimits:
    """Limits of one process; those of tenants are `contracts.limits.Limits`."""

    running: int = 256
    """Maximum concurrent runs; further ones wait."""
    waiting: int = 20_000
    """Maximum waiting runs; further ones are rejected."""
    run_seconds: float = 300.0
    """Maximum seconds of a run."""
    node_seconds: float = 60.0
    """Maximum seconds of a node."""


class QueueFull(TooManyRequests):
    """429: too many runs of a flow or tenant wait. `limit` is the reached limit."""

    def __init__(self, limit: str) -> None:
        super().__init__(
            f"too many runs wait ({limit}); try again later", retry_after=RETRY_AFTER_SECONDS
        )
        self.limit = limit


class QueuePlaces(NamedTuple):
    """The number of places that a run occupies in the queue while it waits."""

    owner: FlowOwner
    number: int = 1
    """More than one for a large input."""


def compute_places(owner: FlowOwner, size: int) -> QueuePlaces:
    """Return the places that a run with an input of `size` bytes occupies."""
    return QueuePlaces(owner, 1 + size // INPUT_BYTES_PER_PLACE)


class RunQueue:
    """Limits waiting runs, and executes them fairly by tenant."""

    def __init__(self, limits: EngineLimits, limits_of: Callable[[str], TenantLimits]) -> None:
        """`limits_of` returns the limits of a tenant."""
        self._limits_of = limits_of
        self._free = limits.waiting
        self._waiting: Counter[str | FlowOwner] = Counter()
        """Places by tenant and by flow."""
        self._slots = self._build_scheduler("flow runs", limits)
        self._quick = self._build_scheduler("quick flow runs", limits, QUICK_RUNS_FACTOR)
        self._requests = self._build_scheduler("requests of flows", limits)
        metrics.get_meter("thingway").create_observable_gauge(
            "thingway_flow_runs_waiting",
            [self._observe_waiting],
            description="Waiting runs of flows, by tenant",
        )

    def find_reached_limit(self, places: QueuePlaces) -> str:
        """Return the name of the limit that a run would exceed (see `Limits`), or ""."""
        (tenant, _), number = places
        if self._waiting[places.owner] + number > self._limits_of(tenant).each_waiting_runs:
            return "eachWaitingRuns"
        return "" if number <= self._count_free_places(tenant) else "waitingRuns"

    def has_places(self, tenant: str, number: int) -> bool:
        """Return whether a tenant has `number` free places, or has no waiting runs."""
        return number <= self._count_free_places(tenant) or not self._waiting[tenant]

    def _count_free_places(self, tenant: str) -> int:
        """Return the places left for a tenant.

        A tenant may use at most as many places as are free for all tenants.
        """
        return min(self._limits_of(tenant).waiting_runs, self._free) - self._waiting[tenant]

    def add_if_room(self, places: QueuePlaces) -> None:
        """Add a waiting run; raise `QueueFull` if a limit is reached."""
        limit = self.find_reached_limit(places)
        if limit:
            raise QueueFull(limit)
        self.add(places)

    def add(self, places: QueuePlaces) -> None:
        """Add a waiting run that must be executed in any case."""
        self._change_waiting(places.owner, places.number)

    def remove(self, places: QueuePlaces) -> None:
        """Remove a run that does not wait any more."""
        self._change_waiting(places.owner, -places.number)

    def _change_waiting(self, owner: FlowOwner, number: int) -> None:
        self._free -= number
        for key in (owner.tenant, owner):
            if places := self._waiting[key] + number:
                self._waiting[key] = places
            else:
                del self._waiting[key]

    async def run(
        self, places: QueuePlaces, job: Callable[[], Awaitable[object]], *, quick: bool = False
    ) -> None:
        """Wait for a slot, then execute `job`; during `job`, the run occupies no places.

        After `job`, the run occupies its places again until its result is recorded and the caller
        calls `remove`. A `quick` run, whose nodes wait only for stores, has slots of its own.
        """
        tenant, flow_id = places.owner
        slots = self._quick if quick else self._slots
        began = await slots.acquire(tenant, sub=flow_id)
        self.remove(places)
        try:
            await job()
        finally:
            self.add(places)
            slots.release(tenant, began, sub=flow_id)

    def acquire_request_slot(self, owner: FlowOwner) -> AbstractAsyncContextManager[None]:
        """Return a context that waits for a slot for requests to other systems.

        One run may send many requests at once. A tenant may send as many as it may have runs.
        """
        return self._requests.slot(owner.tenant, sub=owner.flow_id)

    def measure_usage(self, tenant: str) -> dict[str, int]:
        """Return the tenant's usage in this process, by the name of the limit."""
        running = self._slots.held(tenant) + self._quick.held(tenant)
        return {"runs": running, "waitingRuns": self._waiting[tenant]}

    def _build_scheduler(self, name: str, limits: EngineLimits, times: int = 1) -> FairScheduler:
        caps = partial(self._tenant_caps, times)
        return FairScheduler(name, times * limits.running, items=sys.maxsize, caps=caps)

    def _tenant_caps(self, times: int, tenant: str) -> Caps:
        limits = self._limits_of(tenant)
        return Caps(times * limits.runs, times * limits.each_runs)

    def _observe_waiting(self, _: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(number, {"tenant": key})
            for key, number in self._waiting.items()
            if isinstance(key, str)
        ]
