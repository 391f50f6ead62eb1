"""Shapes in MongoDB: `shapes`, `{_id: hash, parent?, members: [[path, type], …], at}`.

A shape holds what it adds to its parent, or all of it where it has none, so a device that
invents paths one by one costs no more than its paths. `at` is when a device was last given the
shape, or one below it: an unused one is deleted some time after, when no device and no other
shape names it.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from libs.common.store.mongo import Database, StoreError
from services.device.entities.shapes import Shape
from services.device.things.store import DeviceStore

log = logging.getLogger(__name__)

PERIOD = 3600.0
"""Seconds between two looks for unused shapes."""
UNUSED_FOR = 3600.0
"""Seconds for which a shape stays after nobody has been given it."""


async def read_shapes(database: Database, names: Iterable[str]) -> dict[str, Shape]:
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
    async for stored in await database["shapes"].aggregate(pipeline):
        whole: Shape = {}
        for part in sorted(stored["above"], key=lambda part: part["depth"], reverse=True):
            whole |= dict(part["members"])
        found[stored["_id"]] = whole | dict(stored["members"])
    return found


async def delete_unused_shapes(database: Database, devices: DeviceStore) -> None:
    """Delete unused shapes, for ever; run by the lease holder."""
    while True:
        try:
            before = datetime.now(UTC) - timedelta(seconds=UNUSED_FOR)
            deleted = await delete_unused(database, devices, before)
            if deleted:
                log.info("deleted %d shapes that no device has", deleted)
        except StoreError as error:
            log.warning("unused shapes wait: %s", error)
        await asyncio.sleep(PERIOD)


async def delete_unused(database: Database, devices: DeviceStore, before: datetime) -> int:
    """Delete shapes that nobody names and nobody was given since `before`; return how many."""
    shapes = database["shapes"]
    old = {"at": {"$not": {"$gte": before}}}
    leaves = await shapes.aggregate(
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
        shape: dict[str, Any] | None = leaf
        while shape is not None:
            gone = await shapes.delete_one({"_id": shape["_id"], **old})
            deleted += gone.deleted_count
            parent = shape.get("parent") if gone.deleted_count else None
            shape = await _unnamed(database, devices, parent)
    return deleted


async def _unnamed(
    database: Database, devices: DeviceStore, name: str | None
) -> dict[str, Any] | None:
    """The shape of this name when no device and no shape names it."""
    if (
        name is None
        or await devices.has_shape(name)
        or await database["shapes"].find_one({"parent": name}, {"_id": 1})
    ):
        return None
    found: dict[str, Any] | None = await database["shapes"].find_one({"_id": name}, {"parent": 1})
    return found


def _naming(collection: str, field: str) -> dict[str, Any]:
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
