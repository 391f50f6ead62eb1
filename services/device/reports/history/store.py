"""Reads history: a page is a range scan through the partitions, newest or oldest first."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from libs.common.http.streaming import begun_with, each
from libs.common.store.mongo import Document, page_stages, read_rows
from libs.common.tsl import Tsl
from services.device.reports.history.partitions import (
    KEY,
    LAST,
    Partitions,
    history_key,
    partition_of,
)
from services.device.reports.retention.days import Retention
from services.device.things.device_store import DeviceStore
from services.device.things.specifications import Tsls


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
    ) -> AsyncGenerator[Document, None] | None:
        """Return up to `size` records behind the key `after`, of a device of the application.

        None when there is none; nothing when the device's data storage is off.
        """
        rows = self._scan(span, after, size)
        device, first = await asyncio.gather(
            self._devices.storage(tenant, span.device_id, application_id), anext(rows, None)
        )
        if device is None or not device.data_storage:
            await rows.aclose()
            return None if device is None else each([])
        tsl, kept = await asyncio.gather(
            self._tsls.find(device.tenant, device.model, device.tsl_version),
            self._retention.oldest(device.tenant, device.model),
        )
        oldest = max(kept, device.owned_since)
        if first is not None and not span.newest_first and _time(first) < oldest:
            await rows.aclose()
            rows, first = self._scan(replace(span, start=oldest), after, size), None
        return self._readable(begun_with([first] if first else [], rows), oldest, tsl)

    async def _readable(
        self, rows: AsyncGenerator[Document, None], oldest: int, tsl: Tsl
    ) -> AsyncGenerator[Document, None]:
        """Yield rows until one is older than `oldest`, without values that nobody may read."""
        async with aclosing(rows):
            async for row in rows:
                if _time(row) < oldest:
                    return
                if tsl.conceals:  # stored under another TSL
                    row["p"] = tsl.readable(row["p"])
                yield row

    async def _scan(
        self, span: Span, after: bytes | None, size: int
    ) -> AsyncGenerator[Document, None]:
        """Yield up to `size` records, from one partition after the other."""
        bounds: dict[str, bytes] = {
            "$gte": history_key(span.device_id, span.start, 0),
            "$lte": history_key(span.device_id, span.end, LAST),
        }
        if after is not None:
            bounds["$lt" if span.newest_first else "$gt"] = after
        order = [("_id", -1 if span.newest_first else 1)]
        for partition in self._order(span, after):
            stages = page_stages({"_id": bounds}, order, limit=size)
            async with aclosing(read_rows(self._partitions.collection(partition), stages)) as rows:
                async for row in rows:
                    yield row
                    size -= 1
            if size <= 0:
                return

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
