"""Refusals are held back from who is refused again and again, and from nobody else."""

import asyncio
from types import SimpleNamespace

import pytest

from services.gateway import rates as module
from services.gateway.rates import Tarpit


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each refusal was held back; no time passes."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1.0))
    return found


async def test_the_first_rejections_are_not_delayed(slept: list[float]) -> None:
    """Clients that rarely exceed a limit are not slowed down."""
    tarpit = Tarpit()
    for _ in range(20):
        await tarpit.delay_rejection("a")
    assert slept == []


async def test_further_refusals_wait_longer_each_time(slept: list[float]) -> None:
    """Up to a bound, however many there are."""
    tarpit = Tarpit()
    for _ in range(50):
        await tarpit.delay_rejection("a")
    assert slept[:3] == [0.5, 1.0, 1.5]
    assert slept[-20:] == [5.0] * 20


async def test_rejections_of_one_client_do_not_delay_others(slept: list[float]) -> None:
    """A first rejection is sent immediately during a flood of another client."""
    tarpit = Tarpit()
    for _ in range(50):
        await tarpit.delay_rejection("a")
    slept.clear()
    await tarpit.delay_rejection("b")
    assert slept == []


async def test_so_many_are_held_back_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next is told at once."""
    monkeypatch.setattr(module, "MAX_DELAYED_REJECTIONS", 3)
    tarpit = Tarpit()
    for _ in range(20):
        await tarpit.delay_rejection("a")
    held = [asyncio.ensure_future(tarpit.delay_rejection("a")) for _ in range(3)]
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await tarpit.delay_rejection("a")
    assert not any(entry.done() for entry in held)
    for entry in held:
        entry.cancel()
