"""Latest values: one document per thing, `{_id, t, a, v: {key: {v: value, t: ms}}}`.

`t` is the time of the newest report, `a` the time at which the last one arrived.

Reports of a batch are folded per thing first, so a busy device costs one update. The
quick update applies when everything in it is at least as new as all that is stored;
otherwise the careful one compares key by key, and an older value never replaces a newer.
Both ask for `_id` alone and compare while they write: MongoDB plans any other condition
for each update, which takes longer than the update.
"""

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Container,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any

from pymongo import ReplaceOne, UpdateMany, UpdateOne

from libs.common.store.mongo import DUPLICATE_KEY, BulkFailed, Database, Document, Session

log = logging.getLogger(__name__)

TOO_LARGE = {15, 10334, 17419, 17420}
"""MongoDB's codes of a document that is too large, or nested too deeply."""

NEWEST = 20
"""Reports of a thing that mostly have all of its properties."""

Reported = tuple[int, int, dict[str, Any]]
"""Thing id, ts in ms, properties."""


@dataclass(slots=True)
class _Fold:
    oldest: int
    newest: int
    values: dict[str, Any] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    arrived: int = 0
    """ms: when the last report arrived."""

    def settles(self, names: Iterable[str]) -> bool:
        """Whether older reports say no more of properties: objects may lack members."""
        values = [self.values.get(name, {}) for name in names]
        return not any(isinstance(value, dict) for value in values)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What history has otherwise of a thing."""

    read: Callable[[int | None], AsyncIterator[Sequence[Reported]]]
    """Gives the newest reports, as many as it is asked for, or all; the oldest first."""
    times: Container[int]
    """Those of reports that were rewritten, ms."""
    names: Collection[str] | None
    """The properties that may have got values; None is any."""


class LatestValues:
    """Writes and reads latest values."""

    def __init__(self, database: Database) -> None:
        self._latest = database["latest"]

    async def apply(
        self, reports: Iterable[Reported], arrivals: Mapping[int, int] | None = None
    ) -> None:
        """Fold `reports` in; idempotent.

        `arrivals` are the times (ms) at which the last report of each thing arrived; without them
        reports count as arriving when they were measured.
        """
        folds = _fold(reports)
        if not folds:
            return
        for key, fold in folds.items():
            fold.arrived = (arrivals or {}).get(key, fold.newest)
        known = await self.times(list(folds))
        newer = [key for key, fold in folds.items() if known.get(key, 0) <= fold.oldest]
        written, left = await self._write({key: _quick(key, folds[key]) for key in newer})
        if written < len(newer):  # others have written newer ones meanwhile
            known |= await self.times(newer)
        left += [key for key, fold in folds.items() if known.get(key, 0) > fold.oldest]
        while left:
            _, left = await self._write({key: _careful(key, folds[key]) for key in left})

    async def _write(self, changes: Mapping[int, UpdateMany | UpdateOne]) -> tuple[int, list[int]]:
        """How many were written or failed, and the things whose documents others made meanwhile.

        What one document cannot hold is left out: history has it.
        """
        if not changes:
            return 0, []
        try:
            done = await self._latest.bulk_write(list(changes.values()), ordered=False)
        except BulkFailed as error:
            faults = _faults(error)
            if {fault["code"] for fault in faults} - TOO_LARGE - {DUPLICATE_KEY}:
                raise
            things = list(changes)
            taken = [things[one["index"]] for one in faults if one["code"] == DUPLICATE_KEY]
            if len(taken) < len(faults):
                large = len(faults) - len(taken)
                log.warning("latest values of %d things are too large", large)
            details = error.details or {}
            return details["nModified"] + details["nUpserted"] + len(faults), taken
        return done.modified_count + done.upserted_count, []

    async def of(
        self, thing_ids: Sequence[int], session: Session | None = None
    ) -> dict[int, dict[str, Any]]:
        """The latest value of each property, by thing; a thing that has none is missing."""
        found = await self.entries(thing_ids, session)
        return {
            thing: {key: entry["v"] for key, entry in entries.items()}
            for thing, entries in found.items()
        }

    async def entries(
        self, thing_ids: Sequence[int], session: Session | None = None
    ) -> dict[int, dict[str, Any]]:
        """The same with times: `{key: {"v": value, "t": ms}}` of each property, by thing."""
        cursor = self._latest.find({"_id": {"$in": list(thing_ids)}}, {"v": 1}, session=session)
        return {document["_id"]: document["v"] async for document in cursor}

    async def times(self, thing_ids: Sequence[int]) -> dict[int, int]:
        """The time (ms) of the newest report of each thing that has one."""
        found = self._latest.find({"_id": {"$in": list(thing_ids)}}, {"t": 1})
        return {latest["_id"]: latest["t"] async for latest in found if "t" in latest}

    async def arrivals(self, thing_ids: Sequence[int]) -> dict[int, int]:
        """The time (ms) at which the last report of each thing that has one arrived."""
        found = self._latest.find({"_id": {"$in": list(thing_ids)}}, {"t": 1, "a": 1})
        return {
            one["_id"]: one["a"] if "a" in one else one["t"] async for one in found if "t" in one
        }

    async def some(
        self, thing_ids: Iterable[int], keys: Iterable[str]
    ) -> dict[int, dict[str, tuple[Any, int]]]:
        """Values of some top-level properties with their times (ms), by thing."""
        fields = {f"v.{key}": 1 for key in keys}
        return {
            document["_id"]: {key: (entry["v"], entry["t"]) for key, entry in document["v"].items()}
            async for document in self._latest.find({"_id": {"$in": list(thing_ids)}}, fields)
        }

    async def rebuild(self, things: Mapping[int, Rewritten]) -> None:
        """Make the values of things those that their reports give, which are read anew.

        What no report has stays, unless it is of a time of `rewritten`; and what is newer than all
        reports, which may just be on their way.
        """
        left = dict(things)
        while left:
            found = self._latest.find({"_id": {"$in": list(left)}})
            before = {document["_id"]: document async for document in found}
            made = await asyncio.gather(
                *(_remade(before.get(key), thing) for key, thing in left.items())
            )
            changes = {
                key: _replacement(key, before.get(key), entries)
                for key, entries in zip(left, made, strict=True)
                if entries != before.get(key, {}).get("v", {})
            }
            if not changes or await self._replaced(list(changes.values())):
                return
            left = {key: left[key] for key in changes}

    async def _replaced(self, changes: Sequence[ReplaceOne[Document]]) -> bool:
        """Whether all of `changes` found what they replace."""
        try:
            written = await self._latest.bulk_write(changes, ordered=False)
        except BulkFailed as error:
            if {fault["code"] for fault in _faults(error)} != {DUPLICATE_KEY}:
                raise
            return False
        return written.matched_count + written.upserted_count == len(changes)

    async def erase(
        self, thing_id: int, readable: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> bool:
        """Remove what `readable` leaves out of the values of a thing; whether there was any."""
        erased = False
        while True:
            entries = (await self.entries([thing_id])).get(thing_id, {})
            values = {key: entry["v"] for key, entry in entries.items()}
            kept = readable(values)
            gone = [key for key in values if key not in kept or kept[key] != values[key]]
            if not gone:
                return erased
            erased = True
            for key in gone:
                change: Document = {"$unset": {f"v.{key}": ""}}
                if key in kept:
                    change = {"$set": {f"v.{key}.v": kept[key]}}
                await self._latest.update_one({"_id": thing_id, f"v.{key}": entries[key]}, change)

    async def forget_all(self, thing_ids: Sequence[int], session: Session) -> None:
        """Remove what things that go have left here."""
        await self._latest.delete_many({"_id": {"$in": list(thing_ids)}}, session=session)

    async def forget(self, thing_id: int, session: Session | None = None) -> None:
        """Remove what a thing that goes, or is gone, has left here."""
        await self._latest.delete_one({"_id": thing_id}, session=session)


def _fold(reports: Iterable[Reported], into: dict[int, _Fold] | None = None) -> dict[int, _Fold]:
    folds = {} if into is None else into
    for thing_id, ts, properties in reports:
        fold = folds.get(thing_id)
        if fold is None:
            folds[thing_id] = _Fold(ts, ts, dict(properties), dict.fromkeys(properties, ts))
            continue
        fold.oldest = min(fold.oldest, ts)
        fold.newest = max(fold.newest, ts)
        values, times = fold.values, fold.times
        for key, value in properties.items():
            before = times.get(key)
            if before is None or (before <= ts and not isinstance(value, dict)):
                values[key] = value
            elif before <= ts:
                values[key] = _merged(values[key], value)
            else:
                values[key] = _merged(value, values[key])
                continue
            times[key] = ts
    return folds


async def _remade(before: Document | None, thing: Rewritten) -> dict[str, Any]:
    """The entries of a thing as its reports give them."""
    stored = (before or {}).get("v", {})
    known = _Fold(0, 0) if thing.names is None else await _folded(thing.read(NEWEST))
    if thing.names is None or not known.settles({*stored, *thing.names}):
        known = await _folded(thing.read(None))
    entries = {key: {"v": v, "t": known.times[key]} for key, v in known.values.items()}
    for key, entry in stored.items():
        at = entry["t"]
        if at not in thing.times and (key not in entries or at > known.newest):
            entries[key] = entry
    return entries


def _replacement(
    thing_id: int, before: Document | None, entries: dict[str, Any]
) -> ReplaceOne[Document]:
    """Puts entries in the place of those of `before`, as long as they are there."""
    latest = max((entry["t"] for entry in entries.values()), default=0)
    same: Document = {"_id": thing_id, "t": {"$exists": False}}
    after: Document = {"_id": thing_id, "t": latest, "v": entries}
    if before is not None:
        same = {"_id": thing_id} | {name: before.get(name) for name in ("t", "a", "v")}
        after |= {"a": before["a"]} if "a" in before else {}
    return ReplaceOne(same, after, upsert=before is None)


async def _folded(parts: AsyncIterator[Sequence[Reported]]) -> _Fold:
    """Reports of one thing, the oldest first."""
    folds: dict[int, _Fold] = {}
    async for reports in parts:
        _fold(reports, folds)
    return next(iter(folds.values()), _Fold(0, 0))


def _merged(old: Any, new: Any) -> Any:
    """A STRUCT that was reported in part keeps its other members."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}
    return new


def _is_name(key: str) -> bool:
    return bool(key) and "." not in key and not key.startswith("$")


def _faults(error: BulkFailed) -> list[dict[str, Any]]:
    """The writes that failed; raise `error` when it is about none of them."""
    faults: list[dict[str, Any]] = (error.details or {}).get("writeErrors", [])
    if not faults:
        raise error
    return faults


def _quick(thing_id: int, fold: _Fold) -> UpdateMany:
    """Of one document, as "many": MongoDB notes for each of the others how it could come again."""
    values, times = fold.values, fold.times
    plain = {
        key: {"v": value, "t": times[key]}
        for key, value in values.items()
        if not isinstance(value, dict)
    }
    parts = {
        key: {"v": _replacing(f"$v.{key}.v", value), "t": times[key]}
        for key, value in values.items()
        if isinstance(value, dict)
    }
    entries = {"$mergeObjects": ["$v", {"$literal": plain}, *([parts] if parts else [])]}
    arrived = {"$max": ["$a", fold.arrived]}
    change = {
        "$cond": [{"$gt": ["$t", fold.oldest]}, {}, {"t": fold.newest, "a": arrived, "v": entries}]
    }
    replaced = {"$replaceWith": {"$mergeObjects": ["$$ROOT", change]}}
    return UpdateMany({"_id": thing_id}, [replaced], upsert=True)


def _careful(thing_id: int, fold: _Fold) -> UpdateOne:
    changes: dict[str, Any] = {
        "t": {"$max": ["$t", fold.newest]},
        "a": {"$max": ["$a", fold.arrived]},
    }
    for key, value in fold.values.items():
        newer = {"$lte": [{"$ifNull": [f"$v.{key}.t", 0]}, fold.times[key]]}
        entry = {"v": _replacing(f"$v.{key}.v", value), "t": fold.times[key]}
        changes[f"v.{key}"] = {"$cond": [newer, entry, f"$v.{key}"]}
    return UpdateOne({"_id": thing_id}, [{"$set": changes}], upsert=True)


def _replacing(old: str, value: Any) -> Any:
    """An expression: `value` laid over what stands at the path `old`, at every level."""
    if not isinstance(value, dict) or not all(map(_is_name, value)):
        return {"$literal": value}
    members = {key: _replacing(f"{old}.{key}", one) for key, one in value.items()}
    is_object = {"$eq": [{"$type": old}, "object"]}
    return {"$mergeObjects": [{"$cond": [is_object, old, {}]}, members]}
