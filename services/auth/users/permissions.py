"""Whether a user has one resource (notes, sections 3.2 and 3.5)."""

from typing import Protocol

from libs.common.contracts.access import ResourceType
from libs.common.http.console import MAX_ID
from libs.common.store.mongo import Database


class Devices(Protocol):
    """Knows where devices belong."""

    async def integration_of(self, tenant: str, device_id: int) -> str | None:
        """The integration of a device, None when there is no such device."""


class Permissions:
    """Looks into the collection `grants`."""

    def __init__(self, database: Database, devices: Devices) -> None:
        self._grants = database["grants"]
        self._devices = devices

    async def held(
        self, tenant: str, roles: tuple[int, ...], kind: ResourceType, resource: str
    ) -> bool:
        """Tell whether one of `roles` is granted a resource; a device also by its integration.

        Raises `Unavailable` when `device` is needed and silent.
        """
        if kind is ResourceType.INTEGRATION:
            return await self._granted(tenant, roles, kind, resource)
        number = int(resource) if resource.isascii() and resource.isdigit() else 0
        if not 0 < number <= MAX_ID:
            return False
        if await self._granted(tenant, roles, kind, number):
            return True
        if kind is not ResourceType.DEVICE or not roles:
            return False
        integration = await self._devices.integration_of(tenant, number)
        return integration is not None and await self._granted(
            tenant, roles, ResourceType.INTEGRATION, integration
        )

    async def _granted(
        self, tenant: str, roles: tuple[int, ...], kind: ResourceType, identity: str | int
    ) -> bool:
        query = {"tenant": tenant, "role": {"$in": roles}, "type": kind.value, "id": identity}
        return await self._grants.find_one(query, {"_id": 1}) is not None
