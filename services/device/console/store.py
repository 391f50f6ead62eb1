"""Reads a tenant's devices for consoles."""

import asyncio

from libs.common.store.mongo import Database
from services.device.console.search import Wanted
from services.device.devices.ports import Device
from services.device.devices.store import DeviceStore


class ConsoleStore:
    """Devices of tenants, whatever application or integration they belong to."""

    def __init__(self, database: Database, devices: DeviceStore) -> None:
        self._collection = database["devices"]
        self._devices = devices

    async def find(self, tenant: str, device_id: int) -> Device | None:
        """A device of the tenant."""
        query = {"_id": device_id, "tenant": tenant}
        device: Device | None = await self._collection.find_one(query)
        return device

    async def search(self, wanted: Wanted) -> tuple[list[Device], int]:
        """The page, and how many devices match in all."""
        page, counts = await asyncio.gather(
            self._devices.page(wanted.query),
            asyncio.gather(*map(self._devices.totals.of, wanted.counted)),
        )
        return page, sum(counts)

    async def rename(self, tenant: str, device_id: int, name: str) -> Device | None:
        """Give a device another name; None when it is gone."""
        return await self._devices.change(tenant, device_id, {"name": name})
