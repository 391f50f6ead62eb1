"""Reads the history of entities: pages, and aggregates that MongoDB computes.

In an aggregate every partition is folded by itself, then the folds are. MongoDB adds doubles with
a remainder, so that a sum of a million of them has all its digits.
"""

import base64
import binascii
import heapq
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import Any, Literal

from libs.common.store.mongo import Mongo
from services.device.entities.history.sources import Scan, Source, Span, time_of

BATCH = 1000
"""Records that are held at a time, where all of them are gone through."""

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
    ) -> tuple[list[Record], int]:
        """`limit` records behind the first `skip`, and how many there are in all."""
        counted = [await self._counted(source.scans(span)) for source in sources]
        total = sum(count for scans in counted for _, count in scans)
        if skip >= total:
            return [], total
        if len(sources) == 1:
            return await self._walk(sources[0], 0, counted[0], skip, limit), total
        streams = [
            await self._walk(source, at, counted[at], 0, skip + limit)
            for at, source in enumerate(sources)
        ]
        merged = heapq.merge(*streams, key=_time, reverse=span.newest_first)
        return list(islice(merged, skip, skip + limit)), total

    async def batches(self, source: Source, span: Span) -> AsyncIterator[Sequence[tuple[int, Any]]]:
        """Everything in order, some at a time: as much as there is, in constant memory."""
        for scan in source.scans(span):
            cursor = self._database[scan.collection].find(
                scan.match, source.projection, sort=scan.order, batch_size=BATCH
            )
            try:
                while rows := await cursor.to_list(BATCH):
                    yield [(time_of(row), row["v"]) for row in rows]
            finally:
                await cursor.close()

    async def last(self, source: Source, span: Span) -> Record | None:
        """The newest record."""
        scans = [(scan, 1) for scan in source.scans(span)]
        found = await self._walk(source, 0, scans, 0, 1)
        return found[0] if found else None

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
    ) -> list[Record]:
        """Records of one source in order; scans that are skipped whole are not read."""
        records: list[Record] = []
        for scan, count in scans:
            if len(records) >= limit:
                break
            if skip >= count:
                skip -= count
                continue
            left = limit - len(records)
            rows = self._database[scan.collection].find(
                scan.match,
                source.projection,
                sort=scan.order,
                skip=skip,
                limit=left,
                batch_size=left + 1,
            )
            skip = 0
            records += [(number, time_of(row), row["v"]) async for row in rows]
        return records


def _bytes(text: Any) -> bytes:
    """What a stored BINARY holds, for comparing; what is no base64 compares as it stands."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return str(text).encode()


def _time(record: Record) -> int:
    return record[1]


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
