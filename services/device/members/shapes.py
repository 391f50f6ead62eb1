"""Shapes: paths and types that devices of the product `generic` reported, with MongoDB.

The TSL of `generic` declares nothing. Ingest records the reported paths with a type each.
Devices that report the same paths share one shape; their documents have its id. A shape replaces
the TSL version: the number of a member is its position in the list, which only grows.

`shapes`: `{_id: hash, parent?, members: [[path, type], …], at}`. A shape stores only the members
that its parent lacks, so a device that adds paths one by one costs no more than its paths. `at` is
the last time at which a device got the shape, or a shape whose parent it is. Shapes that no device
or other shape refers to are deleted some time later.
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
from libs.common.things import GENERIC_MODEL, MAX_TSL_MEMBER_NUMBER, ValueType
from services.device.members.members import Member, MemberSet
from services.device.things.device_store import DeviceStore
from services.device.things.model import Thing

Shape = dict[str, ValueType]
"""Value types by path, in the order of member numbers from 1."""

MAX_PATH_LENGTH = 512
"""Maximum characters of a path with an entity, so that a shape fits into a document."""

_COMMON_TYPE_BY_PAIR: dict[frozenset[str], ValueType] = {frozenset(("LONG", "DOUBLE")): "DOUBLE"}
"""The common type of a pair of types; other pairs become STRING."""


def list_reported_paths(properties: Mapping[str, Any]) -> Iterator[tuple[str, ValueType]]:
    """Yield the paths and types of the reported values that can be entities."""
    for name, value in properties.items():
        yield name, _value_type(value)
        if isinstance(value, Mapping):
            yield from _list_leaf_paths(name, value)


def _list_leaf_paths(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, ValueType]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _list_leaf_paths(f"{path}.{name}", value)
        else:
            yield f"{path}.{name}", _value_type(value)


def _value_type(value: Any) -> ValueType:
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


def extend_shape(
    shape: Shape, paths: Iterable[tuple[str, ValueType]], maximum: int = MAX_TSL_MEMBER_NUMBER
) -> Shape:
    """Return `shape` extended by `paths`; the same object if unchanged.

    New paths follow in alphabetical order, so that similar devices share their shapes. Types only
    widen. Paths beyond `maximum` paths, or longer than `MAX_PATH_LENGTH`, get no entity.
    """
    changes: Shape = {}
    for path, kind in paths:
        known_type = changes.get(path) or shape.get(path)
        if known_type is None and len(path) <= MAX_PATH_LENGTH:
            changes[path] = kind
        elif known_type is None:
            continue
        elif kind != known_type:
            wider = _COMMON_TYPE_BY_PAIR.get(frozenset((known_type, kind)), "STRING")
            if wider != known_type:
                changes[path] = wider
    new = sorted(path for path in changes if path not in shape)[
        : max(0, min(maximum, MAX_TSL_MEMBER_NUMBER) - len(shape))
    ]
    if not new and changes.keys().isdisjoint(shape):
        return shape
    merged = {path: changes.get(path, kind) for path, kind in shape.items()}
    return merged | {path: changes[path] for path in new}


def filter_by_shape(shape: Shape, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of reported properties that has entities."""
    return {
        name: _filter_value(shape, name, value)
        for name, value in properties.items()
        if name in shape
    }


def _filter_value(shape: Shape, path: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {
        name: _filter_value(shape, f"{path}.{name}", inner)
        for name, inner in value.items()
        if isinstance(inner, Mapping) or f"{path}.{name}" in shape
    }


def shape_id(shape: Shape) -> str:
    """Return the id of a shape."""
    return hashlib.sha256(msgspec.json.encode(list(shape.items()))).hexdigest()[:32]


def shape_members(shape: Shape) -> MemberSet:
    """Return the members of a shape; all are writable, as the TSL is open."""
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

MAX_CACHED_DEVICES = 100_000
"""Devices whose shapes a process caches; shared shapes are cached once."""
MAX_CACHED_PATHS = 1_000_000
"""Maximum paths of all cached shapes; each takes about 100 bytes."""
SWEEP_INTERVAL_SECONDS = 3600.0
"""Seconds between two searches for unused shapes."""
UNUSED_SHAPE_SECONDS = 3600.0
"""Seconds that an unused shape is kept."""


class ShapeStore:
    """The collection `shapes`."""

    def __init__(self, database: Database) -> None:
        self._shapes = database["shapes"]

    async def read(self, ids: Iterable[str]) -> dict[str, Shape]:
        """Return the shapes with these ids; deleted ones are missing."""
        pipeline: list[dict[str, Any]] = [
            {"$match": {"_id": {"$in": list(ids)}}},
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
        shapes: dict[str, Shape] = {}
        async for stored in await self._shapes.aggregate(pipeline):
            whole: Shape = {}
            for part in sorted(stored["above"], key=lambda part: part["depth"], reverse=True):
                whole |= dict(part["members"])
            shapes[stored["_id"]] = whole | dict(stored["members"])
        return shapes

    async def touch(self, ids: Iterable[str]) -> int:
        """Keep shapes from deletion for `UNUSED_SHAPE_SECONDS`; return how many exist."""
        change = {"$set": {"at": datetime.now(UTC)}}
        return (await self._shapes.update_many({"_id": {"$in": list(ids)}}, change)).matched_count

    async def add(self, shapes: Mapping[str, tuple[str | None, Shape]]) -> None:
        """Write shapes by id, each with its parent's id and the members that the parent lacks."""
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
        """Delete shapes that nothing references, unused since `before`; return their number."""
        old = {"at": {"$not": {"$gte": before}}}
        leaves = await self._shapes.aggregate(
            [
                {"$match": old},
                _reference_stage("devices", "shape"),
                _reference_stage("shapes", "parent"),
                {"$match": {"devices": [], "shapes": []}},
                {"$project": {"parent": 1}},
            ]
        )
        deleted = 0
        async for leaf in leaves:
            shape: Document | None = leaf
            while shape is not None:
                result = await self._shapes.delete_one({"_id": shape["_id"], **old})
                deleted += result.deleted_count
                parent = shape.get("parent") if result.deleted_count else None
                shape = await self._find_unreferenced(devices, parent)
        return deleted

    async def _find_unreferenced(self, devices: DeviceStore, id_: str | None) -> Document | None:
        """Return the shape with this id if no device and no shape refers to it."""
        if (
            id_ is None
            or await devices.reported_state.is_shape_used(id_)
            or await self._shapes.find_one({"parent": id_}, {"_id": 1})
        ):
            return None
        return await self._shapes.find_one({"_id": id_}, {"parent": 1})

    async def sweep(self, devices: DeviceStore) -> None:
        """Delete unused shapes periodically; run by the lease holder."""

        async def delete_unused_shapes() -> None:
            before = datetime.now(UTC) - timedelta(seconds=UNUSED_SHAPE_SECONDS)
            if deleted := await self.delete_unused(devices, before):
                log.info("deleted %d unused shapes", deleted)

        await repeat(delete_unused_shapes, SWEEP_INTERVAL_SECONDS, "deletion of unused shapes")


def _reference_stage(collection: str, field: str) -> Document:
    """Return the stage that finds one document of a collection that refers to the shape."""
    return {
        "$lookup": {
            "from": collection,
            "localField": "_id",
            "foreignField": field,
            "pipeline": [{"$limit": 1}, {"$project": {"_id": 1}}],
            "as": collection,
        }
    }


class ShapeUpdater:
    """Updates the shapes of devices to their reports; one per ingest process."""

    def __init__(self, store: ShapeStore, devices: DeviceStore, limits: LimitsCache) -> None:
        self._store = store
        self._devices = devices
        self._limits = limits
        self._shape_ids: OrderedDict[int, str | None] = OrderedDict()
        """The shape id of each cached device, None for a device without a shape."""
        self._known: dict[str | None, Shape] = {None: {}}
        self._paths = 0
        """Paths of all cached shapes together."""
        self._update_lock = asyncio.Lock()
        """Held while a batch is processed, so that the next one sees its changes."""

    async def update(self, reports: Iterable[tuple[Thing, Mapping[str, Any]]]) -> dict[int, Shape]:
        """Extend the shapes of devices for a batch of reports; idempotent.

        `reports` are things with their reported properties. Return the shapes of those devices of
        the product `generic` that still exist. If another process changed the shape of a device
        meanwhile, the shape is read again at the next report, which only delays new entities.
        """
        relevant = [report for report in reports if report[0].model == GENERIC_MODEL]
        if not relevant:
            return {}
        async with self._update_lock:
            return await self._update(relevant)

    async def _update(self, reports: Sequence[tuple[Thing, Mapping[str, Any]]]) -> dict[int, Shape]:
        await self._load_shapes({thing.id for thing, _ in reports} - self._shape_ids.keys())
        shapes: dict[int, Shape] = {}
        larger: dict[int, Shape] = {}
        for thing, properties in reports:
            if thing.id in self._shape_ids:
                before = shapes.get(thing.id) or self._known[self._shape_ids[thing.id]]
                maximum = self._limits.get(thing.tenant).paths
                shapes[thing.id] = extend_shape(before, list_reported_paths(properties), maximum)
                if shapes[thing.id] is not before:
                    larger[thing.id] = shapes[thing.id]
        if larger:
            await self._write(larger)
        self._trim_cache()
        return shapes

    async def _load_shapes(self, devices: set[int]) -> None:
        if not devices:
            return
        shape_ids = await self._devices.reported_state.find_shape_ids(devices)
        missing = {name for name in shape_ids.values() if name and name not in self._known}
        if missing:
            self._cache(await self._store.read(missing))
        self._shape_ids.update(
            {device: name for device, name in shape_ids.items() if name in self._known}
        )

    async def _write(self, larger: dict[int, Shape]) -> None:
        """Write shapes, then the devices that refer to them."""
        before = {device: self._shape_ids[device] for device in larger}
        parents = {name for name in before.values() if name is not None}
        names = {device: shape_id(shape) for device, shape in larger.items()}
        if await self._store.touch(parents) == len(parents):
            added = {
                name: (before[device], self._added_members(device, larger[device]))
                for device, name in names.items()
            }
            await self._store.add(added)
            changes = [(device, before[device], name) for device, name in names.items()]
            if await self._devices.reported_state.replace_shape_ids(changes) == len(changes):
                self._cache({name: larger[device] for device, name in names.items()})
                self._shape_ids.update(names)
                return
        for device in larger:  # another process changed its shape meanwhile
            self._shape_ids.pop(device, None)

    def _added_members(self, device: int, shape: Shape) -> Shape:
        before = self._known[self._shape_ids[device]]
        return {path: kind for path, kind in shape.items() if before.get(path) != kind}

    def _cache(self, shapes: Mapping[str, Shape]) -> None:
        self._paths += sum(len(shape) for name, shape in shapes.items() if name not in self._known)
        self._known.update(shapes.items())

    def _trim_cache(self) -> None:
        while len(self._shape_ids) > MAX_CACHED_DEVICES:
            self._shape_ids.popitem(last=False)
        if len(self._known) > 2 * len(self._shape_ids) + 1000 or self._paths > MAX_CACHED_PATHS:
            used = {None, *self._shape_ids.values()}
            self._known = {name: shape for name, shape in self._known.items() if name in used}
            self._paths = sum(map(len, self._known.values()))
        if self._paths > MAX_CACHED_PATHS:
            self._shape_ids.clear()
            self._known, self._paths = {None: {}}, 0
