"""Shapes: what devices of the open product have reported, so that it can be shown.

Their TSL declares nothing. Ingest notes the paths that come, with a type each; devices that
send the same share one shape and name it in their document. To all others a shape is what a TSL
version is to other products: the number of a member is its place in the list, which only grows.

Shapes in MongoDB: `shapes`, `{_id: hash, parent?, members: [[path, type], …], at}`.

A shape holds what it adds to its parent, or all of it where it has none, so a device that
invents paths one by one costs no more than its paths. `at` is when a device was last given the
shape, or one below it: an unused one is deleted some time after, when no device and no other
shape names it.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pymongo import UpdateOne

from libs.common.limits.tenants import LimitsCache
from libs.common.scheduling.turns import repeat
from libs.common.store.mongo import Database, Document
from libs.common.things import GENERIC, LAST_DECLARED, ValueType
from services.device.members.members import Member, MemberSet
from services.device.things.device_store import DeviceStore
from services.device.things.model import Thing

Shape = dict[str, ValueType]
"""Paths in the order of their numbers, from 1."""

LONGEST_PATH = 512
"""Characters; what has a longer path has no entity, so that a shape fits in a document."""

_WIDER: dict[frozenset[str], ValueType] = {frozenset(("LONG", "DOUBLE")): "DOUBLE"}
"""Types that have another one in common; all others have STRING."""


def reported_types(properties: Mapping[str, Any]) -> Iterator[tuple[str, ValueType]]:
    """Path and type of everything in a report that is an entity."""
    for name, value in properties.items():
        yield name, _type_of(value)
        if isinstance(value, Mapping):
            yield from _children(name, value)


def _children(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, ValueType]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _children(f"{path}.{name}", value)
        else:
            yield f"{path}.{name}", _type_of(value)


def _type_of(value: Any) -> ValueType:
    match value:
        case bool():
            return "BOOLEAN"
        case int():
            return "LONG"
        case float():
            return "DOUBLE"
        case str():
            return "STRING"
    return "OBJECT"


def grown(shape: Shape, found: Iterable[tuple[str, ValueType]], most: int = LAST_DECLARED) -> Shape:
    """`shape` with what was found, up to `most` paths; the very same one when it has it all.

    New paths follow in alphabetical order, so that devices of a kind share their shapes. A
    type only widens. What there is no room for has no entity.
    """
    changes: Shape = {}
    for path, kind in found:
        known = changes.get(path) or shape.get(path)
        if known is None and len(path) <= LONGEST_PATH:
            changes[path] = kind
        elif known is None:
            continue
        elif kind != known:
            wider = _WIDER.get(frozenset((known, kind)), "STRING")
            if wider != known:
                changes[path] = wider
    new = sorted(path for path in changes if path not in shape)[
        : max(0, min(most, LAST_DECLARED) - len(shape))
    ]
    if not new and changes.keys().isdisjoint(shape):
        return shape
    kept = {path: changes.get(path, kind) for path, kind in shape.items()}
    return kept | {path: changes[path] for path in new}


def within(shape: Shape, properties: Mapping[str, Any]) -> dict[str, Any]:
    """What of reported properties has an entity, or belongs to one."""
    return {
        name: _within(shape, name, value) for name, value in properties.items() if name in shape
    }


def _within(shape: Shape, path: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {
        name: _within(shape, f"{path}.{name}", one)
        for name, one in value.items()
        if isinstance(one, Mapping) or f"{path}.{name}" in shape
    }


def hash_of(shape: Shape) -> str:
    """The id of a shape."""
    return hashlib.sha256(msgspec.json.encode(list(shape.items()))).hexdigest()[:32]


def members_of_shape(shape: Shape) -> MemberSet:
    """The members of a device of this shape; all can be written, as its TSL is open."""
    return MemberSet(
        Member(
            number=number,
            path=path,
            type="PROPERTY",
            name=path.rpartition(".")[2],
            value_type=kind,
            access_mod="RW",
            parent=path.partition(".")[0] if "." in path else None,
        )
        for number, (path, kind) in enumerate(shape.items(), 1)
    )


log = logging.getLogger(__name__)

KEPT = 100_000
"""Most devices whose shapes are kept in a process; what they share is kept once."""
MOST_PATHS = 1_000_000
"""Most paths of all shapes that are kept; one takes some 100 bytes."""
PERIOD = 3600.0
"""Seconds between two looks for unused shapes."""
UNUSED_FOR = 3600.0
"""Seconds for which a shape stays after nobody has been given it."""


class ShapeStore:
    """The collection `shapes`."""

    def __init__(self, database: Database) -> None:
        self._shapes = database["shapes"]

    async def read(self, names: Iterable[str]) -> dict[str, Shape]:
        """The shapes of these names; what is gone is missing."""
        pipeline: list[dict[str, Any]] = [
            {"$match": {"_id": {"$in": list(names)}}},
            {
                "$graphLookup": {
                    "from": "shapes",
                    "startWith": "$parent",
                    "connectFromField": "parent",
                    "connectToField": "_id",
                    "as": "above",
                    "depthField": "depth",
                }
            },
        ]
        found: dict[str, Shape] = {}
        async for stored in await self._shapes.aggregate(pipeline):
            whole: Shape = {}
            for part in sorted(stored["above"], key=lambda part: part["depth"], reverse=True):
                whole |= dict(part["members"])
            found[stored["_id"]] = whole | dict(stored["members"])
        return found

    async def touch(self, names: Iterable[str]) -> int:
        """Keep shapes from being deleted for `UNUSED_FOR`; return how many there are."""
        change = {"$set": {"at": datetime.now(UTC)}}
        alive = await self._shapes.update_many({"_id": {"$in": list(names)}}, change)
        return alive.matched_count

    async def add(self, shapes: Mapping[str, tuple[str | None, Shape]]) -> None:
        """Write shapes by name: the parent of each, and what it adds to that."""
        now = datetime.now(UTC)
        writes = []
        for name, (parent, added) in shapes.items():
            first: Document = {"members": [list(member) for member in added.items()]}
            if parent is not None:
                first["parent"] = parent
            change = {"$setOnInsert": first, "$set": {"at": now}}
            writes.append(UpdateOne({"_id": name}, change, upsert=True))
        await self._shapes.bulk_write(writes, ordered=False)

    async def delete_unused(self, devices: DeviceStore, before: datetime) -> int:
        """Delete shapes that nobody names and nobody was given since `before`; how many."""
        old = {"at": {"$not": {"$gte": before}}}
        leaves = await self._shapes.aggregate(
            [
                {"$match": old},
                _naming("devices", "shape"),
                _naming("shapes", "parent"),
                {"$match": {"devices": [], "shapes": []}},
                {"$project": {"parent": 1}},
            ]
        )
        deleted = 0
        async for leaf in leaves:
            shape: Document | None = leaf
            while shape is not None:
                gone = await self._shapes.delete_one({"_id": shape["_id"], **old})
                deleted += gone.deleted_count
                parent = shape.get("parent") if gone.deleted_count else None
                shape = await self._unnamed(devices, parent)
        return deleted

    async def _unnamed(self, devices: DeviceStore, name: str | None) -> Document | None:
        """The shape of this name when no device and no shape names it."""
        if (
            name is None
            or await devices.notes.has_shape(name)
            or await self._shapes.find_one({"parent": name}, {"_id": 1})
        ):
            return None
        return await self._shapes.find_one({"_id": name}, {"parent": 1})

    async def sweep(self, devices: DeviceStore) -> None:
        """Delete unused shapes, for ever; run by the lease holder."""

        async def delete_unused_shapes() -> None:
            before = datetime.now(UTC) - timedelta(seconds=UNUSED_FOR)
            if deleted := await self.delete_unused(devices, before):
                log.info("deleted %d shapes that no device has", deleted)

        await repeat(delete_unused_shapes, PERIOD, "unused shapes wait")


def _naming(collection: str, field: str) -> Document:
    """The stage that finds one document of a collection that names the shape."""
    return {
        "$lookup": {
            "from": collection,
            "localField": "_id",
            "foreignField": field,
            "pipeline": [{"$limit": 1}, {"$project": {"_id": 1}}],
            "as": collection,
        }
    }


class ShapeKeeper:
    """Keeps the shapes of devices in step with what they report; one per ingest process."""

    def __init__(self, store: ShapeStore, devices: DeviceStore, limits: LimitsCache) -> None:
        self._store = store
        self._devices = devices
        self._limits = limits
        self._of: OrderedDict[int, str | None] = OrderedDict()
        """The shape of each device, None for one that has none yet."""
        self._known: dict[str | None, Shape] = {None: {}}
        self._paths = 0
        """Of all known shapes together."""
        self._busy = asyncio.Lock()
        """One batch at a time: the next one must see what this one finds."""

    async def note(self, reports: Iterable[tuple[Thing, Mapping[str, Any]]]) -> dict[int, Shape]:
        """Give devices of a batch larger shapes where theirs lack something; idempotent.

        `reports` are properties, by thing. Returns the shape of each device of the open product.
        A device whose shape another process has changed meanwhile is read anew at its next
        report: nothing is lost but time, as devices report again and again.
        """
        of_interest = [report for report in reports if report[0].model == GENERIC]
        if not of_interest:
            return {}
        async with self._busy:
            return await self._note(of_interest)

    async def _note(self, reports: Sequence[tuple[Thing, Mapping[str, Any]]]) -> dict[int, Shape]:
        await self._read({thing.id for thing, _ in reports} - self._of.keys())
        shapes: dict[int, Shape] = {}
        larger: dict[int, Shape] = {}
        for thing, properties in reports:
            if thing.id in self._of:
                before = shapes.get(thing.id) or self._known[self._of[thing.id]]
                most = self._limits.of(thing.tenant).paths
                shapes[thing.id] = grown(before, reported_types(properties), most)
                if shapes[thing.id] is not before:
                    larger[thing.id] = shapes[thing.id]
        if larger:
            await self._write(larger)
        self._forget()
        return shapes

    async def _read(self, devices: set[int]) -> None:
        if not devices:
            return
        found = await self._devices.notes.shapes(devices)
        missing = {name for name in found.values() if name and name not in self._known}
        if missing:
            self._learn(await self._store.read(missing))
        self._of.update({device: name for device, name in found.items() if name in self._known})

    async def _write(self, larger: dict[int, Shape]) -> None:
        """Write shapes, then the devices that name them."""
        before = {device: self._of[device] for device in larger}
        parents = {name for name in before.values() if name is not None}
        names = {device: hash_of(shape) for device, shape in larger.items()}
        if await self._store.touch(parents) == len(parents):
            added = {
                name: (before[device], self._added(device, larger[device]))
                for device, name in names.items()
            }
            await self._store.add(added)
            given = [(device, before[device], name) for device, name in names.items()]
            if await self._devices.notes.reshape(given) == len(given):
                self._learn({name: larger[device] for device, name in names.items()})
                self._of.update(names)
                return
        for device in larger:  # another process gave it another
            self._of.pop(device, None)

    def _added(self, device: int, shape: Shape) -> Shape:
        before = self._known[self._of[device]]
        return {path: kind for path, kind in shape.items() if before.get(path) != kind}

    def _learn(self, shapes: Mapping[str, Shape]) -> None:
        self._paths += sum(len(shape) for name, shape in shapes.items() if name not in self._known)
        self._known.update(shapes.items())

    def _forget(self) -> None:
        while len(self._of) > KEPT:
            self._of.popitem(last=False)
        if len(self._known) > 2 * len(self._of) + 1000 or self._paths > MOST_PATHS:
            used = {None, *self._of.values()}
            self._known = {name: shape for name, shape in self._known.items() if name in used}
            self._paths = sum(map(len, self._known.values()))
        if self._paths > MOST_PATHS:
            self._of.clear()
            self._known, self._paths = {None: {}}, 0
