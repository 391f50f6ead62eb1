"""Keys of devices end with them, whoever deletes one and whatever happens meanwhile."""

import logging
from collections.abc import Awaitable, Callable

from libs.common.errors import ThingwayError
from services.device.devices.ports import CredentialsGateway
from services.device.devices.schemas import Credentials
from services.device.things.model import Device

log = logging.getLogger(__name__)

Step = Callable[[], Awaitable[object]]


async def issue_key(keys: CredentialsGateway, device: Device, look: Step) -> Credentials:
    """Make a new key for a device; the old one dies.

    `look` raises when the device has been deleted meanwhile: then no key may be left.
    """
    who = _who(device)
    issued = await keys.issue(*who)
    try:
        await look()
    except ThingwayError:
        await keys.revoke(*who)
        raise
    return issued


async def delete_with_key(keys: CredentialsGateway, device: Device, delete: Step) -> None:
    """Delete a device and its key.

    The key ends before the device does, so that a crash in between leaves no key without a
    device; and once more after it, for one that was issued meanwhile.
    """
    who = _who(device)
    await keys.revoke(*who)
    await delete()
    try:
        await keys.revoke(*who)
    except ThingwayError as error:
        log.warning("device %d: a second revocation failed: %s", device.id, error)


def _who(device: Device) -> tuple[str, int, str]:
    return device.sn, device.id, device.tenant
