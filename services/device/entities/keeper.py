"""Notes what devices of the open product report, as their shapes (`shapes`)."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from pymongo import UpdateOne

from libs.common.limits.tenants import KnownLimits
from libs.common.store.mongo import Database
from libs.common.things import GENERIC
from services.device.entities.shapes import Shape, grown, hash_of, reported_types
from services.device.entities.stored_shapes import read_shapes
from services.device.things.model import Thing
from services.device.things.store import DeviceStore

KEPT = 100_000
"""Most devices whose shapes are kept in a process; what they share is kept once."""
MOST_PATHS = 1_000_000
"""Most paths of all shapes that are kept; one takes some 100 bytes."""


class Report(Protocol):
    """What a device has reported."""

    @property
    def thing(self) -> Thing:
        """The device."""

    @property
    def properties(self) -> dict[str, Any]:
        """Values by top-level key."""


class ShapeKeeper:
    """Keeps the shapes of devices in step with what they report; one per ingest process."""

    def __init__(self, database: Database, devices: DeviceStore, limits: KnownLimits) -> None:
        self._database = database
        self._devices = devices
        self._shapes = database["shapes"]
        self._limits = limits
        self._of: OrderedDict[int, str | None] = OrderedDict()
        """The shape of each device, None for one that has none yet."""
        self._known: dict[str | None, Shape] = {None: {}}
        self._paths = 0
        """Of all known shapes together."""
        self._busy = asyncio.Lock()
        """One batch at a time: the next one must see what this one finds."""

    async def note(self, reports: Iterable[Report]) -> dict[int, Shape]:
        """Give devices of a batch larger shapes where theirs lack something; idempotent.

        Returns the shape of each device of the open product. A device whose shape another
        process has changed meanwhile is read anew at its next report: nothing is lost but time,
        as devices report again and again.
        """
        of_interest = [report for report in reports if report.thing.model == GENERIC]
        if not of_interest:
            return {}
        async with self._busy:
            return await self._note(of_interest)

    async def _note(self, reports: Sequence[Report]) -> dict[int, Shape]:
        await self._read({report.thing.id for report in reports} - self._of.keys())
        shapes: dict[int, Shape] = {}
        larger: dict[int, Shape] = {}
        for report in reports:
            device = report.thing.id
            if device in self._of:
                before = shapes.get(device) or self._known[self._of[device]]
                most = self._limits.of(report.thing.tenant).paths
                shapes[device] = grown(before, reported_types(report.properties), most)
                if shapes[device] is not before:
                    larger[device] = shapes[device]
        if larger:
            await self._write(larger)
        self._forget()
        return shapes

    async def _read(self, devices: set[int]) -> None:
        if not devices:
            return
        found = await self._devices.shapes(devices)
        missing = {shape for shape in found.values() if shape and shape not in self._known}
        if missing:
            self._learn(await read_shapes(self._database, missing))
        self._of.update({one: shape for one, shape in found.items() if shape in self._known})

    async def _write(self, larger: dict[int, Shape]) -> None:
        """Write shapes, then the devices that name them."""
        now = datetime.now(UTC)
        parents = {self._of[device] for device in larger} - {None}
        alive = await self._shapes.update_many(
            {"_id": {"$in": list(parents)}}, {"$set": {"at": now}}
        )
        if alive.matched_count < len(parents):  # another process gave their devices others
            self._drop(larger)
            return
        names = {device: hash_of(shape) for device, shape in larger.items()}
        new = {
            name: _keep(name, self._of[device], self._added(device, larger[device]), now)
            for device, name in names.items()
        }
        await self._shapes.bulk_write(list(new.values()), ordered=False)
        given = [(device, self._of[device], name) for device, name in names.items()]
        if await self._devices.reshape(given) == len(names):
            self._learn({name: larger[device] for device, name in names.items()})
            self._of.update(names)
        else:
            self._drop(larger)

    def _added(self, device: int, shape: Shape) -> Shape:
        before = self._known[self._of[device]]
        return {path: kind for path, kind in shape.items() if before.get(path) != kind}

    def _learn(self, shapes: Mapping[str, Shape]) -> None:
        self._paths += sum(len(shape) for name, shape in shapes.items() if name not in self._known)
        self._known.update(shapes.items())

    def _drop(self, devices: Iterable[int]) -> None:
        for device in devices:
            self._of.pop(device, None)

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


def _keep(name: str, parent: str | None, added: Shape, now: datetime) -> UpdateOne:
    first: dict[str, Any] = {"members": [list(one) for one in added.items()]}
    if parent is not None:
        first["parent"] = parent
    return UpdateOne({"_id": name}, {"$setOnInsert": first, "$set": {"at": now}}, upsert=True)
