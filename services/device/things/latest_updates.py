"""The updates of latest values, which compare times while MongoDB writes. No I/O."""

from collections.abc import Iterable
from typing import Any

from pymongo import UpdateMany, UpdateOne

from libs.common.store.mongo import Document
from services.device.things.folding import Fold

OWN, ALL = 1, 2
"""Which values of a thing are in parts (`p`): some, each in a part of its own, or all."""
SIZED: Document = {"$set": {"n": {"$bsonSize": "$v"}}}
"""The stage that counts the bytes of a part."""

Update = UpdateMany | UpdateOne


def quick_update(thing_id: int, fold: Fold) -> UpdateMany:
    """Set values unless the document has newer ones.

    Of one document, as "many": MongoDB notes for each of the others how it could come again.
    """
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


def careful_update(thing_id: int, fold: Fold) -> UpdateOne:
    """Set the values that are newer than those stored; remove those that parts hold now."""
    changes: dict[str, Any] = {
        "t": {"$max": ["$t", fold.newest]},
        "a": {"$max": ["$a", fold.arrived]},
    }
    if fold.parts:
        changes["p"] = {"$max": ["$p", ALL if fold.is_spread else OWN]}
    changes |= {f"v.{key}": _newer(key, fold, in_part=key in fold.parts) for key in fold.values}
    return UpdateOne({"_id": thing_id}, [{"$set": changes}], upsert=True)


def part_update(part: bytes, fold: Fold, keys: Iterable[str]) -> UpdateOne:
    """Set those of some values that are newer than the ones that a part holds."""
    changes = {f"v.{key}": _newer(key, fold) for key in keys}
    return UpdateOne({"_id": part}, [{"$set": changes}, SIZED], upsert=True)


def _newer(key: str, fold: Fold, *, in_part: bool = False) -> Document:
    """An expression: the entry of a value, unless the stored one is newer; none if `in_part`."""
    is_newer = {"$lte": [{"$ifNull": [f"$v.{key}.t", 0]}, fold.times[key]]}
    entry: Any = {"v": _replacing(f"$v.{key}.v", fold.values[key]), "t": fold.times[key]}
    return {"$cond": [is_newer, "$$REMOVE" if in_part else entry, f"$v.{key}"]}


def _is_name(key: str) -> bool:
    return bool(key) and "." not in key and not key.startswith("$")


def _replacing(old: str, value: Any) -> Any:
    """An expression: `value` laid over what stands at the path `old`, at every level."""
    if not isinstance(value, dict) or not all(map(_is_name, value)):
        return {"$literal": value}
    members = {key: _replacing(f"{old}.{key}", one) for key, one in value.items()}
    is_object = {"$eq": [{"$type": old}, "object"]}
    return {"$mergeObjects": [{"$cond": [is_object, old, {}]}, members]}
