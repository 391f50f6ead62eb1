"""Notes what devices of the open product report, as their shapes (`shapes`)."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from pymongo import UpdateOne

from libs.common.store.mongo import Database
from libs.common.things import GENERIC
from services.device.entities.shapes import Shape, grown, hash_of, reported_types
from services.device.things.directory import Thing

KEPT = 100_000
"""Most devices whose shapes are kept in a process; what they share is kept once."""


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

    def __init__(self, database: Database) -> None:
        self._devices = database["devices"]
        self._shapes = database["shapes"]
        self._of: OrderedDict[int, str | None] = OrderedDict()
        """The shape of each device, None for one that has none yet."""
        self._known: dict[str | None, Shape] = {None: {}}
        self._busy = asyncio.Lock()
        """One batch at a time: the next one must see what this one finds."""

    async def note(self, reports: Iterable[Report]) -> None:
        """Give devices of a batch larger shapes where theirs lack something; idempotent.

        A device whose shape another process has changed meanwhile is read anew at its next
        report: nothing is lost but time, as devices report again and again.
        """
        of_interest = [report for report in reports if report.thing.model == GENERIC]
        if of_interest:
            async with self._busy:
                await self._note(of_interest)

    async def _note(self, reports: Sequence[Report]) -> None:
        await self._read({report.thing.id for report in reports} - self._of.keys())
        larger: dict[int, Shape] = {}
        for report in reports:
            device = report.thing.id
            if device in self._of:
                before = larger.get(device) or self._known[self._of[device]]
                after = grown(before, reported_types(report.properties))
                if after is not before:
                    larger[device] = after
        if larger:
            await self._write(larger)
        self._forget_oldest()

    async def _read(self, devices: set[int]) -> None:
        if not devices:
            return
        cursor = self._devices.find({"_id": {"$in": list(devices)}}, {"shape": 1})
        found = {device["_id"]: device.get("shape") async for device in cursor}
        missing = [shape for shape in set(found.values()) if shape not in self._known]
        async for stored in self._shapes.find({"_id": {"$in": missing}}):
            self._known[stored["_id"]] = dict(stored["members"])
        self._of.update({one: shape for one, shape in found.items() if shape in self._known})

    async def _write(self, larger: dict[int, Shape]) -> None:
        """Write shapes, then the devices that name them."""
        names = {device: hash_of(shape) for device, shape in larger.items()}
        new: dict[str | None, Shape] = {
            names[device]: shape
            for device, shape in larger.items()
            if names[device] not in self._known
        }
        if new:
            await self._shapes.bulk_write([_keep(*one) for one in new.items()], ordered=False)
            self._known |= new
        result = await self._devices.bulk_write(
            [
                UpdateOne({"_id": device, "shape": self._of[device]}, {"$set": {"shape": name}})
                for device, name in names.items()
            ],
            ordered=False,
        )
        if result.matched_count == len(names):
            self._of.update(names)
        else:
            self._drop(list(names))

    def _drop(self, devices: Sequence[int]) -> None:
        for device in devices:
            self._of.pop(device, None)

    def _forget_oldest(self) -> None:
        while len(self._of) > KEPT:
            self._of.popitem(last=False)
        if len(self._known) > 2 * len(self._of) + 1000:
            used = {None, *self._of.values()}
            self._known = {name: shape for name, shape in self._known.items() if name in used}


def _keep(name: str | None, shape: Shape) -> UpdateOne:
    members = [list(one) for one in shape.items()]
    return UpdateOne({"_id": name}, {"$setOnInsert": {"members": members}}, upsert=True)
