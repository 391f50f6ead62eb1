"""Reads history: a page is a range scan through the partitions, newest or oldest first."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from libs.common.store.mongo import Mongo
from services.device.history.partitions import (
    KEY,
    LAST,
    collection_name,
    history_key,
    partition_of,
)
from services.device.retention.days import Retention
from services.device.things.model import StorageOf
from services.device.things.store import DeviceStore

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

    def __init__(self, mongo: Mongo, devices: DeviceStore, retention: Retention) -> None:
        self._database = mongo.database
        self._devices = devices
        self._retention = retention

    async def page(
        self, tenant: str, application_id: int, span: Span, after: bytes | None, size: int
    ) -> list[Record] | None:
        """Up to `size` records behind the key `after`, of a device of the application.

        None when there is none; nothing when the device's data storage is off.
        """
        first = next(iter(self._order(span, after)), partition_of(span.end))
        device: StorageOf | None
        records: list[Record]
        device, records = await asyncio.gather(
            self._devices.storage(tenant, span.device_id, application_id),
            self._scan(first, _Range.of(span, after, size)),
        )
        if device is None:
            return None
        if not device.data_storage:
            return []
        oldest = await self._retention.oldest(device.tenant, device.model)
        if oldest > span.start:
            return await self._read(replace(span, start=oldest), after, size, [], None)
        return await self._read(span, after, size, records, first)

    async def _read(
        self, span: Span, after: bytes | None, size: int, records: list[Record], done: int | None
    ) -> list[Record]:
        """What the partitions have beside `records`, which `done` has given."""
        for partition in self._order(span, after):
            if partition == done:
                continue
            if len(records) >= size:
                break
            records += await self._scan(partition, _Range.of(span, after, size - len(records)))
        return records

    async def _scan(self, partition: int, wanted: "_Range") -> list[Record]:
        """The records of one partition; one more than a batch, so that it comes in one answer."""
        cursor = self._database[collection_name(partition)].find(
            wanted.match,
            sort=[("_id", wanted.direction)],
            limit=wanted.size,
            batch_size=wanted.size + 1,
        )
        return await cursor.to_list()

    @staticmethod
    def _order(span: Span, after: bytes | None) -> range:
        first, last = partition_of(span.start), partition_of(span.end)
        if after is not None:
            reached = partition_of(KEY.unpack(after)[1])
            first, last = (
                (first, min(last, reached)) if span.newest_first else (max(first, reached), last)
            )
        return range(last, first - 1, -1) if span.newest_first else range(first, last + 1)
