"""How much runs at a time."""

import asyncio

import pytest

from libs.common.errors import TooManyRequests
from services.workflow.engine.limits import Limits, Slots


async def _settle():
    """Let everything that can go on go on."""
    for _ in range(20):
        await asyncio.sleep(0)


class Runs:
    """Runs that stay until they are let go."""

    def __init__(self, **limits):
        self.slots = Slots(Limits(**limits))
        self.inside = []
        self.free = asyncio.Event()
        self.tasks = []

    async def _run(self, tenant, flow, quick=False):
        with self.slots.held():
            async with self.slots.taken(tenant, flow, quick=quick):
                self.inside.append((tenant, flow))
                await self.free.wait()

    async def begin(self, *wanted):
        """Begin runs of flows; those that are inside."""
        self.tasks += [asyncio.ensure_future(self._run(*one)) for one in wanted]
        await _settle()
        return self.inside

    async def end(self):
        """Let all go."""
        self.free.set()
        await asyncio.gather(*self.tasks)


async def test_a_flow_has_so_many_runs_at_a_time():
    """The third of one flow waits, another flow does not."""
    runs = Runs(per_flow=2, per_tenant=10)
    inside = await runs.begin(("t", 1), ("t", 1), ("t", 1), ("t", 2))
    assert inside == [("t", 1), ("t", 1), ("t", 2)]
    await runs.end()
    assert len(inside) == 4


async def test_a_tenant_has_so_many_runs_at_a_time():
    """A busy tenant keeps nobody else waiting."""
    runs = Runs(per_flow=2, per_tenant=2)
    inside = await runs.begin(("t", 1), ("t", 2), ("t", 3), ("other", 1))
    assert inside == [("t", 1), ("t", 2), ("other", 1)]
    await runs.end()


async def test_those_that_wait_for_a_flow_take_nothing_from_other_flows():
    """Its own bound is met first."""
    runs = Runs(per_flow=1, per_tenant=2)
    inside = await runs.begin(("t", 1), ("t", 1), ("t", 1), ("t", 2))
    assert inside == [("t", 1), ("t", 2)]
    await runs.end()


async def test_quick_runs_have_bounds_of_their_own():
    """They neither wait for those that take their time nor keep them waiting."""
    runs = Runs(per_flow=1, per_tenant=1, quick_per_flow=2, quick_per_tenant=3)
    quick = [("t", flow, True) for flow in (2, 2, 2, 3, 4)]
    inside = await runs.begin(("t", 1), ("t", 1), *quick)
    assert inside == [("t", 1), ("t", 2), ("t", 2), ("t", 3)]
    await runs.end()
    assert len(inside) == 7


async def test_a_slot_of_a_run_that_is_cancelled_goes_to_the_next():
    """While it waits, and at the moment when its turn has come."""
    runs = Runs(per_flow=1)
    await runs.begin(("t", 1), ("t", 1), ("t", 1), ("t", 1))
    first, waiting, coming, last = runs.tasks
    waiting.cancel()
    await _settle()
    first.cancel()
    while not coming._fut_waiter.done():
        await asyncio.sleep(0)
    coming.cancel()
    await _settle()
    assert runs.inside == [("t", 1), ("t", 1)]
    runs.free.set()
    await last


async def test_more_than_may_wait_is_refused():
    """And who has a queue of its own can wait for room."""
    runs = Runs(per_flow=1, waiting=2)
    await runs.begin(("t", 1), ("t", 1))
    with pytest.raises(TooManyRequests):
        runs.slots.check()
    room = asyncio.ensure_future(runs.slots.room())
    await _settle()
    assert not room.done()
    await runs.end()
    await room
    runs.slots.check(2)


async def test_nothing_is_kept_of_flows_that_do_not_run():
    """Memory is that of what runs."""
    runs = Runs()
    await runs.begin(*(("t", number) for number in range(100)))
    await runs.end()
    assert runs.slots._flows._lanes == {}
    assert runs.slots._tenants._lanes == {}
