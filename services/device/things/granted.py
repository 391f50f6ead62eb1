"""The device that a user asks for, when the user sees it."""

from libs.common.errors import Forbidden, NotFound
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader
from services.device.things.model import Device
from services.device.things.store import DeviceStore


class GrantedDevices:
    """Finds devices on behalf of users."""

    def __init__(self, store: DeviceStore, grants: GrantReader) -> None:
        self._store = store
        self._grants = grants

    async def find(self, principal: Principal, device_id: int) -> Device:
        """The device, when the user sees it.

        Raises `Forbidden` for a user who sees nothing at all, else `NotFound`, as consoles
        expect it.
        """
        grants = await self._grants.of(principal)
        if grants.nothing:
            raise Forbidden("user does not have data permission")
        device = await self._store.find(principal.tenant, device_id)
        if device is None or not grants.device(device_id, device.integration, device.group):
            raise not_seen(device_id)
        return device


def not_seen(device_id: int) -> NotFound:
    """404: there is no such device, or none that the user sees."""
    return NotFound(f"device {device_id} not found", field="device_id")
