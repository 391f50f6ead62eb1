"""Latest values without I/O: folding of reports, documents and their updates.

The document of a thing holds its values. Two kinds of values are in *parts*, documents with the key
(thing, kind, number). A value of more than `LARGE_VALUE_BYTES` gets a part of its own for good. If
the other values exceed `MAX_INLINE_BYTES`, they are distributed to `SHARED_PART_COUNT` parts by
their names.
"""

import struct
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import bson
from pymongo import ReplaceOne, UpdateMany, UpdateOne

from libs.common.store.mongo import Document

LARGE_VALUE_BYTES = 4 * 1024
"""Bytes of a BSON value above which it gets a part of its own."""
MAX_INLINE_BYTES = 512 * 1024
"""Maximum bytes of values in the document of a thing; if there are more, all are in parts."""
MAX_TOTAL_BYTES = 4 * 1024 * 1024
"""Maximum bytes of all latest values of a thing."""
TOO_LARGE_REASON = f"would take the latest values of the device beyond {MAX_TOTAL_BYTES} bytes"
"""The reason why a property is rejected that exceeds `MAX_TOTAL_BYTES`."""
SHARED_PART_COUNT = 32
"""Parts to which the values of a thing that exceed `MAX_INLINE_BYTES` are distributed."""
PART_KEY_FORMAT = struct.Struct(">QQQ")
"""Format of a part's key: thing, kind (0 shared, 1 single value), and the index of the shared part
or a hash of the property's key."""
MAX_ESTIMATED_CHARACTERS = 256
"""Maximum characters of a text that counts as one byte per character; longer texts are measured."""

OWN_PARTS, ALL_PARTS = 1, 2
"""Values of the field `p` in the document of a thing: some values are in parts of their own, or all
values are in parts."""
SIZE_STAGE: Document = {"$set": {"n": {"$bsonSize": "$v"}}}
"""The stage that stores the size of a part in bytes."""

Update = UpdateMany | UpdateOne
ReportTuple = tuple[int, int, dict[str, Any]]
"""Thing id, ts in ms, properties."""


@dataclass(slots=True)
class FoldedReports:
    """The reports of a thing, folded into one."""

    oldest: int
    newest: int
    values: dict[str, Any] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    arrived: int = 0
    """Time at which the last report arrived, in ms."""
    parts: dict[str, bytes] = field(default_factory=dict)
    """The keys of the parts that hold values, by property."""
    moved: set[str] = field(default_factory=set)
    """Properties that move from the document of the thing to parts."""
    is_spread: bool = False
    """Whether parts hold all values of the thing."""

    def needs_no_older_reports(self, names: Iterable[str]) -> bool:
        """Return whether each property has a value here, and none that older reports may complete.

        An older report may add members to an object.
        """
        values = [self.values.get(name, {}) for name in names]
        return not any(isinstance(value, dict) for value in values)

    def assign_parts(
        self, thing_id: int, existing: Container[bytes], inline_bytes: int, *, is_spread: bool
    ) -> None:
        """Assign a part to each value that the document of the thing does not hold.

        `existing` are the parts of single values that exist; `inline_bytes` is the size of the
        values that the document of the thing holds now.
        """
        small_keys: list[str] = []
        for key, value in self.values.items():
            size, part = bson_size(value), own_part_key(thing_id, key)
            if size > LARGE_VALUE_BYTES or part in existing:
                self.parts[key] = part
                inline_bytes -= size
            else:
                small_keys.append(key)
                inline_bytes += size
        self.is_spread = is_spread or inline_bytes > MAX_INLINE_BYTES
        if self.is_spread:
            self.parts |= {key: shared_part_key(thing_id, key) for key in small_keys}


def fold_reports(
    reports: Iterable[ReportTuple], into: dict[int, FoldedReports] | None = None
) -> dict[int, FoldedReports]:
    """Fold reports by thing, value by value: newer values replace older ones.

    If given, `into` is extended and returned.
    """
    folds = {} if into is None else into
    for thing_id, ts, properties in reports:
        fold = folds.get(thing_id)
        if fold is None:
            folds[thing_id] = FoldedReports(ts, ts, dict(properties), dict.fromkeys(properties, ts))
            continue
        fold.oldest = min(fold.oldest, ts)
        fold.newest = max(fold.newest, ts)
        values, times = fold.values, fold.times
        for key, value in properties.items():
            before = times.get(key)
            if before is None or (before <= ts and not isinstance(value, dict)):
                values[key] = value
            elif before <= ts:
                values[key] = merge_struct(values[key], value)
            else:
                values[key] = merge_struct(value, values[key])
                continue
            times[key] = ts
    return folds


def merge_struct(old: Any, new: Any) -> Any:
    """Return the new value; a partial STRUCT keeps the other members of the old one."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: merge_struct(old.get(key), value) for key, value in new.items()}}
    return new


def merge_entries(entries: dict[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    """Merge the entries, `{key: {v, t}}`, of two documents of a thing; newer ones win."""
    joined = dict(entries or {})
    for key, entry in more.items():
        old, new = sorted((joined.get(key, entry), entry), key=lambda entry: entry["t"])
        joined[key] = {"v": merge_struct(old["v"], new["v"]), "t": new["t"]}
    return joined


def entry_growth_bytes(entry: dict[str, Any] | None, value: Any) -> int:
    """Return by how many bytes a stored entry grows when a value is reported."""
    if entry is None:
        return bson_size(value)
    return bson_size(merge_struct(entry["v"], value)) - bson_size(entry["v"])


def bson_size(value: Any) -> int:
    """Return the approximate size of a value in BSON, in bytes."""
    if isinstance(value, str):
        return len(value) if len(value) <= MAX_ESTIMATED_CHARACTERS else len(value.encode())
    return len(bson.encode({"": value})) if isinstance(value, dict | list) else 8


def total_bson_size(values: dict[str, Any]) -> int:
    """Return the approximate size of all values together, in bytes."""
    return sum(map(bson_size, values.values()))


def own_part_key(thing_id: int, key: str) -> bytes:
    """Return the key of the part that holds only the value of this property."""
    digest = blake2b(key.encode(), digest_size=8).digest()
    return PART_KEY_FORMAT.pack(thing_id, 1, int.from_bytes(digest))


def shared_part_key(thing_id: int, key: str) -> bytes:
    """Return the key of the part that holds the value of this property together with others."""
    return PART_KEY_FORMAT.pack(thing_id, 0, zlib.crc32(key.encode()) % SHARED_PART_COUNT)


def possible_part_keys(thing_ids: Iterable[int], keys: Iterable[str]) -> list[bytes]:
    """Return the keys of all parts that may hold the values of these properties."""
    pairs = [(thing_id, key) for thing_id in thing_ids for key in keys]
    return [part(*pair) for part in (own_part_key, shared_part_key) for pair in pairs]


def part_thing_id(part: bytes) -> int:
    """Return the thing whose values a part holds."""
    thing_id: int = PART_KEY_FORMAT.unpack(part)[0]
    return thing_id


def all_or_nothing_update(thing_id: int, fold: FoldedReports) -> UpdateMany:
    """Return the update that sets all values of a fold, or none.

    It sets none if the newest stored report is newer than the oldest report of the fold.
    It is an update of "many" documents, of which one matches: for an update of one document MongoDB
    stores a record to make it retryable.
    """
    values, times = fold.values, fold.times
    plain = {
        key: {"v": value, "t": times[key]}
        for key, value in values.items()
        if not isinstance(value, dict)
    }
    parts = {
        key: {"v": _merge_expression(f"$v.{key}.v", value), "t": times[key]}
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


def value_by_value_update(thing_id: int, fold: FoldedReports) -> UpdateOne:
    """Return the update that sets each value unless a newer one is stored.

    The update removes the values that moved to parts from the document of the thing.
    """
    changes: dict[str, Any] = {
        "t": {"$max": ["$t", fold.newest]},
        "a": {"$max": ["$a", fold.arrived]},
    }
    if fold.parts:
        changes["p"] = {"$max": ["$p", ALL_PARTS if fold.is_spread else OWN_PARTS]}
    for key in fold.values.keys() - fold.parts.keys() | fold.moved:
        changes[f"v.{key}"] = _newer_expression(key, fold, in_part=key in fold.moved)
    return UpdateOne({"_id": thing_id}, [{"$set": changes}], upsert=True)


def part_update(part: bytes, fold: FoldedReports) -> UpdateOne:
    """Return the update that sets the newer values in a part."""
    changes = {
        f"v.{key}": _newer_expression(key, fold)
        for key, part_of_key in fold.parts.items()
        if part_of_key == part
    }
    return UpdateOne({"_id": part}, [{"$set": changes}, SIZE_STAGE], upsert=True)


def _newer_expression(key: str, fold: FoldedReports, *, in_part: bool = False) -> Document:
    """Return an expression for the newer of two entries; it removes the entry if `in_part`."""
    is_newer = {"$lte": [{"$ifNull": [f"$v.{key}.t", 0]}, fold.times[key]]}
    entry: Any = {"v": _merge_expression(f"$v.{key}.v", fold.values[key]), "t": fold.times[key]}
    return {"$cond": [is_newer, "$$REMOVE" if in_part else entry, f"$v.{key}"]}


def _is_field_name(key: str) -> bool:
    return bool(key) and "." not in key and not key.startswith("$")


def _merge_expression(old: str, value: Any) -> Any:
    """Return an expression: `value` merged into the value at the path `old`."""
    if not isinstance(value, dict) or not all(map(_is_field_name, value)):
        return {"$literal": value}
    members = {key: _merge_expression(f"{old}.{key}", inner) for key, inner in value.items()}
    is_object = {"$eq": [{"$type": old}, "object"]}
    return {"$mergeObjects": [{"$cond": [is_object, old, {}]}, members]}


REPORTS_READ_FIRST = 20
"""Number of newest reports of a thing that usually contain all of its properties."""
MAX_PROJECTED_KEYS = 200
"""Maximum keys of values that a query names; for more keys it reads all values."""


@dataclass(frozen=True, slots=True)
class RewrittenHistory:
    """The changes to the history of a thing after frames were decoded again."""

    read: Callable[[int | None], AsyncIterator[Sequence[ReportTuple]]]
    """Yields lists of the given number of newest reports, or of all for None; the oldest first."""
    times: Container[int]
    """Times of rewritten reports, ms."""
    names: Collection[str] | None
    """The properties that may have new values; None for any."""


async def rewritten_entries(stored: dict[str, Any], thing: RewrittenHistory) -> dict[str, Any]:
    """Return the entries of a thing according to its rewritten history."""
    recent = (
        FoldedReports(0, 0)
        if thing.names is None
        else await _fold_all(thing.read(REPORTS_READ_FIRST))
    )
    if thing.names is None or not recent.needs_no_older_reports({*stored, *thing.names}):
        recent = await _fold_all(thing.read(None))
    entries = {key: {"v": v, "t": recent.times[key]} for key, v in recent.values.items()}
    for key, entry in stored.items():
        at = entry["t"]
        if at not in thing.times and (key not in entries or at > recent.newest):
            entries[key] = entry
    return entries


def build_replacement(
    thing_id: int, before: Document | None, entries: dict[str, Any]
) -> ReplaceOne[Document]:
    """Return the replacement of the document `before`, effective only if it is still stored.

    Without `before`, a new document is inserted.
    """
    latest = max((entry["t"] for entry in entries.values()), default=0)
    same: Document = {"_id": thing_id, "t": {"$exists": False}}
    after: Document = {"_id": thing_id, "t": latest, "v": entries}
    if before is not None:
        same = {"_id": thing_id} | {name: before.get(name) for name in ("t", "a", "p", "v")}
        after |= {name: before[name] for name in ("a", "p") if name in before}
    return ReplaceOne(same, after, upsert=before is None)


async def _fold_all(batches: AsyncIterator[Sequence[ReportTuple]]) -> FoldedReports:
    folds: dict[int, FoldedReports] = {}
    async for reports in batches:
        fold_reports(reports, folds)
    return next(iter(folds.values()), FoldedReports(0, 0))


def entry_projection(keys: Collection[str] | None) -> Document:
    """Return a projection on the entries of `keys`; on all entries for None or many keys."""
    if keys is None or len(keys) > MAX_PROJECTED_KEYS:
        return dict.fromkeys(("t", "a", "p", "v"), 1)
    return {"p": 1, **{f"v.{key}": 1 for key in keys}}


def parts_condition(thing_ids: Iterable[int]) -> Document:
    """Return the condition for all parts of things."""
    return {
        "$or": [
            {
                "_id": {
                    "$gte": PART_KEY_FORMAT.pack(id_, 0, 0),
                    "$lt": PART_KEY_FORMAT.pack(id_ + 1, 0, 0),
                }
            }
            for id_ in thing_ids
        ]
    }
