"""Reads history: a page is a range scan through the partitions, newest or oldest first."""

from dataclasses import dataclass
from typing import Any

from libs.common.store.mongo import Mongo, SyncDatabase
from services.device.history.partitions import (
    KEY,
    LAST,
    collection_name,
    history_key,
    partition_of,
)

Record = dict[str, Any]
"""A record as it is stored: its key (`_id`) and the properties (`p`)."""


@dataclass(frozen=True, slots=True)
class Span:
    """What is asked for: `start` ≤ ts ≤ `end` (ms) of one device."""

    device_id: int
    start: int
    end: int
    newest_first: bool


@dataclass(frozen=True, slots=True)
class _Range:
    """A scan of one partition."""

    match: dict[str, Any]
    direction: int
    size: int

    @classmethod
    def of(cls, span: Span, after: bytes | None, size: int) -> "_Range":
        bounds: dict[str, Any] = {
            "$gte": history_key(span.device_id, span.start, 0),
            "$lte": history_key(span.device_id, span.end, LAST),
        }
        if after is not None:
            bounds["$lt" if span.newest_first else "$gt"] = after
        return cls({"_id": bounds}, -1 if span.newest_first else 1, size)


class HistoryStore:
    """Property history of devices."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    async def page(
        self, visible: dict[str, Any], span: Span, after: bytes | None, size: int
    ) -> list[Record] | None:
        """Up to `size` records behind the key `after`, of the device that `visible` finds.

        None when it finds none; nothing when the device's data storage is off.
        """

        def read(database: SyncDatabase) -> list[Record] | None:
            first, *others = self._order(span, after) or (partition_of(span.end),)
            found = self._with_device(database, first, visible, _Range.of(span, after, size))
            if found is None:
                return None
            device, records = found
            if not device.get("dataStorage", True):
                return []
            for partition in others:
                if len(records) >= size:
                    break
                rest = _Range.of(span, after, size - len(records))
                cursor = database[collection_name(partition)].find(
                    rest.match,
                    sort=[("_id", rest.direction)],
                    limit=rest.size,
                    batch_size=rest.size + 1,
                )
                records += cursor.to_list()
            return records

        return await self._mongo.read(read)

    @staticmethod
    def _with_device(
        database: SyncDatabase, partition: int, visible: dict[str, Any], wanted: "_Range"
    ) -> tuple[dict[str, Any], list[Record]] | None:
        """The first partition's records and the device, in one round trip.

        The limit stands between the matches so that MongoDB does not join them: a query for
        `_id` alone is not planned, which makes the page's share of mongod some 5 % smaller.
        """
        device = [
            {"$match": {"_id": visible["_id"]}},
            {"$limit": 1},
            {"$match": visible},
            {"$project": {"dataStorage": 1}},
        ]
        found = database[collection_name(partition)].aggregate(
            [
                {"$match": wanted.match},
                {"$sort": {"_id": wanted.direction}},
                {"$limit": wanted.size},
                {"$unionWith": {"coll": "devices", "pipeline": device}},
            ],
            batchSize=wanted.size + 2,
        )
        rows = found.to_list()
        if not rows or "p" in rows[-1]:
            return None
        return rows[-1], rows[:-1]

    @staticmethod
    def _order(span: Span, after: bytes | None) -> range:
        first, last = partition_of(span.start), partition_of(span.end)
        if after is not None:
            reached = partition_of(KEY.unpack(after)[1])
            first, last = (
                (first, min(last, reached)) if span.newest_first else (max(first, reached), last)
            )
        return range(last, first - 1, -1) if span.newest_first else range(first, last + 1)
