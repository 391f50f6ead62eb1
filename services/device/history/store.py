"""Reads history: a page is a range scan through the partitions, newest or oldest first."""

from dataclasses import dataclass
from typing import Any

from services.device.history.partitions import (
    KEY,
    LAST,
    Partitions,
    history_key,
    partition_of,
)


@dataclass(frozen=True, slots=True)
class Span:
    """What is asked for: `start` ≤ ts ≤ `end` (ms) of one device."""

    device_id: int
    start: int
    end: int
    newest_first: bool


class HistoryStore:
    """Property history of devices."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    async def page(
        self, span: Span, after: bytes | None, size: int
    ) -> list[tuple[bytes, int, dict[str, Any]]]:
        """Up to `size` records `(key, ts, properties)` behind the key `after`."""
        low = history_key(span.device_id, span.start, 0)
        high = history_key(span.device_id, span.end, LAST)
        bounds: dict[str, Any] = {"$gte": low, "$lte": high}
        if after is not None:
            bounds["$lt" if span.newest_first else "$gt"] = after
        records: list[tuple[bytes, int, dict[str, Any]]] = []
        for partition in self._order(span, after):
            cursor = self._partitions.collection(partition).find(
                {"_id": bounds},
                sort=[("_id", -1 if span.newest_first else 1)],
                limit=size - len(records),
                batch_size=size + 1,
            )
            for document in await cursor.to_list(None):
                key: bytes = document["_id"]
                records.append((key, KEY.unpack(key)[1], document["p"]))
            if len(records) >= size:
                break
        return records

    @staticmethod
    def _order(span: Span, after: bytes | None) -> range:
        first, last = partition_of(span.start), partition_of(span.end)
        if after is not None:
            reached = partition_of(KEY.unpack(after)[1])
            first, last = (
                (first, min(last, reached)) if span.newest_first else (max(first, reached), last)
            )
        return range(last, first - 1, -1) if span.newest_first else range(first, last + 1)
