"""Keys of devices, which `auth` keeps."""

from collections.abc import Awaitable, Callable

from libs.common.bus import RpcClient
from libs.common.contracts.auth import DeviceCredentials, DeviceRef, Done
from libs.common.errors import ThingwayError
from services.device.things.model import Device

Step = Callable[[], Awaitable[object]]


class CredentialsOverRpc:
    """Device credentials, kept by `auth`."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def issue(self, sn: str, device_id: int, tenant: str) -> DeviceCredentials:
        """Make a new key; the old one dies."""
        device = DeviceRef(sn, device_id, tenant)
        return await self._rpc.call("rpc.auth.issue_device_credentials", device, DeviceCredentials)

    async def revoke(self, sn: str, device_id: int, tenant: str) -> None:
        """Let the key of this device open nothing any more."""
        device = DeviceRef(sn, device_id, tenant)
        await self._rpc.call("rpc.auth.revoke_device_credentials", device, Done)


async def issue_key(keys: CredentialsOverRpc, device: Device, look: Step) -> DeviceCredentials:
    """Make a new key for a device; the old one dies.

    `look` raises when the device has been deleted meanwhile: then no key may be left.
    """
    issued = await keys.issue(device.sn, device.id, device.tenant)
    try:
        await look()
    except ThingwayError:
        await keys.revoke(device.sn, device.id, device.tenant)
        raise
    return issued
