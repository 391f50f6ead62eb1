"""Keys of devices, which `auth` keeps."""

from collections.abc import Awaitable, Callable

from libs.common.bus import RpcClient
from libs.common.contracts.auth import (
    DeviceCredentials,
    DeviceRef,
    Done,
    FirstDeviceKey,
    LastRefusedLogin,
)
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

    async def issue_first(self, sn: str, device_id: int, tenant: str) -> str | None:
        """Make a key for a device that has none; None when it has one."""
        device = DeviceRef(sn, device_id, tenant)
        subject = "rpc.auth.issue_first_device_credentials"
        return (await self._rpc.call(subject, device, FirstDeviceKey)).key

    async def last_refused(self, sn: str, device_id: int, tenant: str) -> LastRefusedLogin:
        """The last log-in as a device that was refused."""
        device = DeviceRef(sn, device_id, tenant)
        return await self._rpc.call("rpc.auth.last_refused_login", device, LastRefusedLogin)

    async def revoke(self, sn: str, device_id: int, tenant: str) -> None:
        """Let the key of this device open nothing any more."""
        device = DeviceRef(sn, device_id, tenant)
        await self._rpc.call("rpc.auth.revoke_device_credentials", device, Done)


async def issue_key(keys: CredentialsOverRpc, device: Device, look: Step) -> DeviceCredentials:
    """Make a new key for a device; the old one dies.

    `look` raises when the device has been deleted meanwhile: then no key may be left.
    """
    issued = await keys.issue(device.sn, device.id, device.tenant)
    await _check_there(keys, device, look)
    return issued


async def issue_first_key(keys: CredentialsOverRpc, device: Device, look: Step) -> str | None:
    """Make a key for a device that has none, None when it has one; `look` as above."""
    key = await keys.issue_first(device.sn, device.id, device.tenant)
    if key is not None:
        await _check_there(keys, device, look)
    return key


async def _check_there(keys: CredentialsOverRpc, device: Device, look: Step) -> None:
    try:
        await look()
    except ThingwayError:
        await keys.revoke(device.sn, device.id, device.tenant)
        raise
