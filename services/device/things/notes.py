"""What devices report, in their records: no event tells of it."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from pymongo import UpdateOne

from libs.common.store.mongo import Collection, Session
from services.device.things.model import TOLD


class DeviceNotes:
    """Writes times, facts and shapes."""

    def __init__(self, devices: Collection) -> None:
        self._devices = devices

    async def reports(self, times: Mapping[int, int]) -> None:
        """Note times (ms) of reports, by device; an older one changes nothing."""
        await self._devices.bulk_write(
            [
                UpdateOne({"_id": one}, {"$max": {"lastUpdateTime": ts}})
                for one, ts in times.items()
            ],
            ordered=False,
        )

    async def facts(self, facts: Iterable[tuple[int, str, Any, int]]) -> None:
        """Write facts (device, field, value, ms), each unless the record has a newer one."""
        operations = [
            UpdateOne(
                {"_id": device_id, f"factTimes.{name}": {"$not": {"$gt": ts}}},
                {"$set": {name: value, f"factTimes.{name}": ts}},
            )
            for device_id, name, value, ts in facts
        ]
        if operations:
            await self._devices.bulk_write(operations, ordered=False)

    async def forget_facts(self, times: Mapping[int, Container[int]]) -> None:
        """Remove facts that reports of certain times (ms) told, by device."""
        found = self._devices.find({"_id": {"$in": list(times)}}, {"factTimes": 1})
        gone = [
            UpdateOne(
                {"_id": device["_id"], f"factTimes.{name}": ts},
                {"$unset": {name: "", f"factTimes.{name}": ""}},
            )
            async for device in found
            for name, ts in device.get("factTimes", {}).items()
            if ts in times[device["_id"]] and name not in TOLD
        ]
        if gone:
            await self._devices.bulk_write(gone, ordered=False)

    async def shapes(self, ids: Iterable[int]) -> dict[int, str | None]:
        """The shapes of devices, None for one that has none; unknown devices are missing."""
        found = self._devices.find({"_id": {"$in": list(ids)}}, {"shape": 1})
        return {device["_id"]: device.get("shape") async for device in found}

    async def reshape(self, shapes: Iterable[tuple[int, str | None, str]]) -> int:
        """Give devices other shapes (device, before, after); how many had that one before."""
        operations = [
            UpdateOne({"_id": device_id, "shape": before}, {"$set": {"shape": after}})
            for device_id, before, after in shapes
        ]
        return (await self._devices.bulk_write(operations, ordered=False)).matched_count

    async def has_shape(self, shape: str) -> bool:
        """Whether a device has the shape."""
        return await self._devices.find_one({"shape": shape}, {"_id": 1}) is not None

    async def erased(self, ids: Sequence[int], content: str) -> None:
        """Note that devices have no values which a TSL, by the hash of its `content`, conceals."""
        await self._devices.update_many({"_id": {"$in": list(ids)}}, {"$set": {"erased": content}})

    async def provisioned(self, device_id: int, session: Session) -> None:
        """A device that was added with a first configuration has taken one."""
        await self._devices.update_one(
            {"_id": device_id, "rpsStatus": "WAITING"},
            {"$set": {"rpsStatus": "SUCCESS"}},
            session=session,
        )
