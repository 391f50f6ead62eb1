"""The collection `devices`, and the only module that opens it.

A document is a `Device` (`services.device.things.model`), and besides it has `grams` (see
`services.device.things.grams`), `httpUntil` while it speaks HTTP, and `factTimes` (ms, by fact).
What people change is one transaction with the event that tells of it; what devices change
themselves (facts, presence, shapes) says nothing here.
"""

from collections import Counter
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pymongo import ReturnDocument, UpdateOne, WriteConcern

from libs.common.bus import Outbox
from libs.common.clock import now_ms
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import KnownLimits
from libs.common.store.mongo import BulkFailed, Document, Mongo, Session
from libs.common.things import DIRECT, GENERIC
from services.device.things.errors import unknown_model
from services.device.things.grams import grams_of
from services.device.things.latest import LatestValues
from services.device.things.messages import Change, changed
from services.device.things.model import (
    Device,
    DeviceChanges,
    ListedDevice,
    ModelKey,
    PresentDevice,
    Standing,
    StorageOf,
    device_of,
    document_of,
    model_key,
    stored_fields,
)
from services.device.things.pages import WHOLE, Condition, DevicePages, Order, Query
from services.device.things.removed import RemovedThings
from services.device.things.serials import Holder, Serials, SerialTaken
from services.device.things.usage import ProductUsage

LARGEST_BATCH = 1000
"""Most devices of one answer of MongoDB while they are walked through."""
CHUNK = 500
"""Devices that are changed in one transaction."""
LOCKED_MS = 250
"""How long a report over HTTP waits for the device's record, and a connection with it."""
Joining = Callable[[Session], Awaitable[None]]
"""What is done in the transaction that lets devices join a group."""
_LISTED = stored_fields(ListedDevice)
_PRESENT = stored_fields(PresentDevice)
_STANDING = stored_fields(Standing)
_STORAGE = stored_fields(StorageOf)
_LISTED_FORM = list[ListedDevice]
_PRESENT_FORM = list[PresentDevice]


@dataclass(frozen=True, slots=True)
class CountedModel:
    """Devices of one integration and model."""

    integration: str
    model: ModelKey
    devices: int


class DeviceStore:
    """Reads and writes devices; one per process."""

    def __init__(
        self, mongo: Mongo, outbox: Outbox, limits: KnownLimits, latest: LatestValues
    ) -> None:
        self._mongo = mongo
        self._outbox = outbox
        self._latest = latest
        self._devices = mongo.database["devices"]
        self._hot = mongo.direct["devices"]
        self._heard = self._hot.with_options(write_concern=WriteConcern(1))
        """No thread waits for a record that is locked; a note that is lost comes again."""
        self._quota = Quota(self._devices, limits, "devices")
        self.search = DevicePages(self._devices).find
        self._serials = Serials(mongo.database)
        self._removed = RemovedThings(mongo.database)
        self._usage = ProductUsage(mongo.database)
        self.used = self._quota.used
        """How many a tenant has, for `report_use`."""

    # Whole devices.

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

    async def applications(self, tenant: str) -> list[int]:
        """The applications that have devices."""
        found = await self._devices.distinct("application.applicationId", {"tenant": tenant})
        return list(found)

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
            await self._tie(devices, session)
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
                await self._latest.forget(found.id, session)

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

    async def count_groups(
        self, tenant: str, groups: Collection[int], condition: Condition
    ) -> dict[int, int]:
        """How many devices of groups meet a condition, by group; one that has none is missing."""
        query = _all_of(tenant, [{"group": {"$in": list(groups)}}, condition])
        counted = {"$group": {"_id": "$group", "devices": {"$sum": 1}}}
        rows = await self._devices.aggregate([{"$match": query}, counted], hint="group")
        return {row["_id"]: row["devices"] async for row in rows}

    async def detach(self, tenant: str, device_id: int, application_id: int) -> Device | None:
        """Take a device from its application; None when it does not belong to it."""
        query = owned(tenant, device_id, application_id)

        async def also(found: Device, session: Session) -> None:
            await self._serials.lay_down(found.sn_key, tenant, session)

        given = {"removedFrom": application_id}
        changes = DeviceChanges(application=None)
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
            await self._latest.forget(device.id, session)
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
                await self._tie([device], session)
            if also is not None:
                await also(device, session)
            return device

        return await self._change(work, change)

    async def _tie(self, devices: Iterable[Device], session: Session) -> None:
        models: dict[tuple[str, str], list[str]] = {}
        for one in devices:
            if one.model != GENERIC:
                models.setdefault((one.tenant, one.model), []).append(one.sn_key)
        for (tenant, model), keys in models.items():
            if not await self._usage.tie(tenant, model, keys, session):
                raise unknown_model(model)

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

    # Lists, entities, names.

    async def listed(self, tenant: str, ids: Iterable[int]) -> list[ListedDevice]:
        """Devices of the tenant by id."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant}
        found = await self._devices.find(query, _LISTED).to_list(None)
        return msgspec.convert(found, _LISTED_FORM)

    async def listed_with(
        self, tenant: str, integration: str, identifiers: Iterable[str]
    ) -> list[ListedDevice]:
        """Devices by what their integration calls them."""
        some = {"$in": list(identifiers)}
        query = {"tenant": tenant, "integration": integration, "identifier": some}
        found = await self._devices.find(query, _LISTED).to_list(None)
        return msgspec.convert(found, _LISTED_FORM)

    async def walk(
        self,
        tenant: str,
        conditions: Sequence[Condition],
        order: Order,
        *,
        skip: int,
        expected: int,
        hint: str | None,
    ) -> AsyncGenerator[ListedDevice, None]:
        """Devices that meet all conditions, in order; some `expected` of them will be read."""
        options: dict[str, Any] = {"hint": hint} if hint else {}
        cursor = self._devices.find(
            _all_of(tenant, conditions),
            _LISTED,
            sort=order,
            skip=skip,
            batch_size=max(min(expected + 1, LARGEST_BATCH), 2),
            **options,
        )
        try:
            async for document in cursor:
                yield msgspec.convert(document, ListedDevice)
        finally:
            await cursor.close()

    async def count_models(self, tenant: str, conditions: Sequence[Condition]) -> Counter[ModelKey]:
        """How many devices meet all conditions, by model."""
        few = any("_id" in condition or "group" in condition for condition in conditions)
        options: dict[str, Any] = {} if few else {"hint": "model"}
        groups = await self._devices.aggregate(
            [{"$match": _all_of(tenant, conditions)}, _grouped("model", "tslVersion", "shape")],
            **options,
        )
        found: Counter[ModelKey] = Counter()
        async for group in groups:
            found[_model_of(group)] += group["devices"]
        return found

    async def counted_models(self, tenant: str) -> list[CountedModel]:
        """The devices of a tenant, counted by integration and model."""
        grouped = _grouped("integration", "model", "tslVersion", "shape")
        groups = await self._devices.aggregate([{"$match": {"tenant": tenant}}, grouped])
        return [
            CountedModel(
                group["_id"].get("integration", DIRECT), _model_of(group), group["devices"]
            )
            async for group in groups
        ]

    async def integrations(self, tenant: str) -> list[str]:
        """The integrations that devices of the tenant belong to."""
        return list(await self._devices.distinct("integration", {"tenant": tenant}))

    async def find_documents(
        self, query: Query, fields: Mapping[str, int], *, counted: bool
    ) -> tuple[list[Document], int]:
        """Some fields of a page, and where it is `counted` how many devices match."""
        page = self._devices.find(
            query.filter, fields, sort=query.order, skip=query.skip, limit=query.limit
        )
        found = await page.to_list(None)
        return found, await self._devices.count_documents(query.filter) if counted else 0

    # Products, history, retention.

    async def uses(self, tenant: str, model: str, version: str | None, session: Session) -> bool:
        """Whether a device is of a product, or of a version of it."""
        query = {"tenant": tenant, "model": model}
        if version is not None:
            query["tslVersion"] = version
        return await self._devices.find_one(query, {"_id": 1}, session=session) is not None

    async def storage(
        self, tenant: str, device_id: int, application_id: int | None = None
    ) -> StorageOf | None:
        """Whether the history of a device is kept; None when there is no such device."""
        query = owned(tenant, device_id, application_id)
        document = await self._hot.find_one(query, _STORAGE)
        return None if document is None else msgspec.convert(document, StorageOf)

    async def tenants(self) -> list[str]:
        """The tenants that have devices."""
        return list(await self._devices.distinct("tenant"))

    async def tenants_of(self, ids: Iterable[int]) -> dict[int, str]:
        """The tenants of devices, by id."""
        found = self._devices.find({"_id": {"$in": list(ids)}}, {"tenant": 1})
        return {device["_id"]: device["tenant"] async for device in found}

    async def models_after(
        self, tenant: str, models: Collection[str] | None, after: int, limit: int
    ) -> list[tuple[int, str]]:
        """Devices by id behind `after` with their product; of all products, or of `models`."""
        query: Condition = {"tenant": tenant, "_id": {"$gt": after}}
        if models is not None:
            query["model"] = {"$in": list(models)}
        found = self._devices.find(query, {"model": 1}, sort=[("_id", 1)], limit=limit)
        return [(one["_id"], one["model"]) async for one in found]

    async def of_product(self, tenant: str, model: str, after: int, limit: int) -> list[int]:
        """Ids of the devices of a product behind an id, in order."""
        query = {"tenant": tenant, "model": model, "_id": {"$gt": after}}
        found = self._devices.find(query, {"_id": 1}, sort=[("_id", 1)], limit=limit)
        return [one["_id"] async for one in found]

    async def ids_that(self, tenant: str, condition: Condition) -> list[int]:
        """Ids of the devices that meet a condition of grants."""
        query = {"tenant": tenant, **condition}
        return [one["_id"] async for one in self._devices.find(query, {"_id": 1})]

    # What devices report.

    async def note_reports(self, times: Mapping[int, int]) -> None:
        """Note times (ms) of reports, by device; an older one changes nothing."""
        await self._devices.bulk_write(
            [
                UpdateOne({"_id": one}, {"$max": {"lastUpdateTime": ts}})
                for one, ts in times.items()
            ],
            ordered=False,
        )

    async def note_facts(self, facts: Iterable[tuple[int, str, Any, int]]) -> None:
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

    async def provisioned(self, device_id: int, session: Session) -> None:
        """A device that was added with a first configuration has taken one."""
        await self._devices.update_one(
            {"_id": device_id, "rpsStatus": "WAITING"},
            {"$set": {"rpsStatus": "SUCCESS"}},
            session=session,
        )

    # Presence.

    async def standing(self, ids: Iterable[int]) -> dict[int, Standing]:
        """Whose devices are and whether they are connected; one that is gone is missing."""
        found = self._devices.find({"_id": {"$in": list(ids)}}, _STANDING)
        return {row["_id"]: msgspec.convert(row, Standing) async for row in found}

    async def present(self, keys: Collection[str], session: Session) -> list[PresentDevice]:
        """Devices by SN in upper case."""
        return await self._present({"snKey": {"$in": list(keys)}}, session)

    async def present_with_id(self, device_id: int, session: Session) -> list[PresentDevice]:
        """The device, when it is there."""
        return await self._present({"_id": device_id}, session)

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

    async def heard_again(
        self, device_id: int, at: datetime, life: timedelta, session: Session
    ) -> None:
        """Make a transaction see what `heard` has written.

        Its snapshot is one that a majority has, and `heard` does not wait for a majority: written
        again, what the snapshot lacks is a conflict, and the transaction begins anew.
        """
        await self._devices.update_one({"_id": device_id}, _heard_at(at, life), session=session)

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

    async def set_status(self, ids: Collection[int], status: str, session: Session) -> None:
        """Change the connection state of devices, from now on."""
        change = {"connectStatus": status, "connectChanged": datetime.now(UTC)}
        await self._devices.update_many(
            {"_id": {"$in": list(ids)}}, {"$set": change}, session=session
        )

    async def _present(self, query: Condition, session: Session) -> list[PresentDevice]:
        found = await self._devices.find(query, _PRESENT, session=session).to_list(None)
        return msgspec.convert(found, _PRESENT_FORM)


def owned(tenant: str, device_id: int | Condition, application_id: int | None = None) -> Condition:
    """The condition that a device, or some, belong to a tenant and perhaps an application."""
    query: Condition = {"_id": device_id, "tenant": tenant}
    if application_id is not None:
        query["application.applicationId"] = application_id
    return query


def deletable(tenant: str, device_id: int, application_id: int | None) -> Condition:
    """The condition that the tenant, or an application of it, may delete a device."""
    if application_id is None:
        return owned(tenant, device_id)
    mine = {"application.applicationId": application_id}
    former = {"application": None, "removedFrom": application_id}
    return {**owned(tenant, device_id), "$or": [mine, former]}


def _all_of(tenant: str, conditions: Sequence[Condition]) -> Condition:
    """One condition of many; the plain one that indexes know best comes first."""
    given = [condition for condition in conditions if condition]
    return {"tenant": tenant, **({"$and": given} if given else {})}


def _grouped(*fields: str) -> Condition:
    """The stage that counts devices by fields."""
    return {"$group": {"_id": {name: f"${name}" for name in fields}, "devices": {"$sum": 1}}}


def _model_of(group: Document) -> ModelKey:
    of = group["_id"]
    return model_key(of["model"], of["tslVersion"], of.get("shape"))


def _heard_at(at: datetime, life: timedelta) -> list[Document]:
    """The change of a record when a device is heard: an older note changes nothing.

    A life that has become shorter counts from its next word on.
    """
    newer = {"$gte": [at, {"$ifNull": ["$httpAt", at]}]}
    until = {"$cond": [newer, at + life, "$httpUntil"]}
    return [{"$set": {"httpUntil": until, "httpAt": {"$max": ["$httpAt", at]}}}]


def _silent(since: datetime) -> Condition:
    return {"httpUntil": {"$lte": since}}
