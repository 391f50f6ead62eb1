"""Jobs beside a service."""

import asyncio
import contextlib
import signal
import time
from functools import partial

import pytest

from libs.common.jobs import (
    NamedTasks,
    cancel_and_wait,
    gather_limited,
    retry,
    run_in_background,
    run_until_first_ends,
    run_with_timeout,
    seconds_to_tick,
    wait_for_event,
)


async def test_a_job_that_fails_ends_the_process(monkeypatch: pytest.MonkeyPatch):
    """A process that serves and no longer works would look ready."""
    raised: list[int] = []
    failed = asyncio.Event()

    def end(number: int) -> None:
        raised.append(number)
        failed.set()

    monkeypatch.setattr(signal, "raise_signal", end)

    async def broken() -> None:
        raise ValueError("oops")

    async with run_in_background(broken(), asyncio.sleep(60)):
        async with asyncio.timeout(30):
            await failed.wait()
    assert raised == [signal.SIGTERM]


async def test_jobs_end_with_the_service(monkeypatch: pytest.MonkeyPatch):
    """They are cancelled and waited for, and that is no failure."""
    raised: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    begun, cancel_and_wait = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancel_and_wait.set()

    async with run_in_background(endless()):
        await begun.wait()
    assert cancel_and_wait.is_set()
    assert raised == []


async def test_a_wait_can_be_cancelled_when_the_event_occurs():
    """Otherwise an endless job would continue for one more round."""
    event = asyncio.Event()
    waiting = asyncio.ensure_future(wait_for_event(event, 60))
    await asyncio.sleep(0)
    event.set()
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()


@pytest.mark.parametrize(("seconds", "comes"), [(0.0, False), (60.0, True), (None, True)])
async def test_a_wait_ends_with_the_event_or_the_time(seconds: float | None, comes: bool):
    """Neither raises an error. None waits without a limit."""
    event = asyncio.Event()
    if comes:
        asyncio.get_running_loop().call_soon(event.set)
    async with asyncio.timeout(30):
        await wait_for_event(event, seconds)
    assert event.is_set() is comes


async def test_a_job_that_swallows_a_cancellation_ends_all_the_same():
    """Libraries swallow one that comes with what they wait for; the next one is heard."""
    swallowed = 0

    async def deaf() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed > 1:
                    raise

    task = asyncio.ensure_future(deaf())
    await asyncio.sleep(0)
    await cancel_and_wait(task)
    assert task.cancelled()
    assert swallowed == 2


async def test_a_group_of_jobs_ends_with_its_first_error():
    """The error is raised even if another job ignores its cancellation."""
    left = False

    async def deaf() -> None:
        nonlocal left
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await asyncio.sleep(60)
        finally:
            left = True

    async def wrong() -> None:
        await asyncio.sleep(0)
        raise KeyError

    with pytest.raises(KeyError):
        await run_until_first_ends(deaf(), wrong())
    assert left


async def test_a_job_that_ignores_its_cancellation_ends_after_a_time():
    """A job in time returns its result or raises its error."""

    async def deaf() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    async def quick() -> int:
        return 7

    async def wrong() -> int:
        raise KeyError

    with pytest.raises(TimeoutError):
        await run_with_timeout(0, deaf())
    assert await run_with_timeout(60, quick()) == 7
    with pytest.raises(KeyError):
        await run_with_timeout(60, wrong())


async def test_a_task_cancelled_twice_leaves_none_behind_that_it_is_ending():
    """On a loaded machine what ends slowly is cancelled once more while it ends its own tasks."""
    begun, stopping, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            while not may_end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await may_end.wait()

    inner = asyncio.ensure_future(slow())

    async def outer() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await cancel_and_wait(inner)

    task = asyncio.ensure_future(outer())
    await begun.wait()
    task.cancel()
    await stopping.wait()
    task.cancel()
    for _ in range(10):  # turns of the loop in which it could end
        await asyncio.sleep(0)
    ended_early = task.done()
    may_end.set()
    await asyncio.wait({task})
    assert not ended_early
    assert task.cancelled()
    assert inner.done()


async def test_a_job_beside_may_begin_again_as_soon_as_it_has_ended():
    """Also before the loop has told anybody of its end: what is begun then is not lost."""
    tasks = NamedTasks()
    done: list[str] = []

    async def first() -> None:
        done.append("first")

    async def second() -> None:
        done.append("second")

    task = tasks.start("job", first)
    assert task is not None
    assert tasks.start("job", second) is None
    while not task.done():
        await asyncio.sleep(0)
    other = tasks.start("job", second)
    assert other is not None
    await other
    assert done == ["first", "second"]


async def test_results_of_a_limited_number_of_calls_come_in_order():
    """Never more than two of ten run at a time; the first failure is raised."""
    now, most = 0, 0

    async def call(number: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(10 - number):
            await asyncio.sleep(0)
        now -= 1
        if number == 10:
            raise KeyError(number)
        return number

    assert await gather_limited(2, (partial(call, number) for number in range(10))) == [*range(10)]
    assert most == 2
    with pytest.raises(KeyError):
        await gather_limited(2, (partial(call, number) for number in range(9, 12)))


async def test_attempts_go_on_until_one_raises_none_of_the_errors():
    """An error that is not among them is raised at once."""
    failures: list[Exception] = [OSError(), TimeoutError(), OSError()]

    async def attempt() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert await retry(attempt, OSError) == "done"
    failures.append(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await retry(attempt, OSError)


@pytest.mark.parametrize(
    ("now", "seconds"), [(104.0, 6.0), (100.0, 10.0), (109.5, 10.5)], ids=["later", "on", "early"]
)
def test_timers_of_a_machine_end_at_multiples_of_their_period(
    monkeypatch: pytest.MonkeyPatch, now: float, seconds: float
):
    """A timer that ends shortly before the tick counts as one that ends at the tick."""
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert seconds_to_tick(10.0) == pytest.approx(seconds)
