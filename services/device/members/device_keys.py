"""Keys of devices, which `auth` stores."""

from collections.abc import Awaitable, Callable
from functools import partial

from libs.common.bus import RpcClient
from libs.common.contracts.auth import (
    DeviceCredentials,
    DeviceRef,
    Done,
    FirstDeviceKey,
    IssueFirstKey,
    LastRefusedLogin,
)
from libs.common.errors import Forbidden, NotFound, ThingwayError, Unavailable
from libs.common.identity import Principal
from libs.common.identity.functions import Function
from libs.common.things import DIRECT
from services.device.things.directory import GrantedDevices
from services.device.things.model import Device

KEY_NAME = "Device key (shown for 10 minutes)"
KEY_DESCRIPTION = "The device logs in with it and its SN"
"""Description of the row in which consoles show a first key."""
AsyncStep = Callable[[], Awaitable[object]]


class DeviceCredentialsClient:
    """Calls `auth` for the credentials of devices."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def issue(self, sn: str, device_id: int, tenant: str) -> DeviceCredentials:
        """Issue a new key; the previous one stops working."""
        device = DeviceRef(sn, device_id, tenant)
        return await self._rpc.call("rpc.auth.issue_device_credentials", device, DeviceCredentials)

    async def issue_first(
        self, sn: str, device_id: int, tenant: str, *, repeatable: bool = False
    ) -> str | None:
        """Issue a key for a device without one; None when it has one.

        A repeatable key is returned again for 10 minutes, until the device logs in.
        """
        device = IssueFirstKey(sn, device_id, tenant, repeatable)
        subject = "rpc.auth.issue_first_device_credentials"
        return (await self._rpc.call(subject, device, FirstDeviceKey)).key

    async def find_last_refused_login(
        self, sn: str, device_id: int, tenant: str
    ) -> LastRefusedLogin:
        """Return the last login of the device that was refused."""
        device = DeviceRef(sn, device_id, tenant)
        return await self._rpc.call("rpc.auth.last_refused_login", device, LastRefusedLogin)

    async def revoke(self, sn: str, device_id: int, tenant: str) -> None:
        """Revoke the key of a device."""
        device = DeviceRef(sn, device_id, tenant)
        await self._rpc.call("rpc.auth.revoke_device_credentials", device, Done)


async def issue_key(
    keys: DeviceCredentialsClient, device: Device, check_exists: AsyncStep
) -> DeviceCredentials:
    """Issue a new key for a device; the previous one stops working.

    `check_exists` raises if the device was deleted meanwhile; then the new key is revoked.
    """
    issued = await keys.issue(device.sn, device.id, device.tenant)
    await _revoke_if_deleted(keys, device, check_exists)
    return issued


async def issue_first_key(
    keys: DeviceCredentialsClient,
    device: Device,
    check_exists: AsyncStep,
    *,
    repeatable: bool = False,
) -> str | None:
    """Issue a key like `DeviceCredentialsClient.issue_first`; see `issue_key`."""
    key = await keys.issue_first(device.sn, device.id, device.tenant, repeatable=repeatable)
    if key is not None:
        await _revoke_if_deleted(keys, device, check_exists)
    return key


class FirstKeyReader:
    """Shows the first key of a directly connected device to the user who added it."""

    def __init__(self, keys: DeviceCredentialsClient, granted: GrantedDevices) -> None:
        self._keys = keys
        self._granted = granted

    async def find_key(self, user: Principal, device: Device) -> str | None:
        """Return the key, issued now if needed; None when the user may not see it."""
        has_added = device.user_id is not None and device.user_id == user.user_id
        if not (has_added and device.integration == DIRECT and user.may(Function.DEVICE_ADD)):
            return None
        check_exists = partial(self._granted.find, user, device.id)
        return await issue_first_key(self._keys, device, check_exists, repeatable=True)

    async def find(self, user: Principal, device_id: int) -> tuple[Device, str] | None:
        """Return a device with its key; None when the user may not see the key."""
        try:
            device = await self._granted.find(user, device_id)
            key = await self.find_key(user, device)
        except (Forbidden, NotFound, Unavailable):
            return None
        return None if key is None else (device, key)


async def _revoke_if_deleted(
    keys: DeviceCredentialsClient, device: Device, check_exists: AsyncStep
) -> None:
    try:
        await check_exists()
    except ThingwayError:
        await keys.revoke(device.sn, device.id, device.tenant)
        raise
