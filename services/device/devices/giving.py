"""Gives devices to applications and takes them back, as super-admins say (docs/ownership.md)."""

from dataclasses import dataclass

from libs.common.bus import RpcServer
from libs.common.contracts.auth import GiveDevice, OwnedDevice, TakeDevice
from libs.common.errors import Conflict
from services.device.commands.model import REMOVED
from services.device.devices.leaving import Leaving
from services.device.devices.orphans import Orphans
from services.device.things.device_store import DeviceStore
from services.device.things.directory import not_seen
from services.device.things.errors import rps_record_exists
from services.device.things.model import ApplicationRef, Device
from services.device.things.serial_numbers import SerialTaken


class _MovedMeanwhile(Exception):
    """The device left the application before it was taken from it."""


@dataclass(frozen=True)
class DeviceGiver:
    """Answers `give_device` and `take_device`; both may be repeated."""

    store: DeviceStore
    orphans: Orphans
    leaving: Leaving

    def offer(self, rpc: RpcServer) -> None:
        """Offer the operations."""
        rpc.offer("give_device", GiveDevice, self.give)
        rpc.offer("take_device", TakeDevice, self.take)

    async def give(self, wanted: GiveDevice) -> OwnedDevice:
        """Make an application the owner of a device; its key, values and history stay.

        Raises `NotFound`, and `Conflict` while another application or an RPS record has it.
        """
        device = await self._find(wanted.tenant, wanted.device_id)
        if device.application_id == wanted.application_id:
            return _told(device)
        if device.application is not None and not await self.orphans.freed(device):
            raise _of_another(device)
        new_owner = ApplicationRef(wanted.application_id, wanted.application_name)
        try:
            given = await self.store.give(device.tenant, device.id, new_owner)
        except SerialTaken as error:
            raise rps_record_exists(device.sn, "device_id") from error
        if given is None:
            raise _of_another(device)
        return _told(given)

    async def take(self, wanted: TakeDevice) -> OwnedDevice:
        """Make the users the owner of a device that an application has; its key stays.

        The tasks that the device has not answered end. Raises `NotFound`, also for a device of
        another application, and one that is nobody's.
        """
        device = await self._find(wanted.tenant, wanted.device_id)
        if device.application is None and not device.nobodys:
            return _told(device)
        if device.application_id != wanted.application_id:
            raise not_seen(device.id)

        async def detach() -> None:
            if not await self.store.detach(device, wanted.application_id, wanted.user_id):
                raise _MovedMeanwhile

        try:
            await self.leaving.go_back(device, detach, REMOVED)
        except _MovedMeanwhile:
            return await self.take(wanted)
        return _told(device)

    async def _find(self, tenant: str, device_id: int) -> Device:
        device = await self.store.find(tenant, device_id)
        if device is None:
            raise not_seen(device_id)
        return device


def _of_another(device: Device) -> Conflict:
    name = device.application.application_name if device.application else "an application"
    return Conflict(
        f"{name} has the device: take it back first",
        field="device_id",
        code="device_of_another_application",
    )


def _told(device: Device) -> OwnedDevice:
    return OwnedDevice(device.sn, device.name)
