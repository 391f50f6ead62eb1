"""Turns at slots, among tenants and their flows."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.workflow.fairness.shares import Shares
from services.workflow.fairness.turns import Bounds, Owner, Turns


async def settle():
    """Let everything that can go on go on."""
    for _ in range(5):
        await asyncio.sleep(0)


class Runs:
    """Runs that stay until they are let go."""

    def __init__(self, slots: int = 100, tenant: int = 100, flow: int = 100) -> None:
        self.turns = Turns(slots, lambda _: Bounds(tenant, flow))
        self.begun: list[tuple[str, int]] = []
        self.inside: Counter[str] = Counter()
        self.free: list[tuple[Owner, asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def _run(self, owner: Owner) -> None:
        async with self.turns.taken(owner):
            self.begun.append(tuple(owner))
            self.inside[owner.tenant] += 1
            done = asyncio.Event()
            self.free.append((owner, done))
            await done.wait()
            self.inside[owner.tenant] -= 1

    async def begin(self, *wanted: tuple[str, int]) -> list[tuple[str, int]]:
        """Begin runs; all that are, or have been, inside."""
        self.tasks += [asyncio.ensure_future(self._run(Owner(*one))) for one in wanted]
        await settle()
        return self.begun

    async def end(self, tenant: str = "") -> list[tuple[str, int]]:
        """Let the run go that has been inside for longest; those that begin then."""
        before = len(self.begun)
        place = next(i for i, (one, _) in enumerate(self.free) if tenant in ("", one.tenant))
        self.free.pop(place)[1].set()
        await settle()
        return self.begun[before:]

    async def end_all(self) -> None:
        """Let all go."""
        while self.free:
            await self.end()
        await asyncio.gather(*self.tasks)


async def test_a_flow_has_so_many_runs_at_a_time():
    """The third of one flow waits, another flow does not."""
    runs = Runs(flow=2)
    assert await runs.begin(*[("t", 1)] * 3, ("t", 2)) == [("t", 1), ("t", 1), ("t", 2)]
    await runs.end_all()
    assert len(runs.begun) == 4


async def test_a_tenant_has_so_many_runs_at_a_time():
    """A busy tenant keeps nobody else waiting."""
    runs = Runs(tenant=2)
    assert await runs.begin(*[("t", 1)] * 3, ("other", 1)) == [("t", 1), ("t", 1), ("other", 1)]
    await runs.end_all()


async def test_a_newcomer_finds_a_slot_whatever_one_tenant_has_waiting():
    """One alone has half of them, as it leaves as many as it has."""
    runs = Runs(slots=4)
    assert await runs.begin(*[("busy", 1)] * 1000) == [("busy", 1)] * 2
    assert (await runs.begin(("new", 1)))[2:] == [("new", 1)]
    await runs.end_all()


async def test_each_of_several_tenants_has_the_same_share():
    """When all slots are taken the next is for who has fewest, however many wait."""
    runs = Runs(slots=3)
    await runs.begin(*[("busy", 1)] * 50)
    await runs.begin(*[("a", 1)] * 5, *[("b", 1)] * 5, *[("c", 1)] * 5)
    assert runs.inside == Counter(busy=2, a=1)
    later = [(await runs.end())[0][0] for _ in range(12)]
    assert later == ["b", "c", "busy", "a"] * 3
    for task in runs.tasks:
        task.cancel()
    await asyncio.gather(*runs.tasks, return_exceptions=True)


async def test_long_runs_count_more_than_many():
    """A tenant whose run stays has its share already; what gets free is for the others."""
    runs = Runs(slots=2)
    await runs.begin(("long", 1))
    await runs.begin(*[("long", 1)] * 3, *[("a", 1)] * 3, *[("b", 1)] * 3)
    assert runs.begun == [("long", 1), ("a", 1)]
    for expected in ("b", "a", "b", "a", "b"):
        last = runs.begun[-1][0]
        assert await runs.end(last) == [(expected, 1)]
    await runs.end_all()


async def test_flows_of_a_tenant_take_turns_too():
    """One that is called all the time keeps no other of the tenant waiting."""
    runs = Runs(tenant=1)
    await runs.begin(*[("t", 1)] * 4, *[("t", 2)] * 2, ("t", 3))
    order = [(await runs.end())[0][1] for _ in range(6)]
    assert order == [2, 3, 1, 2, 1, 1]
    await runs.end_all()


async def test_a_slot_of_a_run_that_is_cancelled_goes_to_the_next():
    """While it waits, and at the moment when its turn has come."""
    runs = Runs(flow=1)
    await runs.begin(*[("t", 1)] * 4)
    first, waiting, coming, last = runs.tasks
    waiting.cancel()
    await settle()
    first.cancel()
    while not coming._fut_waiter.done():
        await asyncio.sleep(0)
    coming.cancel()
    await settle()
    assert runs.begun == [("t", 1), ("t", 1)]
    last.cancel()
    await asyncio.gather(*runs.tasks, return_exceptions=True)
    assert runs.turns._tenants == {}


async def test_nothing_is_kept_of_flows_that_do_not_run():
    """Memory is that of what runs or waits."""
    runs = Runs(slots=10)
    await runs.begin(*((f"t{number % 7}", number) for number in range(100)))
    await runs.end_all()
    assert runs.turns._tenants == {}
    assert not runs.turns._order
    assert runs.turns._shares.held() == {}


steps = st.lists(
    st.tuples(st.sampled_from(["begin", "end", "cancel"]), st.integers(0, 3), st.integers(0, 2)),
    max_size=60,
)


@settings(deadline=None, max_examples=60)
@given(steps=steps, slots=st.integers(1, 6), tenant=st.integers(1, 4), flow=st.integers(1, 3))
def test_whatever_comes_and_goes_bounds_hold_and_nobody_waits_for_what_is_free(
    steps, slots, tenant, flow
):
    """No bound is exceeded; who waits has its bound, or as much as is free; all get their turn."""

    async def work() -> None:
        runs = Runs(slots, tenant, flow)
        for kind, who, number in steps:
            if kind == "begin":
                await runs.begin((f"t{who}", number))
            elif kind == "end" and runs.free:
                await runs.end()
            elif kind == "cancel" and runs.tasks:
                runs.tasks.pop(who % len(runs.tasks)).cancel()
                await settle()
                runs.free = [one for one in runs.free if not one[1].is_set()]
            _check(runs, slots, tenant, flow)
        for task in runs.tasks:
            task.cancel()
        await asyncio.gather(*runs.tasks, return_exceptions=True)
        await settle()
        assert runs.turns._tenants == {}

    asyncio.run(work())


def _check(runs: Runs, slots: int, most: int, most_of_flow: int) -> None:
    held = {name: one.held for name, one in runs.turns._tenants.items()}
    free = slots - sum(held.values())
    assert free >= 0
    assert all(number <= most for number in held.values())
    for name, tenant in runs.turns._tenants.items():
        assert tenant.held == sum(one.held for one in tenant.flows.values())
        for one in tenant.flows.values():
            assert one.held <= most_of_flow
            if one.waiting:
                assert one.held == most_of_flow or tenant.held == most or held[name] >= free


@pytest.mark.parametrize(("tenants", "each"), [(1, 50), (3, 25), (4, 20), (9, 10)])
def test_tenants_that_want_all_come_to_have_equal_shares(tenants, each):
    """And as much stays free as each has."""
    shares = Shares(100)
    names = [f"t{number}" for number in range(tenants)]
    for _ in range(100):
        for name in names:
            if shares.fits(name):
                shares.take(name)
    assert set(shares.held().values()) == {each}
    assert shares.fits("new")
