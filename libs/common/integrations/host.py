"""Runs an integration on the bus: answers for it, and announces it while it runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.contracts.frames import CarryDownlinks
from libs.common.contracts.integrations import (
    ANNOUNCE_EVERY,
    Acknowledged,
    AddDevice,
    CallService,
    DeviceCommand,
    DeviceRef,
    Manifest,
    NewDevice,
    PropertiesUpdated,
    ServiceResult,
    announce_subject,
)
from libs.common.errors import MethodNotAllowed, ThingwayError
from libs.common.integrations.things import IntegrationThings
from libs.common.jobs import ended

log = logging.getLogger(__name__)


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
