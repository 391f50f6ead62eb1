"""Reads the history of entities: pages, and aggregates that MongoDB computes."""

import base64
import binascii
import heapq
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from typing import Any, Literal

from libs.common.store.mongo import Mongo, SyncDatabase
from services.device.entity_values.pipelines import AggregateOf, pipeline_of
from services.device.entity_values.sources import Scan, Source, Span, time_of

BATCH = 1000
"""Records of an export that are held at a time."""

Record = tuple[int, int, Any]
"""Which source it is from, time in ms, value as it is stored."""


class ValueStore:
    """What entities were."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    async def page(
        self, sources: Sequence[Source], span: Span, skip: int, limit: int
    ) -> tuple[list[Record], int]:
        """`limit` records behind the first `skip`, and how many there are in all."""

        def read(database: SyncDatabase) -> tuple[list[Record], int]:
            counted = [_counted(database, source.scans(span)) for source in sources]
            total = sum(count for scans in counted for _, count in scans)
            if skip >= total:
                return [], total
            if len(sources) == 1:
                return list(_walk(database, sources[0], 0, counted[0], skip, limit)), total
            streams = [
                _walk(database, source, at, counted[at], 0, skip + limit)
                for at, source in enumerate(sources)
            ]
            merged = heapq.merge(*streams, key=_time, reverse=span.newest_first)
            return list(islice(merged, skip, skip + limit)), total

        return await self._mongo.read(read)

    async def batches(self, source: Source, span: Span) -> AsyncIterator[Sequence[tuple[int, Any]]]:
        """Everything in order, some at a time: as much as there is, in constant memory."""
        for scan in source.scans(span):
            cursor = self._mongo.database[scan.collection].find(
                scan.match, source.projection, sort=scan.order, batch_size=BATCH
            )
            try:
                while rows := await cursor.to_list(BATCH):
                    yield [(time_of(row), row["v"]) for row in rows]
            finally:
                await cursor.close()

    async def last(self, source: Source, span: Span) -> Record | None:
        """The newest record."""

        def read(database: SyncDatabase) -> Record | None:
            scans = [(scan, 1) for scan in source.scans(span)]
            return next(_walk(database, source, 0, scans, 0, 1), None)

        return await self._mongo.read(read)

    async def aggregate(self, source: Source, span: Span, wanted: AggregateOf) -> list[Any]:
        """The documents that the pipeline of an aggregate gives."""
        pipeline = pipeline_of(source, span, wanted)
        if pipeline is None:
            return []
        collection, stages = pipeline

        def read(database: SyncDatabase) -> list[Any]:
            return list(database[collection].aggregate(stages, allowDiskUse=True))

        return await self._mongo.read(read)

    async def extreme_bytes(
        self, source: Source, span: Span, wanted: Literal["MIN", "MAX"]
    ) -> str | None:
        """The least or the greatest of values in base64, as the bytes they stand for."""
        pipeline = pipeline_of(source, span, "DISTINCT")
        if pipeline is None:
            return None
        collection, stages = pipeline
        fold = min if wanted == "MIN" else max

        def read(database: SyncDatabase) -> str | None:
            rows = database[collection].aggregate(stages, allowDiskUse=True)
            return fold((row["_id"] for row in rows), key=_bytes, default=None)

        return await self._mongo.read(read)


def _bytes(text: Any) -> bytes:
    """What a stored BINARY holds, for comparing; what is no base64 compares as it stands."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return str(text).encode()


def _time(record: Record) -> int:
    return record[1]


def _counted(database: SyncDatabase, scans: Sequence[Scan]) -> list[tuple[Scan, int]]:
    return [(scan, database[scan.collection].count_documents(scan.match)) for scan in scans]


def _walk(
    database: SyncDatabase,
    source: Source,
    number: int,
    scans: Sequence[tuple[Scan, int]],
    skip: int,
    limit: int,
) -> Iterator[Record]:
    """Records of one source in order; scans that are skipped whole are not read."""
    for scan, count in scans:
        if limit <= 0:
            return
        if skip >= count:
            skip -= count
            continue
        cursor = database[scan.collection].find(
            scan.match, source.projection, sort=scan.order, skip=skip, limit=limit
        )
        skip = 0
        for row in cursor:
            limit -= 1
            yield number, time_of(row), row["v"]
