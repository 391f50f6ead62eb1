"""The collection `devices`: whole devices, and the only module that opens it.

A document is a `Device` (`services.device.things.model`), and besides it has `grams` (see
`device_search`), `httpUntil` while it speaks HTTP, and `factTimes` (ms, by fact). What people
change is one transaction with the event that tells of it. Other queries on the same records are
its attributes: `lists`, `presence`, `notes` of what devices report, and `entity_names`.
"""

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from datetime import UTC, datetime
from typing import Any

import msgspec
from pymongo import ReturnDocument, UpdateOne

from libs.common.bus import Outbox
from libs.common.clock import now_ms
from libs.common.errors import TooManyRequests
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import LimitsCache
from libs.common.store.mongo import BulkFailed, Document, Mongo, Session
from libs.common.things import DIRECT
from services.device.things.deleted_things import RemovedThings, ThingDataStore
from services.device.things.device_queries import DeviceLists
from services.device.things.device_search import WHOLE, DevicePages, grams_of
from services.device.things.device_status import DeviceNotes, DevicePresence
from services.device.things.model import (
    ApplicationRef,
    Change,
    Device,
    DeviceChanges,
    StorageOf,
    changed,
    device_of,
    document_of,
    stored_fields,
)
from services.device.things.serial_numbers import Holder, Serials, SerialTaken
from services.device.things.specifications import ProductUsage
from services.device.things.thing_store import EntityNames
from services.device.things.visibility import Condition, deletable, owned

CHUNK = 500
"""Devices that are changed in one transaction."""
Joining = Callable[[Session], Awaitable[None]]
"""What is done in the transaction that lets devices join a group."""
_STORAGE = stored_fields(StorageOf)


class DeviceStore:
    """Reads and writes devices; one per process."""

    def __init__(
        self, mongo: Mongo, outbox: Outbox, limits: LimitsCache, values: ThingDataStore
    ) -> None:
        self._mongo = mongo
        self._outbox = outbox
        self._values = values
        self._devices = mongo.database["devices"]
        self._hot = mongo.direct["devices"]
        self.lists = DeviceLists(self._devices)
        self.presence = DevicePresence(self._devices, self._hot)
        self.notes = DeviceNotes(self._devices)
        self.entity_names = EntityNames(mongo, self._devices)
        self._quota = Quota(self._devices, limits, "devices")
        self.search = DevicePages(self._devices).find
        self._serials = Serials(mongo.database)
        self._removed = RemovedThings(mongo.database)
        self._usage = ProductUsage(mongo.database)
        self.used = self._quota.used
        """How many a tenant has, for `report_use`."""

    async def find(
        self, tenant: str, device_id: int, application_id: int | None = None
    ) -> Device | None:
        """The device of the tenant; with an application only one of it."""
        return await self._find(owned(tenant, device_id, application_id))

    async def find_all(
        self, tenant: str, ids: Sequence[int], application_id: int | None = None
    ) -> list[Device]:
        """Devices of the tenant, or of an application, in the order of ids."""
        query = owned(tenant, {"$in": list(ids)}, application_id)
        return await self._read(self._devices.find(query, WHOLE, sort=[("_id", 1)]))

    async def find_deletable(
        self, tenant: str, device_id: int, application_id: int
    ) -> Device | None:
        """The device, when the application may delete it."""
        return await self._find(deletable(tenant, device_id, application_id))

    async def of_application(self, tenant: str, application_id: int, limit: int) -> list[Device]:
        """Some devices of an application."""
        query = {"tenant": tenant, "application.applicationId": application_id}
        return await self._read(self._devices.find(query, WHOLE, limit=limit))

    async def with_id(self, device_id: int) -> Device | None:
        """The device, whoever it belongs to."""
        return await self._find({"_id": device_id})

    async def with_serials(self, keys: Collection[str]) -> list[Device]:
        """Devices by SN in upper case."""
        return await self._read(self._devices.find({"snKey": {"$in": list(keys)}}, WHOLE))

    async def beyond_limit(self, tenant: str, wanted: int) -> tuple[int, TooManyRequests]:
        """How many of `wanted` more devices a tenant may not have, and why."""
        return await self._quota.beyond(tenant, wanted)

    async def rps_serials(self, keys: Collection[str]) -> set[str]:
        """Those of some SNs (in upper case) that RPS records hold."""
        return await self._serials.records(keys)

    async def with_serial(self, key: str) -> tuple[Holder | None, Device | None]:
        """What holds the SN, and the device when it is one."""
        device = await self._find({"snKey": key})
        return ("device", device) if device else (await self._serials.holder(key), None)

    async def with_identifier(
        self, tenant: str, integration: str, identifier: str
    ) -> Device | None:
        """The device that an integration calls so."""
        return await self._find(
            {"tenant": tenant, "integration": integration, "identifier": identifier}
        )

    async def with_identifiers(
        self, tenant: str, integration: str, identifiers: Iterable[str]
    ) -> list[Device]:
        """Devices by what their integration calls them."""
        some = {"$in": list(identifiers)}
        query = {"tenant": tenant, "integration": integration, "identifier": some}
        return await self._read(self._devices.find(query))

    async def of_integration(self, integration: str, after: int, limit: int) -> list[Device]:
        """Devices of an integration in all tenants, by id, behind `after`."""
        query = {"integration": integration, "_id": {"$gt": after}}
        return await self._read(self._devices.find(query, WHOLE, sort=[("_id", 1)], limit=limit))

    async def _find(self, query: Condition) -> Device | None:
        document = await self._devices.find_one(query, WHOLE)
        return None if document is None else device_of(document)

    async def _read(self, cursor: Any) -> list[Device]:
        return msgspec.convert(await cursor.to_list(None), list[Device])

    # What people change: with an event.

    async def insert(self, devices: Sequence[Device], also: Joining | None = None) -> None:
        """Write new devices of a tenant, all or none, and do what goes with them.

        Raises `SerialTaken` when an SN has a holder, `TooManyRequests` when the tenant would have
        more than it may, `InvalidInput` for a model that has gone meanwhile.
        """
        for device in devices:
            await self._quota.take(device.tenant)

        async def work(session: Session) -> Sequence[Device]:
            await self._serials.claim([one.sn_key for one in devices], "device", session)
            await self._usage.tie_devices(devices, session)
            documents = [
                document_of(one) | {"grams": grams_of(one.name, one.sn_key)} for one in devices
            ]
            await self._devices.insert_many(documents, session=session)
            if also is not None:
                await also(session)
            return devices

        try:
            await self._change_all(work, "added")
        except BulkFailed as error:
            raise SerialTaken from error

    async def attach(self, device: Device, changes: DeviceChanges, *, other: bool) -> Device | None:
        """Give a device that is nobody's to an application; None when it is somebody's meanwhile.

        To an `other` one than it belonged to last it comes without what it has reported. Raises
        `SerialTaken` when its SN has an RPS record.
        """
        free = {
            "_id": device.id,
            "application": None,
            "userId": None,
            "integration": DIRECT,
            "removedFrom": device.removed_from,
        }
        end = {"removedFrom": ""}
        given: Document = {}
        if other:
            given["ownedSince"] = now_ms()
            end |= {"electricity": "", "factTimes.electricity": "", "lastUpdateTime": ""}

        async def also(found: Device, session: Session) -> None:
            await self._serials.take_up(found.sn_key, session)
            if other:
                await self._values.delete_thing_data(found.id, session)

        return await self._set(free, changes, "added", given=given, end=end, also=also)

    async def update(
        self,
        tenant: str,
        device_id: int,
        changes: DeviceChanges,
        application_id: int | None = None,
    ) -> Device | None:
        """Change a device of the tenant, or of an application; None when there is none."""
        query = owned(tenant, device_id, application_id)
        return await self._set(query, changes, "updated")

    async def change_each(
        self,
        tenant: str,
        ids: Sequence[int],
        condition: Condition,
        change: Callable[[Device], DeviceChanges | None],
        also: Joining | None = None,
    ) -> list[int]:
        """Change those of `ids` that meet a condition, and return which they are.

        `CHUNK` are changed in a transaction, in each of which `also` runs. What `change` answers
        None for stays as it is; of the others events tell.
        """
        found: list[int] = []
        for first in range(0, len(ids), CHUNK):
            query = {"_id": {"$in": list(ids[first : first + CHUNK])}, "tenant": tenant}

            async def work(
                session: Session, query: Condition = query
            ) -> tuple[list[int], list[Document]]:
                if also is not None:
                    await also(session)
                cursor = self._devices.find({"$and": [query, condition]}, WHOLE, session=session)
                devices = await self._read(cursor)
                changes = {device.id: change(device) for device in devices}
                told = await self._write_each(devices, changes, session)
                return [device.id for device in devices], told

            part, entries = await self._mongo.transaction(work)
            await self._outbox.relay(entries)
            found += part
        return found

    async def _write_each(
        self,
        devices: Sequence[Device],
        changes: Mapping[int, DeviceChanges | None],
        session: Session,
    ) -> list[Document]:
        now = datetime.now(UTC)
        operations = [
            UpdateOne({"_id": one}, {"$set": msgspec.to_builtins(given) | {"updatedAt": now}})
            for one, given in changes.items()
            if given is not None
        ]
        if not operations:
            return []
        await self._devices.bulk_write(operations, ordered=False, session=session)
        told = [
            changed(device.changed(given), "updated")
            for device in devices
            if (given := changes[device.id]) is not None
        ]
        return await self._outbox.add(told, session)

    async def ungroup(self, tenant: str, group: int) -> None:
        """No device is in a group that has ended; no event tells: nobody is granted it."""
        query = {"tenant": tenant, "group": group}
        await self._devices.update_many(query, {"$unset": {"group": ""}})

    async def give(self, tenant: str, device_id: int, application: ApplicationRef) -> Device | None:
        """Give a device that no application has to one, as it stands; None when one has it.

        Raises `SerialTaken` when its SN has an RPS record.
        """

        async def also(found: Device, session: Session) -> None:
            await self._serials.take_up(found.sn_key, session)

        free = {**owned(tenant, device_id), "application": None}
        changes = DeviceChanges(application=application)
        return await self._set(free, changes, "added", end={"removedFrom": ""}, also=also)

    async def detach(
        self, device: Device, application_id: int, user_id: int | None = None
    ) -> Device | None:
        """Take a device from its application; None when it does not belong to it.

        It is the users' when they gave it, or when one of them (`user_id`) takes it; else nobody's.
        """
        query = owned(device.tenant, device.id, application_id)
        changes = DeviceChanges(application=None)
        if device.given:
            return await self._set(query, changes, "removed")
        if user_id is not None:
            return await self._set(query, changes, "removed", given={"userId": user_id})

        async def also(found: Device, session: Session) -> None:
            await self._serials.lay_down(found.sn_key, found.tenant, session)

        given = {"removedFrom": application_id}
        return await self._set(query, changes, "removed", given=given, also=also)

    async def delete(
        self, tenant: str, device_id: int, application_id: int | None = None
    ) -> Device | None:
        """Delete a device with its latest values; the rest of it goes within the hour.

        An application may also delete a device that is nobody's and was its own before.
        """
        query = deletable(tenant, device_id, application_id)

        async def work(session: Session) -> Device | None:
            document = await self._devices.find_one_and_delete(query, WHOLE, session=session)
            if document is None:
                return None
            device = device_of(document)
            await self._serials.release(device.sn_key, session)
            await self._values.delete_thing_data(device.id, session)
            await self._removed.add([device.id], session)
            return device

        return await self._change(work, "deleted")

    async def _set(
        self,
        query: Condition,
        changes: DeviceChanges,
        change: Change,
        *,
        given: Document | None = None,
        end: Document | None = None,
        also: Callable[[Device, Session], Awaitable[None]] | None = None,
    ) -> Device | None:
        """Change the device of a condition, and do what goes with it in the same transaction."""
        given = msgspec.to_builtins(changes) | (given or {}) | {"updatedAt": datetime.now(UTC)}
        update = {"$set": given, **({"$unset": end} if end else {})}

        async def work(session: Session) -> Device | None:
            document = await self._devices.find_one_and_update(
                query,
                update,
                WHOLE,
                return_document=ReturnDocument.AFTER,
                session=session,
            )
            if document is None:
                return None
            device = device_of(document)
            if "name" in given:
                grams = {"$set": {"grams": grams_of(device.name, device.sn_key)}}
                await self._devices.update_one({"_id": device.id}, grams, session=session)
            if "tslVersion" in given:
                await self._usage.tie_devices([device], session)
            if also is not None:
                await also(device, session)
            return device

        return await self._change(work, change)

    async def _change(
        self, work: Callable[[Session], Awaitable[Device | None]], change: Change
    ) -> Device | None:
        """Run `work` and write the event of the device it returns, in one transaction."""

        async def some(session: Session) -> Sequence[Device]:
            device = await work(session)
            return [] if device is None else [device]

        return next(iter(await self._change_all(some, change)), None)

    async def _change_all(
        self, work: Callable[[Session], Awaitable[Sequence[Device]]], change: Change
    ) -> Sequence[Device]:
        """The same with many devices."""

        async def whole(session: Session) -> tuple[Sequence[Device], list[Document]]:
            devices = await work(session)
            entries = [changed(one, change) for one in devices]
            return devices, await self._outbox.add(entries, session)

        devices, entries = await self._mongo.transaction(whole)
        await self._outbox.relay(entries)
        return devices

    async def storage(
        self, tenant: str, device_id: int, application_id: int | None = None
    ) -> StorageOf | None:
        """Whether the history of a device is kept; None when there is no such device."""
        query = owned(tenant, device_id, application_id)
        document = await self._hot.find_one(query, _STORAGE)
        return None if document is None else msgspec.convert(document, StorageOf)
