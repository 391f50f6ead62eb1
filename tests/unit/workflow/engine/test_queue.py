"""Who may wait for a run, and what is counted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from libs.common.contracts.limits import Limits as TenantLimits
from services.workflow.engine.queue import (
    INPUT_BYTES_PER_PLACE,
    EngineLimits,
    QueueFull,
    QueuePlaces,
    RunQueue,
    compute_places,
)
from services.workflow.runs.model import FlowOwner


def queue(waiting: int = 1000, running: int = 10, **limits: int) -> RunQueue:
    """A queue whose tenants all have these limits."""
    return RunQueue(
        EngineLimits(waiting=waiting, running=running), lambda _: TenantLimits(**limits)
    )


def entered(queue: RunQueue, tenant: str, flow_id: int = 1, most: int = 10_000) -> int:
    """How many runs may wait."""
    for number in range(most):
        try:
            queue.add_if_room(QueuePlaces(FlowOwner(tenant, flow_id)))
        except QueueFull:
            return number
    return most


@asynccontextmanager
async def running(
    queue: RunQueue, place: QueuePlaces, *, quick: bool = False
) -> AsyncIterator[None]:
    """Hold the turn of a run around the block."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def job() -> None:
        begun.set()
        await end.wait()

    run = asyncio.ensure_future(queue.run(place, job, quick=quick))
    await begun.wait()
    yield
    end.set()
    await run


def test_a_flow_has_so_many_runs_that_wait():
    """Its other flows go on."""
    found = queue(each_waiting_runs=3)
    assert (entered(found, "t", 1), entered(found, "t", 2)) == (3, 3)
    with pytest.raises(QueueFull) as refused:
        found.add_if_room(QueuePlaces(FlowOwner("t", 1)))
    assert (refused.value.limit, refused.value.status) == ("eachWaitingRuns", 429)
    assert refused.value.retry_after > 0


def test_a_tenant_has_so_many_runs_that_wait():
    """Nobody else is refused for it."""
    found = queue(waiting_runs=5, each_waiting_runs=3)
    assert [entered(found, "t", flow) for flow in (1, 2, 3)] == [3, 2, 0]
    assert found.find_reached_limit(QueuePlaces(FlowOwner("t", 3))) == "waitingRuns"
    assert entered(found, "other") == 3


def test_the_tenant_with_most_waiting_runs_is_rejected_first():
    """It leaves half of the queue free, and another tenant finds room."""
    found = queue(waiting=100)
    assert [entered(found, name) for name in ("busy", "second", "third")] == [50, 25, 13]
    found.add_if_room(QueuePlaces(FlowOwner("new", 1)))


def test_a_run_that_begins_with_much_takes_several_places():
    """So that the memory of all that waits has a bound."""
    found = queue(each_waiting_runs=10)
    assert compute_places(FlowOwner("t", 1), 3 * INPUT_BYTES_PER_PLACE) == QueuePlaces(
        FlowOwner("t", 1), 4
    )
    found.add_if_room(compute_places(FlowOwner("t", 1), 8 * INPUT_BYTES_PER_PLACE))
    assert entered(found, "t") == 1


async def test_a_run_whose_turn_it_is_does_not_wait():
    """It waits again to be recorded. Quick runs have separate slots."""
    found = queue(runs=1)
    place, use = QueuePlaces(FlowOwner("t", 1)), []
    for quick in (False, True):
        found.add_if_room(place)
        use.append(found.measure_usage("t"))
        async with running(found, place, quick=quick):
            use.append(found.measure_usage("t"))
        use.append(found.measure_usage("t"))
        found.remove(place)
    waits, runs = {"runs": 0, "waitingRuns": 1}, {"runs": 1, "waitingRuns": 0}
    assert use == [waits, runs, waits] * 2
    assert found.measure_usage("t") == {"runs": 0, "waitingRuns": 0}


async def test_quick_runs_do_not_wait_for_slow_ones():
    """The narrow limits of slow runs do not apply to them."""
    found = queue(runs=1)
    slow, quick = QueuePlaces(FlowOwner("t", 1)), QueuePlaces(FlowOwner("t", 2))
    for place in (slow, slow, quick, quick):
        found.add_if_room(place)
    begun = asyncio.Event()

    async def begin() -> None:
        begun.set()

    async with running(found, slow):
        second = asyncio.ensure_future(found.run(slow, begin))
        async with running(found, quick, quick=True), running(found, quick, quick=True):
            assert not begun.is_set()
    await second
    assert begun.is_set()


async def test_requests_of_a_run_to_other_systems_are_as_many_as_runs_may_be():
    """Branches of a run that wait for slow systems keep no other tenant's request waiting."""
    found = queue(runs=2)
    async with (
        found.acquire_request_slot(FlowOwner("t", 1)),
        found.acquire_request_slot(FlowOwner("t", 1)),
    ):
        third = asyncio.ensure_future(found.acquire_request_slot(FlowOwner("t", 1)).__aenter__())
        async with found.acquire_request_slot(FlowOwner("other", 2)):
            assert not third.done()
    await third
