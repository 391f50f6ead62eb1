"""Jobs beside a service."""

import asyncio
import signal

import pytest

from libs.common.jobs import ended, running


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

    async with running(broken(), asyncio.sleep(60)):
        async with asyncio.timeout(2):
            await failed.wait()
    assert raised == [signal.SIGTERM]


async def test_jobs_end_with_the_service(monkeypatch: pytest.MonkeyPatch):
    """They are cancelled and waited for, and that is no failure."""
    raised: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with running(endless()):
        await begun.wait()
    assert ended.is_set()
    assert raised == []


async def test_a_job_that_swallows_a_cancellation_ends_all_the_same():
    """nats-py swallows the one that comes while it writes; the next one is heard."""
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
    await ended(task)
    assert task.cancelled()
    assert swallowed == 2
