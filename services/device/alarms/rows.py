"""Reads what a rule looks at of a device's history: the order in which it happened."""

from collections.abc import Iterable
from typing import Any

from libs.common.clock import now_ms
from libs.common.store.mongo import Document, Mongo
from services.device.alarms.deciding import Row, value_at
from services.device.alarms.model import EventCondition, ValueCondition
from services.device.reports.events.store import EVENTS
from services.device.reports.history.partitions import (
    DAY_MS,
    KEY,
    LAST,
    collection_name,
    history_key,
    partition_of,
)
from services.device.reports.store import DELAY

CHUNK = 1000
"""Rows of one read."""


class History:
    """The values and events of devices."""

    def __init__(self, mongo: Mongo, retention_days: int) -> None:
        self._database = mongo.direct
        self._kept = retention_days * DAY_MS

    async def since(
        self, condition: ValueCondition | EventCondition, device_id: int, start: int, sequence: int
    ) -> list[Row]:
        """At most `CHUNK` rows behind a time (ms) and sequence, the oldest first."""
        now = now_ms()
        if start < now - self._kept:
            start, sequence = now - self._kept, 0
        bounds = {
            "$gt": history_key(device_id, start, sequence),
            "$lte": history_key(device_id, LAST, LAST),
        }
        if isinstance(condition, EventCondition):
            names = [name for name in (condition.event, condition.ended_by) if name is not None]
            query = {"_id": bounds, "e": {"$in": names}}
            found = await self._read(EVENTS, query, {"e": 1, DELAY: 1}, CHUNK)
            return [_row(one, one["e"]) for one in found]
        path = condition.property.split(".")
        field = f"p.{condition.property}"
        query, rows = {"_id": bounds, field: {"$exists": True}}, list[Row]()
        for partition in _partitions(start, now):
            left = CHUNK - len(rows)
            found = await self._read(collection_name(partition), query, {field: 1, DELAY: 1}, left)
            rows += [_row(one, value_at(one["p"], tuple(path))) for one in found]
            if len(rows) >= CHUNK:
                break
        return rows

    async def _read(
        self, name: str, query: Document, fields: Document, limit: int
    ) -> list[Document]:
        found = self._database[name].find(query, fields, sort=[("_id", 1)], limit=limit)
        return await found.to_list()


def merged(rows: Iterable[Row], heard: Iterable[Row]) -> list[Row]:
    """Rows of history, and those of events that history does not keep, in order."""
    known = {(row.ts, row.sequence): row for row in (*heard, *rows)}
    return [known[key] for key in sorted(known)]


def have_all(rows: Iterable[Row], heard: Iterable[Row]) -> bool:
    """Whether history has all readings that were pointed at; a device may keep none."""
    known = {(row.ts, row.sequence) for row in rows}
    return all((row.ts, row.sequence) in known for row in heard)


def _partitions(start: int, now: int) -> range:
    """Those that may have something: a device's clock may be a day ahead."""
    return range(partition_of(start), partition_of(now + DAY_MS) + 1)


def _row(document: Document, value: Any) -> Row:
    _, ts, sequence = KEY.unpack(document["_id"])
    return Row(ts, sequence, value, ts + document.get(DELAY, 0))
