"""Endless jobs whose tenants take turns."""

import asyncio
from collections import Counter
from collections.abc import Iterable

import pytest

from libs.common.errors import Unavailable
from libs.common.jobs import run_in_background
from libs.common.scheduling import turns
from libs.common.scheduling.turns import TenantSteps, repeat, take_turns


async def test_a_step_that_hangs_does_not_delay_other_tenants():
    """The steps of one tenant never run at the same time."""
    done: Counter[str] = Counter()
    quiet_done = asyncio.Event()

    async def tenants() -> Iterable[str]:
        return ["noisy", "quiet"]

    async def steps(tenant: str) -> TenantSteps:
        while done[tenant] < 5:
            if tenant == "noisy":
                await asyncio.Event().wait()
            done[tenant] += 1
            yield
        quiet_done.set()

    async with asyncio.timeout(30), run_in_background(take_turns("test", 2, tenants, steps, 0.0)):
        await quiet_done.wait()
    assert done == {"quiet": 5}


async def test_tenants_take_turns_when_workers_are_few():
    """With one worker, steps of two tenants alternate."""
    order: list[str] = []
    ended = asyncio.Event()

    async def tenants() -> Iterable[str]:
        return [] if order else ["first", "second"]

    async def steps(tenant: str) -> TenantSteps:
        for _ in range(3):
            order.append(tenant)
            await asyncio.sleep(0)
            yield
        if len(order) == 6:
            ended.set()

    async with asyncio.timeout(30), run_in_background(take_turns("test", 1, tenants, steps, 60.0)):
        await ended.wait()
    assert order == ["first", "second"] * 3


async def test_a_failed_step_and_a_failed_list_are_repeated():
    """A step may raise or hang. `wake` makes the next list due immediately."""
    wake, ended = asyncio.Event(), asyncio.Event()
    begun: list[int] = []

    async def tenants() -> Iterable[str]:
        await asyncio.sleep(0)
        wake.set()
        if len(begun) == 1:
            begun.append(0)
            raise Unavailable("the store is away")
        return ["one"]

    async def steps(tenant: str) -> TenantSteps:
        begun.append(len(begun))
        if len(begun) == 1:
            raise Unavailable("the bus is away")
        if len(begun) == 3:
            await asyncio.Event().wait()
        ended.set()
        yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "STEP_TIMEOUT_SECONDS", 0.0)
        async with (
            asyncio.timeout(30),
            run_in_background(take_turns("t", 1, tenants, steps, 60.0, wake)),
        ):
            await ended.wait()
    assert begun[:4] == [0, 0, 2, 3]


async def test_a_loop_rests_until_it_is_woken_or_work_is_upcoming(
    monkeypatch: pytest.MonkeyPatch,
):
    """It queries whether work is due before its next query, and works only while there is any."""
    monkeypatch.setattr(turns, "seconds_to_tick", lambda period: 2000.0 if period else 0.0)
    monkeypatch.setattr(turns, "LINGER_SECONDS", 0.0)
    asked: asyncio.Queue[float] = asyncio.Queue()
    wake, worked, due = asyncio.Event(), asyncio.Event(), list[str]()

    async def upcoming(within: float) -> list[str]:
        asked.put_nowait(within)
        return due

    async def work() -> None:
        await asyncio.sleep(0)
        worked.set()

    async with (
        asyncio.timeout(30),
        run_in_background(repeat(work, 0.0, "late", wake, upcoming)),
    ):
        assert await asked.get() == 2000.0
        assert not worked.is_set()

        due.append("work")
        wake.set()
        await worked.wait()
        assert await asked.get() == 2000.0
        worked.clear()
        await worked.wait()
        assert asked.empty()


async def test_a_failed_query_for_upcoming_work_is_repeated_soon(monkeypatch: pytest.MonkeyPatch):
    """A loop does not rest while it cannot know whether it has work."""
    monkeypatch.setattr(turns, "IDLE_PERIOD_SECONDS", 3600.0)
    asked, worked = list[float](), asyncio.Event()

    async def upcoming(within: float) -> list[str]:
        await asyncio.sleep(0)
        asked.append(within)
        if len(asked) == 1:
            raise Unavailable("the store is away")
        return ["work"]

    async def work() -> None:
        await asyncio.sleep(0)
        worked.set()

    job = repeat(work, 0.0, "late", upcoming=upcoming)
    async with asyncio.timeout(30), run_in_background(job):
        await worked.wait()
    assert len(asked) == 2
