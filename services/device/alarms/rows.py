"""Reads what a rule looks at of a device's history: the order in which it happened."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from libs.common.clock import now_ms
from libs.common.store.mongo import Document, Mongo
from services.device.alarms.deciding import Row, bounded, value_at
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

CHUNK = 5000
"""Rows of one read."""
HistoryCondition = ValueCondition | EventCondition
"""A condition that looks at history."""
EVENT = ""
"""Names the id of an event among values."""


class Stored(NamedTuple):
    """A report or an event of a device; in order of (`ts`, `sequence`)."""

    ts: int
    sequence: int
    arrival: int
    values: dict[str, Any]
    """By property; of an event its id, as `EVENT`."""


class History:
    """The values and events of devices."""

    def __init__(self, mongo: Mongo, retention_days: int) -> None:
        self._database = mongo.direct
        self._kept = retention_days * DAY_MS

    async def since(
        self, conditions: Iterable[HistoryCondition], device_id: int, start: int, sequence: int
    ) -> list[Stored]:
        """At most `CHUNK` rows behind a time (ms) and sequence, the oldest first.

        They have what some conditions look at; these are about values, or all about events.
        """
        now = now_ms()
        if start < now - self._kept:
            start, sequence = now - self._kept, 0
        bounds = {
            "$gt": history_key(device_id, start, sequence),
            "$lte": history_key(device_id, LAST, LAST),
        }
        names, paths = set[str](), set[str]()
        for one in conditions:
            if isinstance(one, EventCondition):
                names |= {one.event, one.ended_by or one.event}
            else:
                paths.add(one.property)
        if names:
            query: Document = {"_id": bounds, "e": {"$in": list(names)}}
            return await self._read(EVENTS, query, ["e"], {EVENT: ("e",)}, CHUNK)
        query = {"_id": bounds, "$or": [{f"p.{path}": {"$exists": True}} for path in paths]}
        fields = [f"p.{path}" for path in paths if not any(up in paths for up in _parents(path))]
        values, rows = {path: ("p", *path.split(".")) for path in paths}, list[Stored]()
        for partition in _partitions(start, now):
            name, left = collection_name(partition), CHUNK - len(rows)
            rows += await self._read(name, query, fields, values, left)
            if len(rows) >= CHUNK:
                break
        return rows

    async def _read(
        self,
        name: str,
        query: Document,
        fields: Iterable[str],
        values: Mapping[str, tuple[str, ...]],
        limit: int,
    ) -> list[Stored]:
        """Rows with the values at some paths of their documents, by name."""
        found = self._database[name].find(query, [*fields, DELAY], sort=[("_id", 1)], limit=limit)
        return [_stored(one, values) async for one in found]


def rows_of(condition: HistoryCondition, stored: Iterable[Stored]) -> list[Row]:
    """What a condition looks at of rows of history."""
    if isinstance(condition, ValueCondition):
        name, events = condition.property, None
    else:
        name, events = EVENT, (condition.event, condition.ended_by)
    return [
        Row(one.ts, one.sequence, one.values[name], one.arrival)
        for one in stored
        if name in one.values and (events is None or one.values[name] in events)
    ]


def merged(rows: Iterable[Row], heard: Iterable[Row]) -> list[Row]:
    """Rows of history, and those of events that history does not keep, in order."""
    known = {(row.ts, row.sequence): row for row in (*heard, *rows)}
    return [known[key] for key in sorted(known)]


def have_all(rows: Sequence[Row], heard: Iterable[Row]) -> bool:
    """Whether history has all readings that were pointed at; a device may keep none."""
    return all(_has(rows, row) for row in heard)


def _has(rows: Sequence[Row], row: Row) -> bool:
    at = bisect_left(rows, row[:2])
    return at < len(rows) and rows[at][:2] == row[:2]


def _parents(path: str) -> list[str]:
    """The paths that a path is part of; MongoDB refuses to project both."""
    return [path[:at] for at, letter in enumerate(path) if letter == "."]


def _partitions(start: int, now: int) -> range:
    """Those that may have something: a device's clock may be a day ahead."""
    return range(partition_of(start), partition_of(now + DAY_MS) + 1)


def _stored(document: Document, paths: Mapping[str, tuple[str, ...]]) -> Stored:
    _, ts, sequence = KEY.unpack(document["_id"])
    values = {
        name: bounded(value)
        for name, path in paths.items()
        if isinstance(value := value_at(document, path), (str, int, float))
    }
    return Stored(ts, sequence, ts + document.get(DELAY, 0), values)
