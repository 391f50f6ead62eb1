"""Reads the devices of integrations."""

from libs.common.store.mongo import Database
from services.device.devices.ports import Device


class IntegrationDevices:
    """Devices by integration."""

    def __init__(self, database: Database) -> None:
        self._devices = database["devices"]

    async def find(self, tenant: str, integration: str, identifier: str) -> Device | None:
        """A device of the integration."""
        query = {"tenant": tenant, "integration": integration, "identifier": identifier}
        device: Device | None = await self._devices.find_one(query)
        return device

    async def after(self, integration: str, after: int, limit: int) -> list[Device]:
        """Devices of all tenants by id, behind `after`."""
        query = {"integration": integration, "_id": {"$gt": after}}
        return list(await self._devices.find(query, sort=[("_id", 1)], limit=limit).to_list(None))
