"""Who sends too much is shut out once, and what still comes from it is known."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from libs.common.contracts.auth import BLOCK_SECONDS, BLOCK_USER, BlockUser, Done
from libs.common.errors import Unavailable
from libs.common.limits import meter as module
from libs.common.limits.meter import FloodGuard


class Auth:
    """Notes what it is asked; refuses while it is `away`."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[BlockUser] = asyncio.Queue()
        self.away = False

    async def call(self, subject: str, request: BlockUser, _: type[Done], timeout: float) -> Done:
        assert subject == BLOCK_USER
        self.asked.put_nowait(request)
        if self.away:
            raise Unavailable("auth is away")
        return Done()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


async def test_a_flood_is_ended_once_until_its_time_is_over(clock: Any):
    auth = Auth()
    floods = FloodGuard(auth)  # type: ignore[arg-type]
    floods.block("D1")
    floods.block("D1")
    assert await auth.asked.get() == BlockUser("D1")
    assert floods.is_blocked("D1")
    assert not floods.is_blocked("D2")
    assert auth.asked.empty()
    clock.now += BLOCK_SECONDS
    assert not floods.is_blocked("D1")
    floods.block("D1")
    assert await auth.asked.get() == BlockUser("D1")


async def test_who_could_not_be_shut_out_is_with_its_next_message(clock: Any):
    auth = Auth()
    auth.away = True
    floods = FloodGuard(auth)  # type: ignore[arg-type]
    floods.block("D1")
    await auth.asked.get()
    while floods.is_blocked("D1"):
        await asyncio.sleep(0)
    auth.away = False
    floods.block("D1")
    await auth.asked.get()
    assert floods.is_blocked("D1")
