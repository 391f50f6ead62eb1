"""Connection states and reported state in the records of devices."""

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pymongo import UpdateOne, WriteConcern
from pymongo.read_concern import ReadConcern

from libs.common.store.mongo import Collection, Document, Mongo, Session
from services.device.things.model import (
    NETWORK_REPORTED_FIELDS,
    DeviceWithPresence,
    OwnerAndStatus,
    projection_for,
)
from services.device.things.visibility import Condition

MAX_LOCK_WAIT_MS = 250
"""Milliseconds that the record of a contact waits for a locked device document."""
_PRESENCE_PROJECTION = projection_for(DeviceWithPresence)
_OWNER_AND_STATUS_PROJECTION = projection_for(OwnerAndStatus)
_DEVICES_WITH_PRESENCE = list[DeviceWithPresence]


class DevicePresence:
    """Reads and writes the connection states of devices."""

    def __init__(self, devices: Collection, hot: Collection) -> None:
        """`hot` is the same collection over the client of frequent operations."""
        self._devices = devices
        self._contacts = hot.with_options(
            write_concern=WriteConcern(1), read_concern=ReadConcern("local")
        )
        """Writes without waiting for a majority of replicas: the next contact repeats a lost
        write."""

    async def find_owners_and_statuses(self, ids: Iterable[int]) -> dict[int, OwnerAndStatus]:
        """Return owners and connection states of devices by id; unknown ids are missing."""
        cursor = self._devices.find({"_id": {"$in": list(ids)}}, _OWNER_AND_STATUS_PROJECTION)
        return {row["_id"]: msgspec.convert(row, OwnerAndStatus) async for row in cursor}

    async def find_by_serials(
        self, keys: Iterable[str], session: Session
    ) -> list[DeviceWithPresence]:
        """Return the devices with these SNs (upper case)."""
        return await self._find_devices({"snKey": {"$in": list(keys)}}, session)

    async def find_by_ids(self, ids: Iterable[int], session: Session) -> list[DeviceWithPresence]:
        """Return the devices with these ids."""
        return await self._find_devices({"_id": {"$in": list(ids)}}, session)

    async def record_contact(self, device_id: int, at: datetime, lifetime: timedelta) -> str | None:
        """Record a contact (see `HttpPresence`), which keeps a device ONLINE for `lifetime`.

        Return the connection state, which stays the same, or None if the device does not exist.
        Raises `StoreError` when the record stays locked for `MAX_LOCK_WAIT_MS`.
        """
        device = await self._contacts.find_one_and_update(
            {"_id": device_id},
            _contact_update(at, lifetime),
            {"connectStatus": 1},
            maxTimeMS=MAX_LOCK_WAIT_MS,
        )
        return None if device is None else device.get("connectStatus", "DISCONNECT")

    async def record_online_contacts(
        self, ids: list[int], at: datetime, lifetime: timedelta
    ) -> set[int]:
        """Record contacts of those of `ids` that are ONLINE; return the ids of these.

        One write records all. `at` has no fraction of a ms. Other devices do not change.
        """
        change = {
            "q": {"_id": {"$in": ids}, "connectStatus": "ONLINE"},
            "u": _contact_update(at, lifetime),
            "multi": True,
        }
        written = await self._contacts.database.command(
            {
                "update": self._contacts.name,
                "updates": [change],
                "ordered": False,
                "maxTimeMS": MAX_LOCK_WAIT_MS,
                "writeConcern": {"w": 1},
            }
        )
        if written["n"] == len(ids):
            return set(ids)
        noted = {"_id": {"$in": ids}, "connectStatus": "ONLINE", "httpAt": {"$gte": at}}
        return {row["_id"] async for row in self._contacts.find(noted, {"_id": 1})}

    async def rewrite_contacts(
        self, ids: Iterable[int], at: datetime, lifetime: timedelta, session: Session
    ) -> None:
        """Repeat writes of `record_contact` so that a transaction sees them.

        A transaction reads what a majority has, and `record_contact` does not wait for a majority.
        Writing again conflicts with a write that the snapshot lacks, and the transaction starts
        over.
        """
        query = {"_id": {"$in": list(ids)}}
        await self._devices.update_many(query, _contact_update(at, lifetime), session=session)

    async def has_expired_lifetime(self, until: datetime) -> bool:
        """Return whether the HTTP lifetime of any device ended at `until` or before."""
        return await self._devices.find_one(_expired_condition(until), {"_id": 1}) is not None

    async def pop_expired_lifetimes(
        self, until: datetime, limit: int, session: Session
    ) -> list[DeviceWithPresence]:
        """Return up to `limit` devices whose HTTP lifetime ended at `until` or before.

        The earliest come first. Their lifetimes are removed from their records.
        """
        cursor = self._devices.find(
            _expired_condition(until), _PRESENCE_PROJECTION, session=session
        )
        rows = await cursor.sort("httpUntil", 1).limit(limit).to_list(None)
        await self._devices.update_many(
            {"_id": {"$in": [row["_id"] for row in rows]}},
            {"$unset": {"httpUntil": ""}},
            session=session,
        )
        return msgspec.convert(rows, _DEVICES_WITH_PRESENCE)

    async def set_status(self, ids: Iterable[int], status: str, session: Session) -> None:
        """Set the connection state of devices, as of now."""
        change = {"connectStatus": status, "connectChanged": datetime.now(UTC)}
        await self._devices.update_many(
            {"_id": {"$in": list(ids)}}, {"$set": change}, session=session
        )

    async def _find_devices(self, query: Condition, session: Session) -> list[DeviceWithPresence]:
        documents = await self._devices.find(query, _PRESENCE_PROJECTION, session=session).to_list(
            None
        )
        return msgspec.convert(documents, _DEVICES_WITH_PRESENCE)


def _contact_update(at: datetime, lifetime: timedelta) -> list[Document]:
    """Return the update of a device record for a contact at `at`; ignore older contacts.

    A shorter lifetime takes effect with the next contact.
    """
    newer = {"$gte": [at, {"$ifNull": ["$httpAt", at]}]}
    until = {"$cond": [newer, at + lifetime, "$httpUntil"]}
    return [{"$set": {"httpUntil": until, "httpAt": {"$max": ["$httpAt", at]}}}]


def _expired_condition(until: datetime) -> Condition:
    return {"httpUntil": {"$lte": until}}


class ReportedStateStore:
    """Writes times, fields and shapes of reports into the records of devices."""

    def __init__(self, mongo: Mongo, devices: Collection) -> None:
        self._mongo = mongo
        self._devices = devices

    async def write_report_times(self, times: Mapping[int, int]) -> None:
        """Write the time (ms) of the newest report, by device, unless a newer time is stored."""
        await self._devices.bulk_write(
            [
                UpdateOne({"_id": device_id}, {"$max": {"lastUpdateTime": ts}})
                for device_id, ts in times.items()
            ],
            ordered=False,
        )

    async def write_fields(self, fields: Iterable[tuple[int, str, Any, int]]) -> None:
        """Write fields (device, field, value, ms), each unless a newer one is stored."""
        operations = [
            UpdateOne(
                {"_id": device_id, f"factTimes.{name}": {"$not": {"$gt": ts}}},
                {"$set": {name: value, f"factTimes.{name}": ts}},
            )
            for device_id, name, value, ts in fields
        ]
        if operations:
            await self._devices.bulk_write(operations, ordered=False)

    async def remove_fields_reported_at(self, times: Mapping[int, Container[int]]) -> None:
        """Remove fields that a device reported at one of its `times` (ms, by device id).

        Fields that network servers report stay.
        """
        cursor = self._devices.find({"_id": {"$in": list(times)}}, {"factTimes": 1})
        updates = [
            UpdateOne(
                {"_id": device["_id"], f"factTimes.{name}": ts},
                {"$unset": {name: "", f"factTimes.{name}": ""}},
            )
            async for device in cursor
            for name, ts in device.get("factTimes", {}).items()
            if ts in times[device["_id"]] and name not in NETWORK_REPORTED_FIELDS
        ]
        if updates:
            await self._devices.bulk_write(updates, ordered=False)

    async def find_shape_ids(self, ids: Iterable[int]) -> dict[int, str | None]:
        """Return the shape id of each device, None without a shape; unknown devices are missing."""
        cursor = self._devices.find({"_id": {"$in": list(ids)}}, {"shape": 1})
        return {device["_id"]: device.get("shape") async for device in cursor}

    async def replace_shape_ids(self, shapes: Iterable[tuple[int, str | None, str]]) -> int:
        """Replace shape ids (device, before, after); return how many devices still had `before`."""
        operations = [
            UpdateOne({"_id": device_id, "shape": before}, {"$set": {"shape": after}})
            for device_id, before, after in shapes
        ]
        return (await self._devices.bulk_write(operations, ordered=False)).matched_count

    async def is_shape_used(self, shape_id: str) -> bool:
        """Return whether a device has the shape."""
        return await self._devices.find_one({"shape": shape_id}, {"_id": 1}) is not None

    async def mark_write_only_values_erased(self, ids: Sequence[int], tsl_hash: str) -> None:
        """Record that devices hold no values that the TSL with this hash makes write-only."""
        await self._devices.update_many({"_id": {"$in": list(ids)}}, {"$set": {"erased": tsl_hash}})

    async def mark_provisioned(self, device_id: int, session: Session) -> None:
        """Record that a device received its first configuration, if it was waiting for it."""
        await self._mongo.get_session_database(session)["devices"].update_one(
            {"_id": device_id, "rpsStatus": "WAITING"},
            {"$set": {"rpsStatus": "SUCCESS"}},
            session=session,
        )
