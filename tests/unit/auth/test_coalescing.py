"""Look-ups of one event-loop turn, with a reader that counts."""

import asyncio

import pytest

from libs.common.identity import Kind, Principal
from libs.common.identity.tokens import CoalescingTokenReader


class CountingReader:
    """Knows every token but `unknown`; `broken` makes it fail."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    async def principals(self, tokens):
        self.calls.append(list(tokens))
        await asyncio.sleep(0)
        if "broken" in tokens:
            raise ConnectionError("Redis is gone")
        return [None if token == "unknown" else _principal(token) for token in tokens]


def _principal(subject: str) -> Principal:
    return Principal(kind=Kind.APPLICATION, tenant="t", subject=subject)


async def test_one_turn_is_one_round_trip():
    """Each caller gets its own answer; the next turn asks again."""
    reader = CountingReader()
    coalescing = CoalescingTokenReader(reader)

    found = await asyncio.gather(*(coalescing.principal(each) for each in ("a", "unknown", "a")))
    await coalescing.principal("a")

    assert found == [_principal("a"), None, _principal("a")]
    assert reader.calls == [["a", "unknown", "a"], ["a"]]


async def test_a_failure_reaches_every_caller_of_the_turn():
    """And none of the next."""
    coalescing = CoalescingTokenReader(CountingReader())

    found = await asyncio.gather(
        *(coalescing.principal(each) for each in ("a", "broken")), return_exceptions=True
    )

    assert [type(each) for each in found] == [ConnectionError, ConnectionError]
    assert await coalescing.principal("a") == _principal("a")


async def test_a_caller_that_leaves_takes_nobody_with_it():
    """A cancelled request does not disturb those it shared a round trip with."""
    coalescing = CoalescingTokenReader(CountingReader())
    leaving, staying = (asyncio.ensure_future(coalescing.principal(each)) for each in "ab")
    await asyncio.sleep(0)

    leaving.cancel()

    assert await staying == _principal("b")
    with pytest.raises(asyncio.CancelledError):
        await leaving
