"""Devices of applications, which `device` keeps."""

from libs.common.bus import RpcClient
from libs.common.contracts.auth import (
    GIVE_DEVICE,
    TAKE_DEVICE,
    GiveDevice,
    OwnedDevice,
    TakeDevice,
)
from services.auth.applications.schemas import StoredApplication


class DevicesOverRpc:
    """Gives devices to applications, and takes them back."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def give(self, application: StoredApplication, device_id: int) -> OwnedDevice:
        """The device is the application's; raise `NotFound` or `Conflict`."""
        wanted = GiveDevice(application.tenant, device_id, application.id, application.name)
        return await self._rpc.call(GIVE_DEVICE, wanted, OwnedDevice)

    async def take(
        self, application: StoredApplication, device_id: int, user_id: int
    ) -> OwnedDevice:
        """The device is the users'; raise `NotFound` when it is another application's."""
        wanted = TakeDevice(application.tenant, device_id, application.id, user_id)
        return await self._rpc.call(TAKE_DEVICE, wanted, OwnedDevice)
