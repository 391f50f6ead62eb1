"""Questions of one event-loop turn, asked of somebody who counts."""

import asyncio
from collections.abc import Sequence

import pytest

from libs.common.store.redis import RequestBatcher


class Counting:
    """Knows every question but `unknown`; `broken` makes it fail."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    async def answers(self, questions: Sequence[str]) -> list[str | None]:
        self.calls.append(list(questions))
        await asyncio.sleep(0)
        if "broken" in questions:
            raise ConnectionError("Redis is gone")
        return [None if one == "unknown" else f"{one}!" for one in questions]


async def test_one_turn_is_one_round_trip():
    """Each caller gets its own answer; the next turn asks again."""
    counting = Counting()
    coalescing = RequestBatcher(counting.answers)

    found = await asyncio.gather(*(coalescing.answer(each) for each in ("a", "unknown", "a")))
    await coalescing.answer("a")

    assert found == ["a!", None, "a!"]
    assert counting.calls == [["a", "unknown", "a"], ["a"]]


async def test_a_failure_reaches_every_caller_of_the_round_trip():
    """Later callers do not get it."""
    coalescing = RequestBatcher(Counting().answers)

    found = await asyncio.gather(
        *(coalescing.answer(each) for each in ("a", "broken")), return_exceptions=True
    )

    assert [type(each) for each in found] == [ConnectionError, ConnectionError]
    assert await coalescing.answer("a") == "a!"


async def test_a_caller_that_leaves_takes_nobody_with_it():
    """A cancelled request does not disturb those it shared a round trip with."""
    coalescing = RequestBatcher(Counting().answers)
    leaving, staying = (asyncio.ensure_future(coalescing.answer(each)) for each in "ab")
    await asyncio.sleep(0)

    leaving.cancel()

    assert await staying == "b!"
    with pytest.raises(asyncio.CancelledError):
        await leaving
