"""Workers that tenants take turns at."""

import asyncio
from functools import partial

import pytest

from libs.common.scheduling import Caps, FairScheduler, LaneFull


class Jobs:
    """Jobs that run until they are released."""

    def __init__(self, scheduler: FairScheduler) -> None:
        self.scheduler = scheduler
        self.running: list[str] = []
        self.gates: list[tuple[str, asyncio.Event]] = []

    def begin(self, lane: str, sub: object = None) -> "asyncio.Task[None]":
        async def job() -> None:
            async with self.scheduler.slot(lane, sub=sub):
                self.running.append(lane)
                gate = asyncio.Event()
                self.gates.append((lane, gate))
                await gate.wait()
                self.running.remove(lane)

        return asyncio.ensure_future(job())

    async def release(self, lane: str) -> None:
        found = next(entry for entry in self.gates if entry[0] == lane)
        self.gates.remove(found)
        found[1].set()
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def _cancel(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_lane_alone_holds_half_of_the_workers() -> None:
    jobs = Jobs(FairScheduler("test", 8))
    tasks = [jobs.begin("a") for _ in range(20)]
    await settle()
    assert jobs.running == ["a"] * 4
    tasks.append(jobs.begin("b"))
    await settle()
    assert jobs.running.count("b") == 1
    await _cancel(*tasks)
    assert jobs.scheduler.free == 8


async def test_two_lanes_come_to_hold_a_third_each() -> None:
    jobs = Jobs(FairScheduler("test", 9))
    tasks = [jobs.begin("a") for _ in range(20)] + [jobs.begin("b") for _ in range(20)]
    await settle()
    for _ in range(6):
        await jobs.release("a")
    assert abs(jobs.running.count("a") - jobs.running.count("b")) <= 1
    assert jobs.scheduler.free >= 2
    await _cancel(*tasks)


async def test_the_lane_that_used_less_comes_first() -> None:
    scheduler = FairScheduler("test", 1)
    order = []

    async def job(name: str, seconds: float) -> None:
        async with scheduler.slot(name):
            order.append(name)
            await asyncio.sleep(seconds)

    first = asyncio.ensure_future(job("a", 0.05))
    await settle()
    waiting = [asyncio.ensure_future(job(name, 0)) for name in ("a", "a", "b", "b")]
    await asyncio.gather(first, *waiting)
    assert order == ["a", "b", "b", "a", "a"]


async def test_caps_bound_a_lane_and_its_sub_lanes() -> None:
    jobs = Jobs(FairScheduler("test", 100, caps=lambda _: Caps(lane=3, sub=2)))
    tasks = [jobs.begin("a", 1) for _ in range(5)] + [jobs.begin("a", 2) for _ in range(5)]
    await settle()
    assert len(jobs.running) == 3
    await jobs.release("a")
    assert len(jobs.running) == 3
    await _cancel(*tasks)
    assert jobs.scheduler.free == 100


async def test_a_full_lane_refuses_at_once_and_others_go_on() -> None:
    jobs = Jobs(FairScheduler("test", 2, items=3))
    tasks = [jobs.begin("a") for _ in range(4)]
    await settle()
    with pytest.raises(LaneFull):
        async with jobs.scheduler.slot("a"):
            pass
    tasks.append(jobs.begin("b"))
    await settle()
    assert jobs.running == ["a", "b"]
    await _cancel(*tasks)


async def test_a_deadline_ends_the_wait_and_the_work() -> None:
    scheduler = FairScheduler("test", 1)

    async def forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await scheduler.run("a", forever, deadline=0.01)
    holder = asyncio.ensure_future(scheduler.run("a", forever))
    await settle()
    with pytest.raises(TimeoutError):
        await scheduler.run("a", forever, deadline=0.01)
    await _cancel(holder)
    assert scheduler.free == 1
    assert scheduler.waiting("a") == 0


async def test_a_worker_that_comes_with_a_cancellation_is_handed_on() -> None:
    jobs = Jobs(FairScheduler("test", 1))
    first, second, third = (jobs.begin(lane) for lane in "abc")
    await settle()
    jobs.gates[0][1].set()
    await asyncio.sleep(0)
    second.cancel()
    await settle()
    assert jobs.running == ["c"]
    await _cancel(first, second, third)
    assert jobs.scheduler.free == 1


async def test_started_jobs_are_bounded_from_the_moment_of_the_call() -> None:
    scheduler = FairScheduler("test", 1, items=2)
    done: list[int] = []

    async def job(number: int) -> None:
        done.append(number)

    for number in range(3):
        scheduler.start("a", partial(job, number))
    with pytest.raises(LaneFull):
        scheduler.start("a", partial(job, 3))
    await scheduler.finish()
    assert done == [0, 1, 2]


async def test_a_failing_job_gives_its_worker_back() -> None:
    scheduler = FairScheduler("test", 1)

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await scheduler.run("a", fail)
    assert scheduler.free == 1
