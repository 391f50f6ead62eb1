"""Devices in MongoDB; every change is one transaction with the event that tells of it.

`devices`: `{_id, tenant, sn, snKey, devEUI?, imei?, name, description, project, tag, model,
tslVersion, deviceType, application: {applicationId, applicationName} | null, integration,
identifier, userId?, additional?, connectStatus,
licenseStatus, rpsStatus, hardwareVersion?, firmwareVersion?, electricity?, mac?, wlanMac?,
lastUpdateTime?, dataStorage, createdAt, updatedAt}`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from pymongo import ReturnDocument

from libs.common.bus import Outbox
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import KnownLimits
from libs.common.store.mongo import DuplicateKey, Mongo, Session
from libs.common.things import GENERIC
from services.device.devices.messages import Change, changed
from services.device.devices.search import Query
from services.device.devices.serials import Holder, Serials, SerialTaken
from services.device.devices.totals import Totals
from services.device.products.errors import unknown_model
from services.device.products.usage import ProductUsage
from services.device.things.removed import RemovedThings

Device = dict[str, Any]

_Work = Callable[[Session], Awaitable[Device | None]]


class DeviceStore:
    """Reads and writes devices."""

    def __init__(self, mongo: Mongo, outbox: Outbox, limits: KnownLimits) -> None:
        self._mongo = mongo
        self._outbox = outbox
        self._quota = Quota(mongo.database["devices"], limits, "devices")
        self._devices = mongo.database["devices"]
        self._latest = mongo.database["latest"]
        self._serials = Serials(mongo.database)
        self._removed = RemovedThings(mongo.database)
        self._usage = ProductUsage(mongo.database)
        self.totals = Totals(mongo.database)
        """How many devices meet a condition."""

    async def with_serial(self, key: str) -> tuple[Holder | None, Device | None]:
        """What holds the SN, and the device when it is one."""
        device = await self._devices.find_one({"snKey": key})
        return ("device", device) if device else (await self._serials.holder(key), None)

    async def find(self, tenant: str, application_id: int, device_id: int) -> Device | None:
        """The device, when it belongs to the application."""
        device: Device | None = await self._devices.find_one(
            _of_application(tenant, application_id, device_id)
        )
        return device

    async def find_all(self, tenant: str, ids: Sequence[int]) -> list[Device]:
        """Devices of the tenant, whoever they belong to, in the order of ids."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant}
        return list(await self._devices.find(query, sort=[("_id", 1)]).to_list(None))

    async def search(self, query: Query) -> tuple[list[Device], int]:
        """The page that `query` describes, and how many devices match in all."""
        found, total = await asyncio.gather(self.page(query), self.totals.of(query.filter))
        return found, total

    async def page(self, query: Query) -> list[Device]:
        """The devices of a page; of what is skipped only the ids, which an index has in order."""
        page: dict[str, Any] = {"sort": query.order, "skip": query.skip, "limit": query.limit}
        if query.hint:
            page["hint"] = query.hint
        if not query.skip:
            return list(await self._devices.find(query.filter, **page).to_list(None))
        keys = await self._devices.find(query.filter, {"_id": 1}, **page).to_list(None)
        ids = [key["_id"] for key in keys]
        found = {
            device["_id"]: device async for device in self._devices.find({"_id": {"$in": ids}})
        }
        return [found[device_id] for device_id in ids if device_id in found]

    async def report_times(self, device_ids: list[int]) -> dict[int, int]:
        """The time (ms) of the newest report of each device that has one."""
        cursor = self._latest.find({"_id": {"$in": device_ids}}, {"t": 1})
        return {latest["_id"]: latest["t"] async for latest in cursor if "t" in latest}

    async def insert(self, device: Device) -> None:
        """Write a new device; raise `SerialTaken` when its SN has a holder.

        Raises `TooManyRequests` when the tenant has as many as it may.
        """
        await self._quota.take(device["tenant"])

        async def work(session: Session) -> Device:
            await self._serials.claim(device["snKey"], "device", session)
            await self._tie(device, session)
            await self._devices.insert_one(device, session=session)
            return device

        try:
            await self._change(work, "added")
        except DuplicateKey as error:
            raise SerialTaken from error

    async def attach(self, device_id: int, changes: dict[str, Any]) -> Device | None:
        """Give a device without application to one; None when it has one meanwhile."""
        free = {"_id": device_id, "application": None}
        return await self._set(free, changes, "added")

    async def update(
        self, tenant: str, application_id: int, device_id: int, changes: dict[str, Any]
    ) -> Device | None:
        """Change fields of a device; None when the application has no such device."""
        query = _of_application(tenant, application_id, device_id)
        return await self._set(query, changes, "updated")

    async def change(self, tenant: str, device_id: int, changes: dict[str, Any]) -> Device | None:
        """Change fields of a device of the tenant; None when there is none."""
        return await self._set({"_id": device_id, "tenant": tenant}, changes, "updated")

    async def detach(self, tenant: str, application_id: int, device_id: int) -> Device | None:
        """Take a device from its application; None when it does not belong to it."""
        query = _of_application(tenant, application_id, device_id)
        return await self._set(query, {"application": None}, "removed")

    async def delete(self, tenant: str, application_id: int, device_id: int) -> Device | None:
        """Delete a device with its latest values; the rest of it goes within the hour."""
        return await self._delete(_of_application(tenant, application_id, device_id))

    async def delete_of(self, tenant: str, device_id: int) -> Device | None:
        """Delete a device of the tenant, whoever it belongs to."""
        return await self._delete({"_id": device_id, "tenant": tenant})

    async def _delete(self, query: dict[str, Any]) -> Device | None:
        async def work(session: Session) -> Device | None:
            device: Device | None = await self._devices.find_one_and_delete(query, session=session)
            if device is not None:
                await self._serials.release(device["snKey"], session)
                await self._latest.delete_one({"_id": device["_id"]}, session=session)
                await self._removed.add([device["_id"]], session)
            return device

        return await self._change(work, "deleted")

    async def _set(
        self, query: dict[str, Any], changes: dict[str, Any], change: Change
    ) -> Device | None:
        update = {"$set": {**changes, "updatedAt": datetime.now(UTC)}}

        async def work(session: Session) -> Device | None:
            device: Device | None = await self._devices.find_one_and_update(
                query, update, return_document=ReturnDocument.AFTER, session=session
            )
            if device is not None and "tslVersion" in changes:
                await self._tie(device, session)
            return device

        return await self._change(work, change)

    async def _tie(self, device: Device, session: Session) -> None:
        if device["model"] == GENERIC:
            return
        if not await self._usage.tie(device["tenant"], device["model"], device["snKey"], session):
            raise unknown_model(device["model"])

    async def _change(self, work: _Work, change: Change) -> Device | None:
        """Run `work` and write the event of the device it returns, in one transaction."""

        async def whole(session: Session) -> tuple[Device | None, list[dict[str, Any]]]:
            device = await work(session)
            entries = [changed(device, change)] if device is not None else []
            return device, await self._outbox.add(entries, session)

        device, entries = await self._mongo.transaction(whole)
        await self._outbox.relay(entries)
        return device


def _of_application(tenant: str, application_id: int, device_id: int) -> dict[str, Any]:
    return {"_id": device_id, "tenant": tenant, "application.applicationId": application_id}
