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
from libs.common.things import DIRECT_INTEGRATION
from services.device.things.directory import GrantedDevices
from services.device.things.model import Device

FIRST_KEY_NAME = "Device key (shown for 10 minutes)"
FIRST_KEY_DESCRIPTION = "The device logs in with it and its SN"
"""Description of the row in which consoles show a first key."""
AsyncStep = Callable[[], Awaitable[object]]


class DeviceCredentialsClient:
    """Issues and revokes keys of devices through `auth`.

    `check_exists` raises if the device was deleted meanwhile; then its new key is revoked.
    """

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def issue(self, device: Device, check_exists: AsyncStep) -> DeviceCredentials:
        """Issue a new key; the previous one stops working."""
        subject = "rpc.auth.issue_device_credentials"
        issued = await self._rpc.call(subject, _device_ref(device), DeviceCredentials)
        await self._revoke_if_deleted(device, check_exists)
        return issued

    async def issue_first(
        self, device: Device, check_exists: AsyncStep, *, repeatable: bool = False
    ) -> str | None:
        """Issue and return a key if the device has none; return None if it has a key.

        With `repeatable`, later calls return the same key for 10 minutes, until the device logs in.
        """
        subject = "rpc.auth.issue_first_device_credentials"
        request = IssueFirstKey(device.sn, device.id, device.tenant, repeatable)
        key = (await self._rpc.call(subject, request, FirstDeviceKey)).key
        if key is not None:
            await self._revoke_if_deleted(device, check_exists)
        return key

    async def find_last_rejected_login(self, device: Device) -> LastRefusedLogin:
        """Return when and why the last rejected login of the device failed."""
        return await self._rpc.call(
            "rpc.auth.last_refused_login", _device_ref(device), LastRefusedLogin
        )

    async def revoke(self, device: Device) -> None:
        """Revoke the key of a device."""
        await self._rpc.call("rpc.auth.revoke_device_credentials", _device_ref(device), Done)

    async def _revoke_if_deleted(self, device: Device, check_exists: AsyncStep) -> None:
        try:
            await check_exists()
        except ThingwayError:
            await self.revoke(device)
            raise


def _device_ref(device: Device) -> DeviceRef:
    return DeviceRef(device.sn, device.id, device.tenant)


class FirstKeyReader:
    """Shows the first key of a directly connected device to the user who added it."""

    def __init__(self, keys: DeviceCredentialsClient, granted: GrantedDevices) -> None:
        self._keys = keys
        self._granted = granted

    async def get_or_issue_key(self, user: Principal, device: Device) -> str | None:
        """Return the first key, issued now if the device has no key.

        Return None if the user may not see the key, or if the device has a key that `auth` no
        longer returns.
        """
        has_added = device.user_id is not None and device.user_id == user.user_id
        if not (
            has_added and device.integration == DIRECT_INTEGRATION and user.may(Function.DEVICE_ADD)
        ):
            return None
        check_exists = partial(self._granted.find, user, device.id)
        return await self._keys.issue_first(device, check_exists, repeatable=True)

    async def find_device_with_key(
        self, user: Principal, device_id: int
    ) -> tuple[Device, str] | None:
        """Return a device with its first key.

        Return None if the user may not see the device or the key, or if `auth` is unavailable.
        """
        try:
            device = await self._granted.find(user, device_id)
            key = await self.get_or_issue_key(user, device)
        except (Forbidden, NotFound, Unavailable):
            return None
        return None if key is None else (device, key)
