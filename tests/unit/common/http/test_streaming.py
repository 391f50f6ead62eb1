"""Long answers are encoded and sent piece by piece."""

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from litestar.exceptions import LitestarException
from litestar.params import FromQuery
from litestar.testing import create_test_client

from libs.common.http import streaming
from libs.common.http.console import Page, PageRequest, get
from libs.common.http.failures import EXCEPTION_HANDLERS
from libs.common.http.operations import list_operations
from libs.common.http.streaming import (
    MAX_PAGE_BYTES,
    PIECE_BYTES,
    StreamedAnswer,
    cut_page,
    join_pieces,
    map_batches,
)

MANY = 3 * PIECE_BYTES // 100


async def rows(number: int, fault: int | None = None) -> AsyncGenerator[str, None]:
    """Rows of 100 bytes."""
    for at in range(number):
        if at == fault:
            raise ValueError("this row cannot be read")
        yield "x" * 97


@get("/list")
async def list_rows(number: FromQuery[int]) -> StreamedAnswer[list[str]]:
    """Give a list."""
    return StreamedAnswer([], rows(number))


@get("/page")
async def page_rows(
    number: FromQuery[int], fault: FromQuery[int | None] = None
) -> StreamedAnswer[list[str] | Page[str]]:
    """Give a page."""
    return PageRequest(page_size=10).streamed(rows(number, fault), number)


@get("/map")
async def map_rows(number: FromQuery[int]) -> StreamedAnswer[dict[str, int]]:
    """Give values by key."""
    return StreamedAnswer({}, streaming.iterate_rows([(str(at), at) for at in range(number)]))


@get("/complete")
async def complete_rows(number: FromQuery[int]) -> Page[str]:
    """Give a page that is read already."""
    return Page(page_size=1, page_number=1, total=1, content=["x" * 97] * number)


ROUTES = list_operations(globals())


def answer(path: str, **given: int) -> Any:
    with create_test_client(ROUTES, exception_handlers=EXCEPTION_HANDLERS) as client:
        return client.get(path, params=given)


@pytest.mark.parametrize("number", [0, 1, 2, 101, MANY])
def test_an_answer_is_the_same_whatever_its_length(number: int):
    """A list, a page and a map have all their rows, in order."""
    row = "x" * 97
    page = {"page_size": 10, "page_number": 1, "total": number, "content": [row] * number}
    assert answer("/list", number=number).json()["data"] == [row] * number
    assert answer("/page", number=number).json()["data"] == page
    assert answer("/complete", number=number).json()["data"]["content"] == [row] * number
    found = answer("/map", number=number)
    assert found.json()["data"] == {str(at): at for at in range(number)}
    assert found.text.endswith('","request_id":"' + found.json()["request_id"] + '"}')


@pytest.mark.parametrize("path", ["/list", "/complete"])
def test_only_a_short_response_has_a_length(path: str):
    """A long response begins before its last row is read."""
    assert "content-length" in answer(path, number=10).headers
    assert "content-length" not in answer(path, number=MANY).headers


def test_a_fault_at_the_beginning_is_an_error():
    """Nothing was sent yet."""
    found = answer("/page", number=MANY, fault=10)
    assert (found.status_code, found.json()["status"]) == (500, "Failed")


def test_a_fault_after_the_beginning_breaks_the_answer_off():
    """The server closes the connection without the end of the answer."""
    with pytest.raises((LitestarException, ExceptionGroup, ValueError)):
        answer("/page", number=MANY, fault=MANY - 1)


async def test_an_answer_holds_two_pieces_at_most():
    """A hundred pieces are sent; memory never has a tenth of them."""
    streamed: StreamedAnswer[list[str]] = StreamedAnswer([], rows(100 * PIECE_BYTES // 100))
    tracemalloc.start()
    try:
        pieces = join_pieces(streaming.encode_parts(streamed, b'{"data":[]}'))
        sent = sum([len(piece) async for piece in pieces])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sent > 99 * PIECE_BYTES
    assert peak < 10 * PIECE_BYTES


async def test_others_go_on_between_two_pieces():
    """Rows that are at hand do not keep the event loop."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    sent = [
        piece
        async for piece in join_pieces(
            streaming.encode_parts(StreamedAnswer([], rows(MANY)), b"[]")
        )
    ]
    task.cancel()
    assert turns >= len(sent) - 1 > 1


async def test_rows_are_completed_some_at_a_time():
    """No more than so many are looked up together."""
    asked: list[int] = []

    async def complete(part: Any) -> list[int]:
        asked.append(len(part))
        return [2 * one for one in part]

    found = [one async for one in map_batches(streaming.iterate_rows(range(7)), complete, 3)]
    assert (found, asked) == ([0, 2, 4, 6, 8, 10, 12], [3, 3, 1])


async def test_a_page_with_a_cursor_ends_early_at_its_bound():
    """It names its last row, and has one row at least."""
    half = MAX_PAGE_BYTES // 2
    shown, last = await cut_page(
        streaming.iterate_rows([half, half, 1]), 3, lambda size: "x" * size
    )
    assert (len(shown), last) == (1, half)
    shown, last = await cut_page(streaming.iterate_rows([3 * half, 1]), 3, lambda size: "x" * size)
    assert (len(shown), last) == (1, 3 * half)
    shown, last = await cut_page(streaming.iterate_rows([1, 2, 3]), 3, lambda size: "x" * size)
    assert (len(shown), last) == (3, None)
    shown, last = await cut_page(streaming.iterate_rows([1, 2, 3]), 2, lambda size: "x" * size)
    assert (len(shown), last) == (2, 2)
