"""Connection states and reported facts in the records of devices."""

from collections.abc import Collection as Some
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pymongo import UpdateOne, WriteConcern
from pymongo.read_concern import ReadConcern

from libs.common.store.mongo import Collection, Document, Session
from services.device.things.model import TOLD, PresentDevice, Standing, stored_fields
from services.device.things.visibility import Condition

LOCKED_MS = 250
"""How long a report over HTTP waits for the device's record, and a connection with it."""
_PRESENT = stored_fields(PresentDevice)
_STANDING = stored_fields(Standing)
_PRESENT_FORM = list[PresentDevice]


class DevicePresence:
    """Reads and writes who is connected."""

    def __init__(self, devices: Collection, hot: Collection) -> None:
        """`hot` is the same collection over the client of frequent operations."""
        self._devices = devices
        self._heard = hot.with_options(
            write_concern=WriteConcern(1), read_concern=ReadConcern("local")
        )
        """No thread waits for a record that is locked; a note that is lost comes again."""

    async def standing(self, ids: Iterable[int]) -> dict[int, Standing]:
        """Whose devices are and whether they are connected; one that is gone is missing."""
        found = self._devices.find({"_id": {"$in": list(ids)}}, _STANDING)
        return {row["_id"]: msgspec.convert(row, Standing) async for row in found}

    async def with_serials(self, keys: Some[str], session: Session) -> list[PresentDevice]:
        """Devices by SN in upper case."""
        return await self._present({"snKey": {"$in": list(keys)}}, session)

    async def with_ids(self, ids: Some[int], session: Session) -> list[PresentDevice]:
        """Those of some devices that are there."""
        return await self._present({"_id": {"$in": list(ids)}}, session)

    async def heard(self, device_id: int, at: datetime, life: timedelta) -> str | None:
        """Note a report over HTTP: ONLINE for so long; its connection state, None when it is gone.

        Raises `StoreError` when the record stays locked for `LOCKED_MS`.
        """
        device = await self._heard.find_one_and_update(
            {"_id": device_id},
            _heard_at(at, life),
            {"connectStatus": 1},
            maxTimeMS=LOCKED_MS,
        )
        return None if device is None else device.get("connectStatus", "DISCONNECT")

    async def heard_together(self, ids: list[int], at: datetime, life: timedelta) -> set[int]:
        """Note the same of devices that are ONLINE, in one write; those that are noted.

        `at` is a whole ms.
        """
        change = {
            "q": {"_id": {"$in": ids}, "connectStatus": "ONLINE"},
            "u": _heard_at(at, life),
            "multi": True,
        }
        written = await self._heard.database.command(
            {
                "update": self._heard.name,
                "updates": [change],
                "ordered": False,
                "maxTimeMS": LOCKED_MS,
                "writeConcern": {"w": 1},
            }
        )
        if written["n"] == len(ids):
            return set(ids)
        noted = {"_id": {"$in": ids}, "connectStatus": "ONLINE", "httpAt": {"$gte": at}}
        return {row["_id"] async for row in self._heard.find(noted, {"_id": 1})}

    async def heard_again(
        self, ids: Some[int], at: datetime, life: timedelta, session: Session
    ) -> None:
        """Make a transaction see what `heard` has written.

        Its snapshot is one that a majority has, and `heard` does not wait for a majority: written
        again, what the snapshot lacks is a conflict, and the transaction begins anew.
        """
        some = {"_id": {"$in": list(ids)}}
        await self._devices.update_many(some, _heard_at(at, life), session=session)

    async def any_silent(self, since: datetime) -> bool:
        """Whether a device was to be heard over HTTP until then at the latest."""
        return await self._devices.find_one(_silent(since), {"_id": 1}) is not None

    async def take_silent(
        self, since: datetime, limit: int, session: Session
    ) -> list[PresentDevice]:
        """Some of the devices that were, the longest silent first; they are not looked at again."""
        found = self._devices.find(_silent(since), _PRESENT, session=session)
        rows = await found.sort("httpUntil", 1).limit(limit).to_list(None)
        await self._devices.update_many(
            {"_id": {"$in": [row["_id"] for row in rows]}},
            {"$unset": {"httpUntil": ""}},
            session=session,
        )
        return msgspec.convert(rows, _PRESENT_FORM)

    async def set_status(self, ids: Some[int], status: str, session: Session) -> None:
        """Change the connection state of devices, from now on."""
        change = {"connectStatus": status, "connectChanged": datetime.now(UTC)}
        await self._devices.update_many(
            {"_id": {"$in": list(ids)}}, {"$set": change}, session=session
        )

    async def _present(self, query: Condition, session: Session) -> list[PresentDevice]:
        found = await self._devices.find(query, _PRESENT, session=session).to_list(None)
        return msgspec.convert(found, _PRESENT_FORM)


def _heard_at(at: datetime, life: timedelta) -> list[Document]:
    """The change of a record when a device is heard: an older note changes nothing.

    A life that has become shorter counts from its next word on.
    """
    newer = {"$gte": [at, {"$ifNull": ["$httpAt", at]}]}
    until = {"$cond": [newer, at + life, "$httpUntil"]}
    return [{"$set": {"httpUntil": until, "httpAt": {"$max": ["$httpAt", at]}}}]


def _silent(since: datetime) -> Condition:
    return {"httpUntil": {"$lte": since}}


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
