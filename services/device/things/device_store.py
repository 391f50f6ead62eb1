"""The collection `devices`: reads and writes whole devices.

A document is a `Device` (`services.device.things.model`) with additional fields: `grams` (see
`device_search`), `httpAt` and `httpUntil` (last contact over HTTP, end of the HTTP lifetime).
`factTimes` has the time (ms) of each reported field, `erased` the hash of an erased TSL. Changes by
users and applications are written in one transaction with their event. `queries`, `presence`,
`reported_state` and `entity_names` hold further operations on the same records.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from pymongo import ReturnDocument, UpdateOne

from libs.common.bus import Outbox
from libs.common.clock import now_ms
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import LimitsCache
from libs.common.store.mongo import Aggregation, BulkFailed, Database, Document, Mongo, Session
from libs.common.things import DIRECT_INTEGRATION
from services.device.things.deleted_things import DeletedThings, ThingDataStore
from services.device.things.device_queries import ADD_TSL_HASH_STAGES, DeviceQueries
from services.device.things.device_search import WITHOUT_NGRAMS, DeviceSearch, extract_ngrams
from services.device.things.device_status import DevicePresence, ReportedStateStore
from services.device.things.model import (
    ApplicationRef,
    Device,
    DeviceChangeKind,
    DeviceChanges,
    StorageSettings,
    change_event,
    device_document,
    device_from_document,
    projection_for,
)
from services.device.things.serial_numbers import SerialHolder, SerialStore, SerialTaken
from services.device.things.specifications import ProductLocks
from services.device.things.thing_store import EntityNames
from services.device.things.visibility import (
    Condition,
    deletable_condition,
    identifier_condition,
    owner_condition,
)

DEVICES_PER_TRANSACTION = 500
"""Maximum devices that are changed in one transaction."""
TransactionStep = Callable[[Session], Awaitable[None]]
"""A step that runs in the transaction which adds devices or puts them into a group."""
_STORAGE_FIELDS = projection_for(StorageSettings)


async def sample_device_ids(database: Database, number: int) -> list[int]:
    """Return the ids of a random sample of `number` devices, or of fewer."""
    stages: list[Document] = [{"$sample": {"size": number}}, {"$project": {"_id": 1}}]
    return [device["_id"] async for device in await database["devices"].aggregate(stages)]


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
        self.queries = DeviceQueries(self._devices)
        self.presence = DevicePresence(self._devices, self._hot)
        self.reported_state = ReportedStateStore(mongo, self._devices)
        self.entity_names = EntityNames(mongo, self._devices)
        self._quota = Quota(self._devices, limits, "devices")
        self.search = DeviceSearch(self._devices).find
        self._serials = SerialStore(mongo.database)
        self._removed = DeletedThings(mongo.database)
        self._usage = ProductLocks(mongo.database)
        self.count_beyond_limit = self._quota.find_excess
        self.filter_rps_serials = self._serials.filter_rps_records
        self.count_used = self._quota.count_used
        """Returns the number of devices of a tenant, for `answer_usage_requests`."""

    async def find(
        self, tenant: str, device_id: int, application_id: int | None = None
    ) -> Device | None:
        """Return the device if it is of the tenant and, if given, of the application."""
        return await self._find(owner_condition(tenant, device_id, application_id))

    async def find_all(
        self, tenant: str, ids: Sequence[int], application_id: int | None = None
    ) -> list[Device]:
        """Return those of `ids` that the tenant or, if given, the application owns, by id."""
        query = owner_condition(tenant, {"$in": list(ids)}, application_id)
        return await self._read(self._devices.find(query, WITHOUT_NGRAMS, sort=[("_id", 1)]))

    async def find_deletable(
        self, tenant: str, device_id: int, application_id: int
    ) -> Device | None:
        """Return the device if the application may delete it."""
        return await self._find(deletable_condition(tenant, device_id, application_id))

    async def find_by_id(self, device_id: int) -> Device | None:
        """Return the device with this id of any tenant."""
        return await self._find({"_id": device_id})

    async def find_by_serials(self, keys: Collection[str]) -> list[Device]:
        """Return the devices with these SNs (upper case)."""
        return await self._read(self._devices.find({"snKey": {"$in": list(keys)}}, WITHOUT_NGRAMS))

    async def find_holder(self, key: str) -> tuple[SerialHolder | None, Device | None]:
        """Return the kind of holder of an SN, and the device that has it, if any."""
        device = await self._find({"snKey": key})
        return ("device", device) if device else (await self._serials.find_holder(key), None)

    async def find_by_identifier(
        self, tenant: str, integration: str, identifier: str
    ) -> Device | None:
        """Return the device with this identifier of its integration."""
        return await self._find(identifier_condition(tenant, integration, [identifier]))

    async def find_by_identifiers(
        self, tenant: str, integration: str, identifiers: Iterable[str]
    ) -> list[Device]:
        """Return the devices with these identifiers of their integration."""
        query = identifier_condition(tenant, integration, identifiers)
        return await self._read(self._devices.find(query))

    async def _find(self, query: Condition) -> Device | None:
        document = await self._devices.find_one(query, WITHOUT_NGRAMS)
        return None if document is None else device_from_document(document)

    async def _read(self, cursor: Any) -> list[Device]:
        return msgspec.convert(await cursor.to_list(None), list[Device])

    async def insert(
        self, devices: Sequence[Device], extra_step: TransactionStep | None = None
    ) -> None:
        """Insert all devices, or none; run `extra_step` in the same transaction.

        Raises `SerialTaken` when an SN has a holder, `TooManyRequests` when the tenant would exceed
        its limit, `InvalidInput` when a product was deleted meanwhile.
        """
        for device in devices:
            await self._quota.reserve(device.tenant)

        async def insert_devices(session: Session) -> Sequence[Device]:
            await self._serials.claim([device.sn_key for device in devices], "device", session)
            await self._usage.lock_products_of_devices(devices, session)
            documents = [
                device_document(device) | {"grams": extract_ngrams(device.name, device.sn_key)}
                for device in devices
            ]
            await self._devices.insert_many(documents, session=session)
            if extra_step is not None:
                await extra_step(session)
            return devices

        try:
            await self._write_all_with_events(insert_devices, "added")
        except BulkFailed as error:
            raise SerialTaken from error

    async def add_unassigned_to_application(
        self, device: Device, changes: DeviceChanges, *, is_new_owner: bool
    ) -> Device | None:
        """Assign an unassigned device to an application; None if it was assigned meanwhile.

        With `is_new_owner`, latest values are deleted, and history of the previous application is
        hidden. `changes` contain the application. Raises `SerialTaken` when an RPS record has the
        SN.
        """
        free = {
            "_id": device.id,
            "application": None,
            "userId": None,
            "integration": DIRECT_INTEGRATION,
            "removedFrom": device.removed_from,
        }
        unset = {"removedFrom": ""}
        extra: Document = {}
        if is_new_owner:
            extra["ownedSince"] = now_ms()
            unset |= {"electricity": "", "factTimes.electricity": "", "lastUpdateTime": ""}

        async def assign_sn(device: Device, session: Session) -> None:
            await self._serials.mark_assigned(device.sn_key, session)
            if is_new_owner:
                await self._values.delete_thing_data(device.id, session)

        return await self._write(
            free, changes, "added", extra=extra, unset=unset, extra_step=assign_sn
        )

    async def update(
        self,
        tenant: str,
        device_id: int,
        changes: DeviceChanges,
        application_id: int | None = None,
    ) -> Device | None:
        """Change a device of the tenant or of an application; None if it does not exist."""
        query = owner_condition(tenant, device_id, application_id)
        return await self._write(query, changes, "updated")

    async def change_each(
        self,
        tenant: str,
        ids: Sequence[int],
        condition: Condition,
        change: Callable[[Device], DeviceChanges | None],
        extra_step: TransactionStep | None = None,
    ) -> list[int]:
        """Change those of `ids` that meet a condition; return the ids of all that meet it.

        Each transaction changes up to `DEVICES_PER_TRANSACTION` devices and runs `extra_step`.
        Devices for which `change` returns None stay as they are; the others get an event.
        """
        changed_ids: list[int] = []
        for first in range(0, len(ids), DEVICES_PER_TRANSACTION):
            chunk = list(ids[first : first + DEVICES_PER_TRANSACTION])
            query = {"_id": {"$in": chunk}, "tenant": tenant}

            async def change_chunk(
                session: Session, query: Condition = query
            ) -> tuple[list[int], list[Document]]:
                if extra_step is not None:
                    await extra_step(session)
                cursor = self._devices.find(
                    {"$and": [query, condition]}, WITHOUT_NGRAMS, session=session
                )
                devices = await self._read(cursor)
                changes = {device.id: change(device) for device in devices}
                entries = await self._write_each(devices, changes, session)
                return [device.id for device in devices], entries

            part, entries = await self._mongo.transaction(change_chunk)
            await self._outbox.publish_stored(entries)
            changed_ids += part
        return changed_ids

    async def _write_each(
        self,
        devices: Sequence[Device],
        changes: Mapping[int, DeviceChanges | None],
        session: Session,
    ) -> list[Document]:
        now = datetime.now(UTC)
        operations = [
            UpdateOne({"_id": device_id}, {"$set": msgspec.to_builtins(made) | {"updatedAt": now}})
            for device_id, made in changes.items()
            if made is not None
        ]
        if not operations:
            return []
        await self._devices.bulk_write(operations, ordered=False, session=session)
        events = [
            change_event(device.with_changes(made), "updated")
            for device in devices
            if (made := changes[device.id]) is not None
        ]
        return await self._outbox.store_entries(events, session)

    async def empty_group(self, tenant: str, group: int) -> None:
        """Remove all devices from a deleted group, without events."""
        query = {"tenant": tenant, "group": group}
        await self._devices.update_many(query, {"$unset": {"group": ""}})

    async def assign(
        self, tenant: str, device_id: int, application: ApplicationRef
    ) -> Device | None:
        """Assign a device to an application; None if it does not exist or an application owns it.
        Values and history stay. Raises `SerialTaken` when an RPS record has its SN.
        """

        async def assign_sn(device: Device, session: Session) -> None:
            await self._serials.mark_assigned(device.sn_key, session)

        free = {**owner_condition(tenant, device_id), "application": None}
        changes, unset = DeviceChanges(application=application), {"removedFrom": ""}
        return await self._write(free, changes, "added", unset=unset, extra_step=assign_sn)

    async def remove_from_application(
        self, device: Device, application_id: int, user_id: int | None = None
    ) -> Device | None:
        """Remove a device from the application; None if the application does not own it.

        The device then belongs to the users if they added it, or if a user (`user_id`) removes it.
        Otherwise it becomes unassigned.
        """
        query = owner_condition(device.tenant, device.id, application_id)
        changes = DeviceChanges(application=None)
        if device.is_owned_by_users:
            return await self._write(query, changes, "removed")
        if user_id is not None:
            return await self._write(query, changes, "removed", extra={"userId": user_id})

        async def unassign_sn(device: Device, session: Session) -> None:
            await self._serials.mark_device_unassigned(device.sn_key, device.tenant, session)

        extra = {"removedFrom": application_id}
        return await self._write(query, changes, "removed", extra=extra, extra_step=unassign_sn)

    async def delete(
        self, tenant: str, device_id: int, application_id: int | None = None
    ) -> Device | None:
        """Delete a device and its latest values; None if it does not exist.

        A sweep deletes its other data within an hour. An application may also delete an unassigned
        device that it owned last.
        """
        query = deletable_condition(tenant, device_id, application_id)

        async def delete_device(session: Session) -> Device | None:
            document = await self._devices.find_one_and_delete(
                query, WITHOUT_NGRAMS, session=session
            )
            if document is None:
                return None
            device = device_from_document(document)
            await self._serials.release(device.sn_key, session)
            await self._values.delete_thing_data(device.id, session)
            await self._removed.add([device.id], session)
            return device

        return await self._write_with_event(delete_device, "deleted")

    async def _write(
        self,
        query: Condition,
        changes: DeviceChanges,
        change: DeviceChangeKind,
        *,
        extra: Document | None = None,
        unset: Document | None = None,
        extra_step: Callable[[Device, Session], Awaitable[None]] | None = None,
    ) -> Device | None:
        """Change the device that meets a condition, and run `extra_step`, in one transaction.

        Return the changed device; None if no device meets the condition.
        """
        fields = msgspec.to_builtins(changes) | (extra or {}) | {"updatedAt": datetime.now(UTC)}
        update = {"$set": fields, **({"$unset": unset} if unset else {})}

        async def update_device(session: Session) -> Device | None:
            document = await self._devices.find_one_and_update(
                query,
                update,
                WITHOUT_NGRAMS,
                return_document=ReturnDocument.AFTER,
                session=session,
            )
            if document is None:
                return None
            device = device_from_document(document)
            if "name" in fields:
                grams = {"$set": {"grams": extract_ngrams(device.name, device.sn_key)}}
                await self._devices.update_one({"_id": device.id}, grams, session=session)
            if "tslVersion" in fields:
                await self._usage.lock_products_of_devices([device], session)
            if extra_step is not None:
                await extra_step(device, session)
            return device

        return await self._write_with_event(update_device, change)

    async def _write_with_event(
        self, write: Callable[[Session], Awaitable[Device | None]], change: DeviceChangeKind
    ) -> Device | None:
        """Run `write` and add the event of the device that it returns, in one transaction."""

        async def write_one(session: Session) -> Sequence[Device]:
            device = await write(session)
            return [] if device is None else [device]

        return next(iter(await self._write_all_with_events(write_one, change)), None)

    async def _write_all_with_events(
        self, write: Callable[[Session], Awaitable[Sequence[Device]]], change: DeviceChangeKind
    ) -> Sequence[Device]:
        """Run `write` and add the events of its devices, in one transaction."""

        async def write_with_events(session: Session) -> tuple[Sequence[Device], list[Document]]:
            devices = await write(session)
            entries = [change_event(device, change) for device in devices]
            return devices, await self._outbox.store_entries(entries, session)

        devices, entries = await self._mongo.transaction(write_with_events)
        await self._outbox.publish_stored(entries)
        return devices

    def storage_settings_query(
        self, tenant: str, device_id: int, application_id: int | None = None
    ) -> Aggregation:
        """Return the aggregation that finds the `StorageSettings` of a device."""
        owner = owner_condition(tenant, device_id, application_id)
        return self._hot, [{"$match": owner}, {"$project": _STORAGE_FIELDS}, *ADD_TSL_HASH_STAGES]
