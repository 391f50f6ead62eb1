"""Latest values of things: one document per thing, or several for large values.

`{_id, t, a, v: {key: {v: value, t: ms}}}`: `t` is the time of the newest report, `a` the time at
which the last one arrived. Large values, and those of things with many, are in parts
(`folded_values`), documents `{_id, v, n}` with the size `n` of their values in bytes. `p` in the
document of a thing means that it has parts: 1 of single values, 2 of all. A value that moves to a
part is removed from the document of its thing; if concurrent writes leave it in both, the newer one
wins.

Reports of a batch are first folded per thing, so a busy device costs one update. The all-or-nothing
update applies if all its values are at least as new as everything stored. Otherwise a second update
compares value by value, so that an older value never replaces a newer one. Both updates select by
`_id` only and compare while they write: MongoDB plans any other condition for each update, which
takes longer than the update.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo import DeleteOne, ReplaceOne

from libs.common.lru_cache import LruCache
from libs.common.store.mongo import DUPLICATE_KEY_CODE, BulkFailed, Database, Document, Session
from libs.common.store.mongo import Collection as Stored
from services.device.telemetry import folded_values
from services.device.telemetry.folded_values import (
    FoldedReports,
    ReportTuple,
    RewrittenHistory,
    Update,
    bson_size,
    build_replacement,
    entry_projection,
    parts_condition,
    rewritten_entries,
)
from services.device.telemetry.value_reader import LatestValueReader, ids_condition
from services.device.things.deleted_things import ThingDataStore

log = logging.getLogger(__name__)

TOO_LARGE_ERROR_CODES = {15, 10334, 17419, 17420}
"""MongoDB's error codes for a document that is too large or nested too deeply."""
MAX_SMALL_REPORT_BYTES = 512
"""Maximum bytes of a report that is not checked against `MAX_TOTAL_BYTES` if its thing has no
parts: a whole batch of such reports can exceed that limit only slightly."""
CACHE_SIZE = 50_000
"""Maximum cached things with parts, and maximum cached things without parts."""
VALUES_PER_MOVE = 500
"""Maximum values that are moved to parts together."""
CACHE_SECONDS = 10.0
"""Seconds for which the state of a thing without parts is cached."""


@dataclass(frozen=True, slots=True)
class _ThingState:
    """Newest time, size and kind of parts of the stored values of a thing."""

    newest: int = 0
    inline: int = 0
    """Bytes of the values in the document of the thing."""
    parts: int = 0
    read: float = 0.0
    """Time of the read from the database (monotonic)."""


class LatestValues(LatestValueReader, ThingDataStore):
    """Writes and reads latest values."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._divided: LruCache[int, int] = LruCache(CACHE_SIZE)
        """Kind of parts by thing, of things that have parts."""
        self._recent: LruCache[int, _ThingState] = LruCache(CACHE_SIZE)

    async def apply(
        self, reports: Iterable[ReportTuple], arrivals: Mapping[int, int] | None = None
    ) -> None:
        """Fold `reports` into the latest values; idempotent.

        `arrivals` are the times (ms) at which the last report of each thing arrived; by default the
        times of measurement.
        """
        folds = folded_values.fold_reports(reports)
        if not folds:
            return
        for key, fold in folds.items():
            fold.arrived = (arrivals or {}).get(key, fold.newest)
        sizes = {key: folded_values.total_bson_size(fold.values) for key, fold in folds.items()}
        states = await self._recent_states(sizes)
        await self._write_parts(folds, states, sizes)
        newer = [
            key
            for key, fold in folds.items()
            if not fold.parts and states[key].newest <= fold.oldest
        ]
        written, conflicts = await self._write(
            self._latest,
            {key: folded_values.all_or_nothing_update(key, folds[key]) for key in newer},
        )
        if written < len(newer):  # other processes wrote newer values meanwhile
            states |= await self._read_states(newer)
        conflicts += [
            key for key, fold in folds.items() if fold.parts or states[key].newest > fold.oldest
        ]
        for key in newer:
            if not (state := states[key]).parts:
                inline = state.inline + sizes[key]
                self._recent.put(key, _ThingState(folds[key].newest, inline, read=state.read))
        for key in conflicts:
            self._recent.pop(key)
        while conflicts:
            changes = {
                key: folded_values.value_by_value_update(key, folds[key]) for key in conflicts
            }
            _, conflicts = await self._write(self._latest, changes)

    async def _write_parts(
        self,
        folds: Mapping[int, FoldedReports],
        states: Mapping[int, _ThingState],
        sizes: Mapping[int, int],
    ) -> None:
        """Write the values for parts, including those still in documents of things."""
        large: dict[int, FoldedReports] = {}
        for key, fold in folds.items():
            size = sizes[key]
            if (
                states[key].parts
                or size > folded_values.LARGE_VALUE_BYTES
                or states[key].inline + size > folded_values.MAX_INLINE_BYTES
            ):
                large[key] = fold
        if not large:
            return
        divided = [key for key in large if states[key].parts]
        part_keys = [
            folded_values.own_part_key(key, name) for key in divided for name in large[key].values
        ]
        existing_parts = {
            bytes(part["_id"])
            async for part in self._parts.find(ids_condition(part_keys), {"_id": 1})
        }
        for key, fold in large.items():
            fold.assign_parts(
                key,
                existing_parts,
                states[key].inline,
                is_spread=states[key].parts == folded_values.ALL_PARTS,
            )
        projection = entry_projection({name for fold in large.values() for name in fold.parts})
        async for before in self._latest.find(ids_condition(large), projection):
            fold = large[before["_id"]]
            for name, entry in before.get("v", {}).items():
                if name in fold.parts:  # with equal times the reported value wins
                    fold.moved.add(name)
                    ts = entry["t"] - (entry["t"] == fold.times[name])
                    folded_values.fold_reports([(before["_id"], ts, {name: entry["v"]})], large)
        changes: Mapping[bytes, Update] = {
            part: folded_values.part_update(part, fold)
            for fold in large.values()
            for part in set(fold.parts.values())
        }
        while changes:
            _, conflicts = await self._write(self._parts, changes)
            changes = {part: changes[part] for part in conflicts}

    async def _recent_states(self, sizes: Mapping[int, int]) -> dict[int, _ThingState]:
        """Return the stored states of things.

        States of things without parts are cached. `sizes` are the bytes of the values to write, by
        thing. A cached state may be outdated by writes of other processes. The all-or-nothing
        update detects newer values, and readers merge a value that is both in the document of the
        thing and in a part.
        """
        oldest = time.monotonic() - CACHE_SECONDS
        states = {
            key: state
            for key, size in sizes.items()
            if (state := self._recent.get(key)) is not None
            and state.read > oldest
            and state.inline + size <= folded_values.MAX_INLINE_BYTES
        }
        if len(states) < len(sizes):
            states |= await self._read_states(sizes.keys() - states.keys())
        return states

    async def _read_states(self, thing_ids: Collection[int]) -> dict[int, _ThingState]:
        now = time.monotonic()
        states = dict.fromkeys(thing_ids, _ThingState(read=now))
        projection = {"t": 1, "p": 1, "n": {"$bsonSize": "$v"}}
        async for document in self._latest.find(ids_condition(thing_ids), projection):
            parts = document.get("p", 0)
            states[document["_id"]] = _ThingState(
                document.get("t", 0), document["n"] or 0, parts, now
            )
            if parts:
                self._divided.put(document["_id"], parts)
        return states

    async def _write(
        self, documents: Stored, changes: Mapping[Any, Update]
    ) -> tuple[int, list[Any]]:
        """Write updates; return how many changed a document or failed, and the conflicting keys.

        An update that would make a document too large is omitted; history has its values.
        """
        if not changes:
            return 0, []
        try:
            done = await documents.bulk_write(list(changes.values()), ordered=False)
        except BulkFailed as error:
            faults = _write_errors(error)
            if {fault["code"] for fault in faults} - TOO_LARGE_ERROR_CODES - {DUPLICATE_KEY_CODE}:
                raise
            keys = list(changes)
            conflicting_keys = [
                keys[fault["index"]] for fault in faults if fault["code"] == DUPLICATE_KEY_CODE
            ]
            if len(conflicting_keys) < len(faults):
                large = len(faults) - len(conflicting_keys)
                log.warning("latest values of %d things are too large", large)
            details = error.details or {}
            return details["nModified"] + details["nUpserted"] + len(faults), conflicting_keys
        return done.modified_count + done.upserted_count, []

    def may_exceed_limit(self, thing_id: int, size: int) -> bool:
        """Return whether a report of `size` bytes may take a thing beyond `MAX_TOTAL_BYTES`."""
        return size > MAX_SMALL_REPORT_BYTES or thing_id in self._divided

    async def find_properties_beyond_limit(
        self, reports: Iterable[ReportTuple]
    ) -> dict[int, set[str]]:
        """Return the properties, by thing, whose values would exceed `MAX_TOTAL_BYTES` bytes.

        Values that do not grow are never included, even if a thing exceeds the limit already.
        """
        folds = {
            key: fold
            for key, fold in folded_values.fold_reports(reports).items()
            if self.may_exceed_limit(key, folded_values.total_bson_size(fold.values))
        }
        if not folds:
            return {}
        states = await self._read_states(folds)
        stored = {key: state.inline for key, state in states.items()}
        if divided := [key for key, state in states.items() if state.parts]:
            async for part in self._parts.find(parts_condition(divided), {"n": 1}):
                stored[folded_values.part_thing_id(part["_id"])] += part["n"]
        oversized: dict[int, set[str]] = defaultdict(set)
        for key, fold in folds.items():
            room = folded_values.MAX_TOTAL_BYTES - stored[key]
            if folded_values.total_bson_size(fold.values) <= room:
                continue
            entries = (await self.find_entries([key], keys=fold.values)).get(key, {})
            grown = {
                name: folded_values.entry_growth_bytes(entries.get(name), value)
                for name, value in fold.values.items()
            }
            for name in sorted(grown, key=grown.__getitem__):
                if grown[name] <= max(room, 0):
                    room -= grown[name]
                else:
                    oversized[key].add(name)
        return oversized

    async def move_to_parts_and_measure(self, thing_id: int) -> int:
        """Move the values that need parts out of the document of a thing.

        Return the bytes of all its values.
        """
        entries = (await self.find_entries([thing_id])).get(thing_id, {})
        sizes = {name: bson_size(entry["v"]) for name, entry in entries.items()}
        names = sorted(sizes, key=sizes.__getitem__, reverse=True)
        for first in range(0, len(names), VALUES_PER_MOVE):
            moved_values = {name: entries[name] for name in names[first : first + VALUES_PER_MOVE]}
            await self.apply(
                (thing_id, entry["t"], {name: entry["v"]}) for name, entry in moved_values.items()
            )
        return sum(sizes.values())

    async def rebuild(self, things: Mapping[int, RewrittenHistory]) -> None:
        """Rebuild the values of things from their history.

        A value that is in no report stays, unless a rewritten report has its time. A value that is
        newer than all reports stays too, because its report may not be stored yet.
        """
        remaining = dict(things)
        while remaining:
            before: dict[int, list[Document]] = {key: [] for key in remaining}
            stored: dict[int, dict[str, Any]] = {key: {} for key in remaining}
            async for key, document in self.read_documents(remaining):
                before[key].append(document)
                stored[key] = folded_values.merge_entries(stored[key], document.get("v", {}))
            made = await asyncio.gather(
                *(rewritten_entries(stored[key], thing) for key, thing in remaining.items())
            )
            changed = {
                key: entries
                for key, entries in zip(remaining, made, strict=True)
                if entries != stored[key]
            }
            changes = [
                build_replacement(key, next(iter(before[key]), None), entries)
                for key, entries in changed.items()
            ]
            parts = [
                DeleteOne({n: row[n] for n in ("_id", "v")})
                for key in changed
                for row in before[key][1:]
            ]
            if await self._replace_all(self._latest, changes) and await self._replace_all(
                self._parts, parts
            ):
                for key, entries in changed.items():
                    if (
                        before[key][1:]
                        or folded_values.total_bson_size(entries) > folded_values.LARGE_VALUE_BYTES
                    ):
                        await self.move_to_parts_and_measure(key)
                return
            remaining = {key: remaining[key] for key in changed}

    async def _replace_all(
        self, documents: Stored, changes: Sequence[ReplaceOne[Document] | DeleteOne]
    ) -> bool:
        """Write `changes`; return whether each of them replaced, inserted or deleted a document."""
        if not changes:
            return True
        try:
            done = await documents.bulk_write(changes, ordered=False)
        except BulkFailed as error:
            if {fault["code"] for fault in _write_errors(error)} != {DUPLICATE_KEY_CODE}:
                raise
            return False
        return done.matched_count + done.upserted_count + done.deleted_count == len(changes)

    async def erase_write_only(
        self, thing_id: int, readable: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> bool:
        """Remove the values, and members of values, that `readable(values)` omits.

        Return whether any was stored.
        """
        erased = False
        while True:
            found = False
            async for _, document in self.read_documents([thing_id]):
                is_part = document["_id"] != thing_id
                entries = document.get("v", {})
                readable_values = readable({key: entry["v"] for key, entry in entries.items()})
                for key, entry in entries.items():
                    if key in readable_values and readable_values[key] == entry["v"]:
                        continue
                    found = True
                    change: Document = {f"v.{key}": "$$REMOVE"}
                    if key in readable_values:
                        change = {f"v.{key}.v": {"$literal": readable_values[key]}}
                    documents = self._parts if is_part else self._latest
                    same = {"_id": document["_id"], f"v.{key}": entry}
                    await documents.update_one(
                        same, [{"$set": change}, *([folded_values.SIZE_STAGE] * is_part)]
                    )
            if not found:
                return erased
            erased = True

    async def delete_values(
        self, thing_ids: Collection[int], session: Session | None = None
    ) -> None:
        """Delete the values of deleted things."""
        await self._latest.delete_many(ids_condition(thing_ids), session=session)
        if thing_ids:
            await self._parts.delete_many(parts_condition(thing_ids), session=session)

    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the values of a thing."""
        await self.delete_values([thing_id], session)


def _write_errors(error: BulkFailed) -> list[dict[str, Any]]:
    """Return the failed writes; raise `error` if it names none."""
    faults: list[dict[str, Any]] = (error.details or {}).get("writeErrors", [])
    if not faults:
        raise error
    return faults
