"""Reads the history of entities: pages, and aggregates that MongoDB computes.

In an aggregate every partition is folded by itself, then the folds are. MongoDB adds doubles with
a remainder, so that a sum of a million of them has all its digits.
"""

import base64
import binascii
import heapq
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, Literal

from libs.common.store.mongo import BATCH_BYTES, FIRST_BATCH, Mongo, page_stages, read_rows
from services.device.entities.history.sources import Scan, Source, Span, time_of

BATCH = 1000
"""Values that are read at a time, where all of them are compared."""

AggregateOf = Literal["MIN", "MAX", "TOTAL", "COUNT", "DISTINCT"]
"""`TOTAL` gives sum and number of values, of which both SUM and AVG are made."""

MOST_COUNTED = 10_000
"""Different values that a COUNT answers, the most frequent first."""

Stages = list[dict[str, Any]]

Record = tuple[int, int, Any]
"""Which source it is from, time in ms, value as it is stored."""


class ValueStore:
    """What entities were."""

    def __init__(self, mongo: Mongo) -> None:
        self._database = mongo.direct

    async def page(
        self, sources: Sequence[Source], span: Span, skip: int, limit: int
    ) -> tuple[AsyncGenerator[Record, None], int]:
        """Return `limit` records behind the first `skip`, and how many there are in all."""
        counted = [await self._counted(source.scans(span)) for source in sources]
        total = sum(count for scans in counted for _, count in scans)
        if len(sources) == 1:
            return self._walk(sources[0], 0, counted[0], skip, limit), total
        walks = [
            self._walk(source, at, counted[at], 0, skip + limit, len(sources))
            for at, source in enumerate(sources)
        ]
        return _merged(walks, skip, limit, newest_first=span.newest_first), total

    async def records(self, source: Source, span: Span) -> AsyncGenerator[Record, None]:
        """Yield everything in order, in constant memory."""
        scans = [(scan, sys.maxsize) for scan in source.scans(span)]
        async for record in self._walk(source, 0, scans, 0, sys.maxsize):
            yield record

    async def last(self, source: Source, span: Span) -> Record | None:
        """The newest record."""
        scans = [(scan, 1) for scan in source.scans(span)]
        async with aclosing(self._walk(source, 0, scans, 0, 1)) as found:
            return await anext(found, None)

    async def aggregate(self, source: Source, span: Span, wanted: AggregateOf) -> list[Any]:
        """The documents that the pipeline of an aggregate gives."""
        pipeline = _pipeline(source, span, wanted)
        if pipeline is None:
            return []
        collection, stages = pipeline
        rows = await self._database[collection].aggregate(stages, allowDiskUse=True)
        return await rows.to_list()

    async def extreme_bytes(
        self, source: Source, span: Span, wanted: Literal["MIN", "MAX"]
    ) -> str | None:
        """The least or the greatest of values in base64, as the bytes they stand for."""
        pipeline = _pipeline(source, span, "DISTINCT")
        if pipeline is None:
            return None
        collection, stages = pipeline
        rows = await self._database[collection].aggregate(
            stages, allowDiskUse=True, batchSize=BATCH
        )
        fold = min if wanted == "MIN" else max
        best: str | None = None
        async for row in rows:
            best = row["_id"] if best is None else fold(best, row["_id"], key=_bytes)
        return best

    async def _counted(self, scans: Sequence[Scan]) -> list[tuple[Scan, int]]:
        return [
            (scan, await self._database[scan.collection].count_documents(scan.match))
            for scan in scans
        ]

    async def _walk(
        self,
        source: Source,
        number: int,
        scans: Sequence[tuple[Scan, int]],
        skip: int,
        limit: int,
        beside: int = 1,
    ) -> AsyncGenerator[Record, None]:
        """Yield records of one source of `beside`; scans that are skipped whole are not read."""
        bounds = {"size": BATCH_BYTES // beside, "first": max(1, FIRST_BATCH // beside)}
        for scan, count in scans:
            if skip >= count:
                skip -= count
                continue
            if limit <= 0:
                return
            stages = page_stages(scan.match, scan.order, skip, limit)
            stages.append({"$project": source.projection})
            skip = 0
            async with aclosing(
                read_rows(self._database[scan.collection], stages, **bounds)
            ) as rows:
                async for row in rows:
                    limit -= 1
                    yield number, time_of(row), row["v"]


async def _merged(
    walks: Sequence[AsyncGenerator[Record, None]], skip: int, limit: int, *, newest_first: bool
) -> AsyncGenerator[Record, None]:
    """Yield `limit` records of all walks in the order of time, behind the first `skip`."""
    sign = -1 if newest_first else 1
    async with AsyncExitStack() as opened:
        for walk in walks:
            await opened.enter_async_context(aclosing(walk))
        heads = [
            (sign * head[1], head[0], head) for walk in walks if (head := await anext(walk, None))
        ]
        heapq.heapify(heads)
        while heads and limit > 0:
            _, number, record = heads[0]
            following = await anext(walks[number], None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (sign * following[1], number, following))
            if skip > 0:
                skip -= 1
                continue
            limit -= 1
            yield record


def _bytes(text: Any) -> bytes:
    """What a stored BINARY holds, for comparing; what is no base64 compares as it stands."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return str(text).encode()


def _pipeline(source: Source, span: Span, wanted: AggregateOf) -> tuple[str, Stages] | None:
    """The collection to run on, and the stages; None when there is nothing to read.

    MIN and MAX give `v`, TOTAL `v` and `n`, COUNT documents of `_id`, the value, and `n`;
    DISTINCT those of all values.
    """
    scans = source.scans(span)
    if not scans:
        return None
    first, *others = (_fold(scan, _value(source, wanted), wanted) for scan in scans)
    unions = [
        {"$unionWith": {"coll": scan.collection, "pipeline": stages}}
        for scan, stages in zip(scans[1:], others, strict=True)
    ]
    together = [_group_again(wanted)] if unions else []
    return scans[0].collection, [*first, *unions, *together, *_shortened(wanted)]


def _value(source: Source, wanted: AggregateOf) -> Any:
    """The value as it counts: the keys of an ENUM of numbers are stored as texts.

    A text that is no number, of a time when the TSL had another type, does not count.
    """
    field = f"${source.field}"
    member = source.entity.member
    if (
        wanted in ("COUNT", "DISTINCT")
        or member.value_type != "LONG"
        or "enum" not in member.attribute
    ):
        return field
    return {"$convert": {"input": field, "to": "long", "onError": None}}


def _fold(scan: Scan, value: Any, wanted: AggregateOf) -> Stages:
    group: dict[str, Any] = {"_id": None}
    match wanted:
        case "MIN" | "MAX":
            group["v"] = {f"${wanted.lower()}": value}
        case "TOTAL":
            group |= {"v": {"$sum": value}, "n": {"$sum": 1}}
        case "COUNT" | "DISTINCT":
            group |= {"_id": value, "n": {"$sum": 1}}
    return [{"$match": scan.match}, {"$group": group}]


def _group_again(wanted: AggregateOf) -> dict[str, Any]:
    group: dict[str, Any] = {"_id": "$_id"}
    if wanted in ("MIN", "MAX"):
        group["v"] = {f"${wanted.lower()}": "$v"}
    else:
        group["n"] = {"$sum": "$n"}
    if wanted == "TOTAL":
        group["v"] = {"$sum": "$v"}
    return {"$group": group}


def _shortened(wanted: AggregateOf) -> Stages:
    if wanted != "COUNT":
        return []
    return [{"$sort": {"n": -1, "_id": 1}}, {"$limit": MOST_COUNTED}]
