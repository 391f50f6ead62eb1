"""Streaming of long answers: the rows of a list are encoded and sent in pieces.

A short answer is sent in one piece, with its length. A longer one starts when two pieces are ready,
so that an earlier failure is still answered as an error. A later failure closes the connection, so
that no client accepts an incomplete answer.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from litestar.serialization import encode_json

T = TypeVar("T")
R = TypeVar("R")

PIECE_BYTES = 128 * 1024
"""Bytes of a piece, after which other requests continue."""
MAX_PAGE_BYTES = 8 * 1024 * 1024 - 64 * 1024
"""Maximum bytes of the rows of a page that a cursor continues; with the envelope, 8 MiB."""
MAX_ROWS_WITHOUT_PAUSE = 100
"""Rows of a complete list that are encoded without a pause."""
ROWS_PER_BATCH = 100
"""Rows that are completed in one step, for example with names from another collection."""


@dataclass(frozen=True)
class StreamedAnswer(Generic[T]):
    """An answer whose list or dictionary is read while it is sent.

    `around` is the answer without its rows: an empty list, an empty dictionary, or a struct that
    ends with an empty list. The rows of a dictionary are pairs of key and value.
    """

    around: Any
    rows: AsyncGenerator[Any, None]


def to_streamed_answer(data: Any) -> StreamedAnswer[Any] | None:
    """Return the streamed form of a long list; None for other answers."""
    if isinstance(data, StreamedAnswer):
        return data
    if isinstance(data, list) and len(data) > MAX_ROWS_WITHOUT_PAUSE:
        return StreamedAnswer([], iterate_rows(data))
    if isinstance(data, msgspec.Struct) and data.__struct_fields__[-1:] == ("content",):
        content = data.content  # type: ignore[attr-defined]
        if isinstance(content, list) and len(content) > MAX_ROWS_WITHOUT_PAUSE:
            return StreamedAnswer(msgspec.structs.replace(data, content=[]), iterate_rows(content))
    return None


async def map_batches(
    rows: AsyncGenerator[T, None],
    complete: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
    maximum: int = ROWS_PER_BATCH,
) -> AsyncGenerator[R, None]:
    """Yield rows that `complete` returns for `maximum` rows at a time."""
    async with aclosing(rows):
        part: list[T] = []
        async for row in rows:
            part.append(row)
            if len(part) == maximum:
                for completed in await complete(part):
                    yield completed
                part = []
        for completed in await complete(part) if part else ():
            yield completed


async def cut_page(
    rows: AsyncGenerator[T, None], maximum: int, show: Callable[[Any], Any]
) -> tuple[list[Any], T | None]:
    """Return up to `maximum` rows as JSON, fewer if they exceed `MAX_PAGE_BYTES` bytes.

    The first row is returned regardless of its size. The last returned row is also returned
    separately if more rows follow, else None.
    """
    page_rows: list[Any] = []
    last: T | None = None
    size = 0
    async with aclosing(rows):
        async for row in rows:
            text = encode_json(show(row))
            size += len(text) + 1
            if len(page_rows) == maximum or (page_rows and size > MAX_PAGE_BYTES):
                return page_rows, last
            page_rows.append(msgspec.Raw(text))
            last = row
    return page_rows, None


async def encode_parts(
    streamed: StreamedAnswer[Any], envelope: bytes
) -> AsyncGenerator[bytes, None]:
    """Yield an answer in parts, one per row; `envelope` is the answer without rows."""
    pairs = isinstance(streamed.around, dict)
    head, _, tail = envelope.rpartition(b"{}" if pairs else b"[]")
    yield head + (b"{" if pairs else b"[")
    async with aclosing(streamed.rows) as rows:
        comma = b""
        async for row in rows:
            yield comma + (encode_json(dict([row]))[1:-1] if pairs else encode_json(row))
            comma = b","
    yield (b"}" if pairs else b"]") + tail


async def join_pieces(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Join parts to pieces, and let other requests continue after each."""
    piece = bytearray()
    async with aclosing(parts):
        async for part in parts:
            piece += part
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
                await asyncio.sleep(0)
    if piece:
        yield bytes(piece)


async def chain_rows(
    first: Sequence[T], others: AsyncGenerator[T, None]
) -> AsyncGenerator[T, None]:
    """Yield the items of `first`, then the others."""
    for row in first:
        yield row
    async with aclosing(others):
        async for other in others:
            yield other


async def iterate_rows(rows: Sequence[T]) -> AsyncGenerator[T, None]:
    """Yield the rows of a sequence."""
    for row in rows:
        yield row
