"""Ownership of devices: assignment, removal, and cleanup of orphans.

See docs/reference/ownership.md. When a device leaves its application or the platform, its key, its
connections and its open tasks end. Devices and RPS records of deleted applications are released: by
the lease holder after the deletion event, by a periodic search, and when another application adds
such a device.
"""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial

from nats.aio.msg import Msg

from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.bus.subjects import auth_event
from libs.common.contracts.auth import Application, AssignDevice, OwnedDevice, ReclaimDevice
from libs.common.contracts.auth import ApplicationRef as AuthApplicationRef
from libs.common.errors import Conflict, NotFound, ThingwayError
from libs.common.scheduling.turns import TenantSteps, take_turns
from libs.common.store.mongo import StoreError
from services.device.commands.completion import CommandCanceller
from services.device.commands.model import APPLICATION_DELETED, DEVICE_REMOVED, FailureReason
from services.device.members.device_keys import AsyncStep, DeviceCredentialsClient
from services.device.registry.products.rps import RpsStore
from services.device.things.device_store import DeviceStore
from services.device.things.directory import device_not_visible
from services.device.things.errors import rps_record_exists
from services.device.things.model import ApplicationRef, Device
from services.device.things.serial_numbers import SerialTaken

log = logging.getLogger(__name__)


class DeviceRemover:
    """Removes devices from their application or from the platform."""

    def __init__(self, keys: DeviceCredentialsClient, commands: CommandCanceller) -> None:
        self._keys = keys
        self._commands = commands

    async def remove(self, device: Device, step: AsyncStep, reason: FailureReason) -> None:
        """Revoke the key, run the `step` that removes the device, and end its tasks.

        The key is revoked before the step, so that a crash leaves no key without an owner, and
        again after it, for a key that was issued meanwhile. Raises the errors of the first
        revocation and of `step`.
        """
        await self._keys.revoke(device)
        await step()
        try:
            await self._keys.revoke(device)
        except ThingwayError as error:
            log.warning("device %d: the second revocation of its key failed: %s", device.id, error)
        await self._end_tasks(device, reason)

    async def remove_from_application(
        self, device: Device, step: AsyncStep, reason: FailureReason
    ) -> None:
        """Remove a device like `remove`; a device of the users keeps its key."""
        await (self.return_to_users if device.is_owned_by_users else self.remove)(
            device, step, reason
        )

    async def return_to_users(self, device: Device, step: AsyncStep, reason: FailureReason) -> None:
        """Run the `step` that returns the device to the users, and end its tasks."""
        await step()
        await self._end_tasks(device, reason)

    async def _end_tasks(self, device: Device, reason: FailureReason) -> None:
        try:
            await self._commands.cancel_all(device, reason)
        except StoreError as error:
            log.warning("device %d: its tasks could not be ended yet: %s", device.id, error)


CONCURRENT_TENANTS = 2
"""Tenants whose orphans are released concurrently."""
SEARCH_INTERVAL_SECONDS = 300.0
"""Seconds between two searches for orphans."""
DEVICES_PER_READ = 20
"""Devices of a deleted application that are released in one step."""


class ApplicationClient:
    """Reads applications from `auth`."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def exists(self, tenant: str, application_id: int) -> bool:
        """Return whether an application exists; raise if `auth` does not answer."""
        request = AuthApplicationRef(application_id, tenant)
        try:
            await self._rpc.call("rpc.auth.get_application", request, Application)
        except NotFound:
            return False
        return True


@dataclass(frozen=True)
class OrphanCleaner:
    """Releases devices and RPS records of deleted applications."""

    devices: DeviceStore
    records: RpsStore
    applications: ApplicationClient
    remover: DeviceRemover

    async def release_if_orphaned(self, device: Device) -> bool:
        """Release the device if its application is deleted; return whether it was released."""
        owner = device.application_id
        if owner is None or await self.applications.exists(device.tenant, owner):
            return False
        await self._release(device, owner)
        return True

    async def _release(self, device: Device, owner: int) -> None:
        detach = partial(self.devices.remove_from_application, device, owner)
        await self.remover.remove_from_application(device, detach, APPLICATION_DELETED)

    async def run(self, bus: Bus) -> None:
        """Release orphans periodically and after deletions; run by the lease holder."""
        ended = asyncio.Event()

        async def on_deleted(_: Msg) -> None:
            ended.set()

        subject = auth_event("*", "application.deleted")
        subscription = await bus.client.subscribe(subject, cb=on_deleted)
        try:
            await take_turns(
                "orphans",
                CONCURRENT_TENANTS,
                self.list_tenants_to_check,
                self.release_orphans,
                SEARCH_INTERVAL_SECONDS,
                ended,
            )
        finally:
            if bus.is_connected:
                await subscription.unsubscribe()

    async def list_tenants_to_check(self) -> set[str]:
        """Return the tenants that have devices or RPS records."""
        return {*await self.devices.queries.list_tenants(), *await self.records.list_tenants()}

    async def release_orphans(self, tenant: str) -> TenantSteps:
        """Release everything that deleted applications of a tenant owned."""
        for application in await self.devices.queries.list_applications(tenant):
            if await self.applications.exists(tenant, application):
                continue
            list_devices = self.devices.queries.list_by_application
            while devices := await list_devices(tenant, application, DEVICES_PER_READ):
                for device in devices:
                    await self._release(device, application)
                yield
        for application in await self.records.list_applications(tenant):
            if not await self.applications.exists(tenant, application):
                owner = tenant, application
                for key in await self.records.list_serial_keys(owner):
                    await self.records.delete(owner, key)
                yield


class _OwnerChanged(Exception):
    """The device left the application while it was being removed from it."""


@dataclass(frozen=True)
class DeviceAssigner:
    """Assigns devices to applications and back to users, by two idempotent operations."""

    store: DeviceStore
    orphans: OrphanCleaner
    remover: DeviceRemover

    def offer(self, rpc: RpcServer) -> None:
        """Register the handlers of both operations."""
        rpc.offer("give_device", AssignDevice, self.assign)
        rpc.offer("take_device", ReclaimDevice, self.withdraw)

    async def assign(self, request: AssignDevice) -> OwnedDevice:
        """Assign a device to an application; its key, values and history stay.

        Raises `NotFound`, and `Conflict` while another application has the device or an RPS record
        has its SN.
        """
        device = await self._find(request.tenant, request.device_id)
        if device.application_id == request.application_id:
            return _to_owned_device(device)
        if device.application is not None and not await self.orphans.release_if_orphaned(device):
            raise _owner_conflict(device)
        new_owner = ApplicationRef(request.application_id, request.application_name)
        try:
            assigned = await self.store.assign(device.tenant, device.id, new_owner)
        except SerialTaken as error:
            raise rps_record_exists(device.sn, "device_id") from error
        if assigned is None:
            raise _owner_conflict(device)
        return _to_owned_device(assigned)

    async def withdraw(self, request: ReclaimDevice) -> OwnedDevice:
        """Return a device of an application to the users; its key stays.

        Its open tasks end. Raises `NotFound`, also for a device of another application and for a
        device without an owner. A device that the users own already stays unchanged.
        """
        device = await self._find(request.tenant, request.device_id)
        if device.application is None and not device.is_unassigned:
            return _to_owned_device(device)
        if device.application_id != request.application_id:
            raise device_not_visible(device.id)

        async def detach() -> None:
            if not await self.store.remove_from_application(
                device, request.application_id, request.user_id
            ):
                raise _OwnerChanged

        try:
            await self.remover.return_to_users(device, detach, DEVICE_REMOVED)
        except _OwnerChanged:
            return await self.withdraw(request)
        return _to_owned_device(device)

    async def _find(self, tenant: str, device_id: int) -> Device:
        device = await self.store.find(tenant, device_id)
        if device is None:
            raise device_not_visible(device_id)
        return device


def _owner_conflict(device: Device) -> Conflict:
    name = device.application.application_name if device.application else "an application"
    return Conflict(
        f"the device belongs to {name}: remove it from that application first",
        field="device_id",
        code="device_of_another_application",
    )


def _to_owned_device(device: Device) -> OwnedDevice:
    return OwnedDevice(device.sn, device.name)
