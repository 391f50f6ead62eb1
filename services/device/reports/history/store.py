"""Reads history: a page is a range scan through the partitions, newest or oldest first."""

import asyncio
from dataclasses import dataclass, replace

from libs.common.store.mongo import Document
from services.device.reports.history.partitions import (
    KEY,
    LAST,
    Partitions,
    history_key,
    partition_of,
)
from services.device.reports.retention.days import Retention
from services.device.things.store import DeviceStore
from services.device.things.tsls import Tsls


@dataclass(frozen=True, slots=True)
class Span:
    """What is asked for: `start` ≤ ts ≤ `end` (ms) of one device."""

    device_id: int
    start: int
    end: int
    newest_first: bool


class HistoryStore:
    """Property history of devices."""

    def __init__(
        self, devices: DeviceStore, partitions: Partitions, retention: Retention, tsls: Tsls
    ) -> None:
        self._devices = devices
        self._tsls = tsls
        self._partitions = partitions
        self._retention = retention

    async def page(
        self, tenant: str, application_id: int, span: Span, after: bytes | None, size: int
    ) -> list[Document] | None:
        """Up to `size` records behind the key `after`, of a device of the application.

        None when there is none; nothing when the device's data storage is off.
        """
        partition = next(iter(self._order(span, after)), partition_of(span.end))
        first: int | None = partition
        device, records = await asyncio.gather(
            self._devices.storage(tenant, span.device_id, application_id),
            self._scan(partition, span, after, size),
        )
        if device is None:
            return None
        if not device.data_storage:
            return []
        tsl, kept = await asyncio.gather(
            self._tsls.find(device.tenant, device.model, device.tsl_version),
            self._retention.oldest(device.tenant, device.model),
        )
        oldest = max(kept, device.owned_since)
        if oldest > span.start:
            span = replace(span, start=oldest)
            if records and _time(records[-1 if span.newest_first else 0]) < oldest:
                records, first = [], None
        records = await self._read(span, after, size, records, first)
        if tsl.conceals:  # stored under another TSL
            for record in records:
                record["p"] = tsl.readable(record["p"])
        return records

    async def _read(
        self, span: Span, after: bytes | None, size: int, records: list[Document], done: int | None
    ) -> list[Document]:
        """What the partitions have beside `records`, which `done` has given."""
        for partition in self._order(span, after):
            if partition == done:
                continue
            if len(records) >= size:
                break
            records += await self._scan(partition, span, after, size - len(records))
        return records

    async def _scan(
        self, partition: int, span: Span, after: bytes | None, size: int
    ) -> list[Document]:
        """The records of one partition; one more than a batch, so that it comes in one answer."""
        bounds: dict[str, bytes] = {
            "$gte": history_key(span.device_id, span.start, 0),
            "$lte": history_key(span.device_id, span.end, LAST),
        }
        if after is not None:
            bounds["$lt" if span.newest_first else "$gt"] = after
        cursor = self._partitions.collection(partition).find(
            {"_id": bounds},
            sort=[("_id", -1 if span.newest_first else 1)],
            limit=size,
            batch_size=size + 1,
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


def _time(record: Document) -> int:
    return int(KEY.unpack(record["_id"])[1])
