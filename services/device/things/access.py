"""Which thing a caller may see: the tenant and application filter, in one place."""

from collections.abc import Sequence
from typing import Annotated

from litestar.params import PathParameter

from libs.common.errors import Forbidden, NotFound
from libs.common.identity import Kind, Principal
from services.device.things.directory import ThingDirectory
from services.device.things.errors import device_not_found
from services.device.things.model import Device, Thing
from services.device.things.store import DeviceStore

MAX_ID = 2**53 - 1

DeviceId = Annotated[int, PathParameter(ge=1, le=MAX_ID, description="Id given when it was added")]


def application_of(principal: Principal) -> int:
    """The application that asks; raise `Forbidden` when it is none."""
    if principal.kind is not Kind.APPLICATION:
        raise Forbidden("this operation is for applications")
    return principal.application_id


class Things:
    """Looks things up on behalf of a caller; always as they are now, on every replica."""

    def __init__(self, devices: DeviceStore, directory: ThingDirectory) -> None:
        self._devices = devices
        self._directory = directory

    async def device(self, principal: Principal, device_id: int) -> Device:
        """The device, when `principal` may see it; else `NotFound`."""
        application = application_of(principal)
        device = await self._devices.find(principal.tenant, device_id, application)
        if device is None:
            raise device_not_found(device_id)
        return device

    async def of(self, principal: Principal, device_id: int) -> Thing:
        """The thing with its TSL, when `principal` may see it; else `NotFound`."""
        return await self._directory.thing(await self.device(principal, device_id))

    async def all_of(self, principal: Principal, device_ids: Sequence[int]) -> dict[int, Thing]:
        """The things of `device_ids` that `principal` may see, by id; the others are missing."""
        application = application_of(principal)
        devices = await self._devices.find_all(principal.tenant, device_ids, application)
        return {thing.id: thing for thing in await self._directory.things(devices)}

    async def granted(self, tenant: str, device_ids: Sequence[int]) -> dict[int, Thing]:
        """The things of devices of a tenant, by id; whoever asks has looked at grants."""
        devices = await self._devices.find_all(tenant, device_ids)
        return {thing.id: thing for thing in await self._directory.things(devices)}

    async def of_device(self, principal: Principal, sn: str) -> Thing:
        """The thing that speaks for itself at `/ingest`."""
        if principal.kind is not Kind.DEVICE or principal.subject.upper() != sn.upper():
            raise Forbidden("a device speaks only for itself", field="sn")
        found = await self._directory.by_sn([sn])
        if sn not in found:
            raise NotFound(f"there is no device {sn}", field="sn", code="device_not_found")
        return found[sn]
