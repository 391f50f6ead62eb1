"""Runs an integration on the bus: answers for it, and announces it while it runs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Literal, Self, TypeVar

from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.contracts.frames import (
    CarryDownlinks,
    FramesTold,
    TellDownlink,
    TellFrames,
    TellLink,
    ToldFrame,
)
from libs.common.contracts.integrations import (
    ANNOUNCE_EVERY,
    Acknowledged,
    AddDevice,
    CallService,
    DeviceCommand,
    DeviceRef,
    GetOwnValues,
    GetTsl,
    GotTsl,
    ListDevices,
    ListedDevices,
    Manifest,
    NewDevice,
    OwnValues,
    PropertiesUpdated,
    PutDevice,
    ServiceResult,
    TellEvent,
    TellOwnReport,
    TellReply,
    TellReport,
    announce_subject,
    tell_subject,
)
from libs.common.errors import MethodNotAllowed, ThingwayError
from libs.common.jobs import ended

log = logging.getLogger(__name__)

PAGE = 500


class IntegrationThings:
    """The things of one integration. Every call raises what `device` answers."""

    def __init__(self, rpc: RpcClient, integration: str) -> None:
        self._rpc = rpc
        self._id = integration

    async def report(
        self,
        tenant: str,
        identifier: str,
        properties: dict[str, Any],
        ts: int | None = None,
        *,
        report_id: str | None = None,
    ) -> None:
        """Report properties of a device (`ts` in ms); accepted when this returns.

        Told again with the same `report_id` within two minutes, it is stored once.
        """
        told = TellReport(
            tenant=tenant,
            identifier=identifier,
            properties=properties,
            ts=ts,
            report_id=report_id,
        )
        await self._rpc.call(tell_subject(self._id, "report"), told, Acknowledged)

    async def event(
        self,
        tenant: str,
        identifier: str,
        event_id: str,
        outputs: dict[str, Any],
        ts: int | None = None,
    ) -> None:
        """Tell an event of a device."""
        told = TellEvent(
            tenant=tenant, identifier=identifier, event_id=event_id, outputs=outputs, ts=ts
        )
        await self._rpc.call(tell_subject(self._id, "event"), told, Acknowledged)

    async def reply(
        self,
        tenant: str,
        identifier: str,
        command_id: int | str,
        status: Literal["SUCCESS", "FAILED"],
        *,
        outputs: dict[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        """Tell what became of a command."""
        told = TellReply(
            tenant=tenant,
            identifier=identifier,
            command_id=command_id,
            status=status,
            outputs=outputs,
            error=error,
        )
        await self._rpc.call(tell_subject(self._id, "reply"), told, Acknowledged)

    async def frames(self, frames: Sequence[ToldFrame]) -> FramesTold:
        """Tell up to 500 uplinks; all but the refused are accepted when this returns."""
        told = TellFrames(frames=list(frames))
        return await self._rpc.call(tell_subject(self._id, "frames"), told, FramesTold)

    async def downlink(self, told: TellDownlink) -> None:
        """Tell what became of a downlink."""
        await self._rpc.call(tell_subject(self._id, "downlink"), told, Acknowledged)

    async def link(self, told: TellLink) -> None:
        """Tell a join, or what a device answered about its state."""
        await self._rpc.call(tell_subject(self._id, "link"), told, Acknowledged)

    async def own_report(self, tenant: str, properties: dict[str, Any]) -> None:
        """Set properties of the integration itself, as far as its TSL has them."""
        told = TellOwnReport(tenant=tenant, properties=properties)
        await self._rpc.call(tell_subject(self._id, "own_report"), told, Acknowledged)

    async def own_values(self, tenant: str) -> OwnValues:
        """The latest values of the integration itself in a tenant."""
        return await self._rpc.call(
            tell_subject(self._id, "own_values"), GetOwnValues(tenant), OwnValues
        )

    async def put_device(self, tenant: str, name: str, device: NewDevice) -> DeviceRef:
        """Bring a device in that nobody asked for; open to built-in integrations only."""
        wanted = PutDevice(tenant=tenant, name=name, device=device)
        return await self._rpc.call(tell_subject(self._id, "put_device"), wanted, DeviceRef)

    async def tsl(self, tenant: str, identifier: str) -> dict[str, Any]:
        """The TSL document of a device."""
        wanted = GetTsl(tenant=tenant, identifier=identifier)
        return (await self._rpc.call(tell_subject(self._id, "get_tsl"), wanted, GotTsl)).tsl

    async def devices(self) -> AsyncIterator[DeviceRef]:
        """All devices of the integration, of all tenants, by id."""
        after = 0
        while True:
            wanted = ListDevices(after=after, limit=PAGE)
            subject = tell_subject(self._id, "list_devices")
            found = (await self._rpc.call(subject, wanted, ListedDevices)).devices
            for device in found:
                yield device
            if len(found) < PAGE:
                return
            after = found[-1].device_id


class Integration:
    """Base of integrations; override what the manifest promises.

    A handler refuses with an error of `libs.common.errors` (`InvalidInput` names the
    parameter); whoever asked gets it as it is. What it is asked may come twice when an
    answer was lost, so a handler that has done it already says so and not that it failed.
    """

    manifest: Manifest
    things: IntegrationThings
    """What it tells and asks of its devices and of itself; given by its host."""

    async def add_device(self, wanted: AddDevice) -> NewDevice:
        """Make ready for a device and say what it is; the platform stores it then."""
        raise MethodNotAllowed(f"integration {self.manifest.id} cannot add device!")

    async def delete_device(self, device: DeviceRef) -> None:
        """Let a device go; the platform removes it then."""

    async def call(self, wanted: CallService) -> ServiceResult:
        """Do what a service of the integration itself does."""
        raise MethodNotAllowed(f"integration {self.manifest.id} has no service that can be called")

    async def updated(self, change: PropertiesUpdated) -> None:
        """Hear that people changed properties of the integration."""

    async def command(self, wanted: DeviceCommand) -> None:
        """Carry a command to a device (`carries_commands`); its reply is told later."""
        raise MethodNotAllowed(f"integration {self.manifest.id} carries no commands")

    async def downlink(self, wanted: CarryDownlinks) -> None:
        """Queue bytes for a device (`carries_frames`); what becomes of them is told later."""
        raise MethodNotAllowed(f"integration {self.manifest.id} carries no frames")


Q = TypeVar("Q")
A = TypeVar("A")


class IntegrationHost:
    """One integration on one connection; several processes may host the same one."""

    def __init__(self, bus: Bus, integration: Integration) -> None:
        manifest = integration.manifest
        self._integration = integration
        self._client = RpcClient(bus)
        self._rpc = RpcServer(bus, f"integration.{manifest.id}", discovered=False)
        self._rpc.offer("add_device", AddDevice, _named(integration.add_device))
        self._rpc.offer("delete_device", DeviceRef, _acknowledged(integration.delete_device))
        self._rpc.offer("call", CallService, _named(integration.call))
        self._rpc.offer("updated", PropertiesUpdated, _named(_acknowledged(integration.updated)))
        self._rpc.offer("command", DeviceCommand, _acknowledged(integration.command))
        self._rpc.offer("downlink", CarryDownlinks, _acknowledged(integration.downlink))
        self._announcing: asyncio.Task[None] | None = None
        self.things = integration.things = IntegrationThings(self._client, manifest.id)
        """What the integration tells and asks."""

    async def start(self) -> None:
        """Answer, and announce; known to the platform when this returns, if it is there."""
        await self._rpc.start()
        await self._announce()
        self._announcing = asyncio.ensure_future(self._keep_announcing())

    async def stop(self) -> None:
        """Stop; the platform forgets it when the lease ends."""
        if self._announcing is not None:
            await ended(self._announcing)
        await self._rpc.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _keep_announcing(self) -> None:
        while True:
            await asyncio.sleep(ANNOUNCE_EVERY)
            await self._announce()

    async def _announce(self) -> None:
        manifest: Manifest = self._integration.manifest
        try:
            await self._client.call(announce_subject(manifest.id), manifest, Acknowledged)
        except ThingwayError as error:
            log.warning("integration %s is not announced: %s", manifest.id, error)


def _acknowledged(handle: Callable[[Q], Awaitable[None]]) -> Callable[[Q], Awaitable[Acknowledged]]:
    """Answer what `handle` has done."""

    async def acknowledging(wanted: Q) -> Acknowledged:
        await handle(wanted)
        return Acknowledged()

    return acknowledging


def _named(handle: Callable[[Q], Awaitable[A]]) -> Callable[[Q], Awaitable[A]]:
    """Begin a refusal with the input at fault, which is how the platform knows it.

    A sentence that happens to have the name in it ("a serial has no spaces") does not do.
    """

    async def naming(wanted: Q) -> A:
        try:
            return await handle(wanted)
        except ThingwayError as error:
            if error.field and not error.message.startswith(f"{error.field}: "):
                error.message = f"{error.field}: {error.message}"
            raise

    return naming
