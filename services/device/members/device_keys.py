"""Keys of devices, which `auth` keeps."""

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
"""Of the row in which consoles show a first key."""
Step = Callable[[], Awaitable[object]]


class CredentialsOverRpc:
    """Device credentials, kept by `auth`."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def issue(self, sn: str, device_id: int, tenant: str) -> DeviceCredentials:
        """Make a new key; the old one dies."""
        device = DeviceRef(sn, device_id, tenant)
        return await self._rpc.call("rpc.auth.issue_device_credentials", device, DeviceCredentials)

    async def issue_first(
        self, sn: str, device_id: int, tenant: str, *, repeatable: bool = False
    ) -> str | None:
        """Make a key for a device that has none; None when it has one.

        A repeatable key is returned again for 10 minutes, until the device logs in.
        """
        device = IssueFirstKey(sn, device_id, tenant, repeatable)
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


async def issue_first_key(
    keys: CredentialsOverRpc, device: Device, look: Step, *, repeatable: bool = False
) -> str | None:
    """Make a key as `CredentialsOverRpc.issue_first`; `look` as above."""
    key = await keys.issue_first(device.sn, device.id, device.tenant, repeatable=repeatable)
    if key is not None:
        await _check_there(keys, device, look)
    return key


class FirstKeys:
    """Shows the first key of a device that connects itself to the user who added it."""

    def __init__(self, keys: CredentialsOverRpc, granted: GrantedDevices) -> None:
        self._keys = keys
        self._granted = granted

    async def shown(self, user: Principal, device: Device) -> str | None:
        """Return the key, made now unless there is one; None when it is not to be shown."""
        added = device.user_id is not None and device.user_id == user.user_id
        if not (added and device.integration == DIRECT and user.may(Function.DEVICE_ADD)):
            return None
        look = partial(self._granted.find, user, device.id)
        return await issue_first_key(self._keys, device, look, repeatable=True)

    async def find(self, user: Principal, device_id: int) -> tuple[Device, str] | None:
        """Return a device with its key; None when the key is not to be shown."""
        try:
            device = await self._granted.find(user, device_id)
            key = await self.shown(user, device)
        except (Forbidden, NotFound, Unavailable):
            return None
        return None if key is None else (device, key)


async def _check_there(keys: CredentialsOverRpc, device: Device, look: Step) -> None:
    try:
        await look()
    except ThingwayError:
        await keys.revoke(device.sn, device.id, device.tenant)
        raise
