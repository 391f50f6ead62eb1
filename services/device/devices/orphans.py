"""Frees the devices and RPS records of applications that are gone (docs/ownership.md).

A leader does it when it hears of the end of one, and looks from time to time for what it has
missed; who wants to add such a device before that has it freed at once.
"""

import asyncio
from dataclasses import dataclass
from functools import partial

from nats.aio.msg import Msg

from libs.common.bus import Bus, RpcClient
from libs.common.bus.subjects import auth_event
from libs.common.contracts.auth import Application, ApplicationRef
from libs.common.errors import NotFound
from libs.common.scheduling.turns import Steps, take_turns
from services.device.commands.model import ORPHANED
from services.device.devices.leaving import Leaving
from services.device.products.rps.store import RpsStore
from services.device.things.device_store import DeviceStore
from services.device.things.model import Device

WORKERS = 2
"""Tenants that have a turn at a time."""
PERIOD = 300.0
"""Seconds between two looks."""
CHUNK = 20
"""Devices that are read at a time."""


class ApplicationsOverRpc:
    """Applications, which `auth` keeps."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def exists(self, tenant: str, application_id: int) -> bool:
        """Whether there is an application; raises what says that nobody knows."""
        wanted = ApplicationRef(application_id, tenant)
        try:
            await self._rpc.call("rpc.auth.get_application", wanted, Application)
        except NotFound:
            return False
        return True


@dataclass(frozen=True)
class Orphans:
    """Devices and RPS records whose application is gone."""

    devices: DeviceStore
    records: RpsStore
    applications: ApplicationsOverRpc
    leaving: Leaving

    async def freed(self, device: Device) -> bool:
        """Take the device from its application if that is gone; whether it was."""
        owner = device.application_id
        if owner is None or await self.applications.exists(device.tenant, owner):
            return False
        await self._free(device, owner)
        return True

    async def _free(self, device: Device, owner: int) -> None:
        detach = partial(self.devices.detach, device, owner)
        await self.leaving.leave_application(device, detach, ORPHANED)

    async def run(self, bus: Bus) -> None:
        """Look for ever; run by the lease holder."""
        ended = asyncio.Event()

        async def heard(_: Msg) -> None:
            ended.set()

        subject = auth_event("*", "application.deleted")
        subscription = await bus.client.subscribe(subject, cb=heard)
        try:
            await take_turns("orphans", WORKERS, self.tenants, self.steps, PERIOD, ended)
        finally:
            if bus.connected:
                await subscription.unsubscribe()

    async def tenants(self) -> set[str]:
        """Return the tenants that have devices or RPS records."""
        return {*await self.devices.lists.tenants(), *await self.records.tenants()}

    async def steps(self, tenant: str) -> Steps:
        """Free all that applications of a tenant have left."""
        for application in await self.devices.lists.applications(tenant):
            if await self.applications.exists(tenant, application):
                continue
            while some := await self.devices.of_application(tenant, application, CHUNK):
                for device in some:
                    await self._free(device, application)
                yield
        for application in await self.records.applications(tenant):
            if not await self.applications.exists(tenant, application):
                owner = tenant, application
                for key in await self.records.keys(owner):
                    await self.records.delete(owner, key)
                yield
