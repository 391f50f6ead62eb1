"""Running an integration on the bus, which announces it while it runs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Literal, Self, TypeVar

from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.contracts.frames import (
    DeviceFrame,
    FramesAnswer,
    QueueDownlinks,
    SendDownlinkState,
    SendFrames,
    SendLinkState,
)
from libs.common.contracts.integrations import (
    ANNOUNCE_INTERVAL_SECONDS,
    Acknowledged,
    AddDevice,
    CallService,
    DeviceCommand,
    DeviceRef,
    DeviceTsl,
    GetOwnValues,
    GetTsl,
    ListDevices,
    ListedDevices,
    Manifest,
    NewDevice,
    OwnValues,
    PropertiesUpdated,
    PutDevice,
    SendEvent,
    SendOwnReport,
    SendReply,
    SendReport,
    ServiceResult,
    announce_subject,
    device_subject,
)
from libs.common.errors import MethodNotAllowed, ThingwayError
from libs.common.jobs import cancel_and_wait, seconds_to_tick

log = logging.getLogger(__name__)

DEVICES_PER_PAGE = 500


class IntegrationThings:
    """Calls to `device` about an integration's things; they raise the errors of `device`."""

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

        Reports with the same `report_id` within two minutes are stored once.
        """
        request = SendReport(
            tenant=tenant,
            identifier=identifier,
            properties=properties,
            ts=ts,
            report_id=report_id,
        )
        await self._rpc.call(device_subject(self._id, "report"), request, Acknowledged)

    async def send_event(
        self,
        tenant: str,
        identifier: str,
        event_id: str,
        outputs: dict[str, Any],
        ts: int | None = None,
    ) -> None:
        """Report an event of a device."""
        request = SendEvent(
            tenant=tenant, identifier=identifier, event_id=event_id, outputs=outputs, ts=ts
        )
        await self._rpc.call(device_subject(self._id, "event"), request, Acknowledged)

    async def send_reply(
        self,
        tenant: str,
        identifier: str,
        command_id: int | str,
        status: Literal["SUCCESS", "FAILED"],
        *,
        outputs: dict[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        """Report the result of a command."""
        request = SendReply(
            tenant=tenant,
            identifier=identifier,
            command_id=command_id,
            status=status,
            outputs=outputs,
            error=error,
        )
        await self._rpc.call(device_subject(self._id, "reply"), request, Acknowledged)

    async def send_frames(self, frames: Sequence[DeviceFrame]) -> FramesAnswer:
        """Send up to 500 uplinks; all but the rejected are accepted when this returns."""
        request = SendFrames(frames=list(frames))
        return await self._rpc.call(device_subject(self._id, "frames"), request, FramesAnswer)

    async def send_downlink_state(self, request: SendDownlinkState) -> None:
        """Report the state of a downlink."""
        await self._rpc.call(device_subject(self._id, "downlink"), request, Acknowledged)

    async def send_link_state(self, request: SendLinkState) -> None:
        """Report a join, or a device's answer to a status request."""
        await self._rpc.call(device_subject(self._id, "link"), request, Acknowledged)

    async def report_own(self, tenant: str, properties: dict[str, Any]) -> None:
        """Set properties of the integration itself; unknown properties are ignored."""
        request = SendOwnReport(tenant=tenant, properties=properties)
        await self._rpc.call(device_subject(self._id, "own_report"), request, Acknowledged)

    async def get_own_values(self, tenant: str) -> OwnValues:
        """Return the latest values of the integration itself in a tenant."""
        return await self._rpc.call(
            device_subject(self._id, "own_values"), GetOwnValues(tenant), OwnValues
        )

    async def put_device(self, tenant: str, name: str, device: NewDevice) -> DeviceRef:
        """Add or update a device that the integration, a built-in one, discovered."""
        request = PutDevice(tenant=tenant, name=name, device=device)
        return await self._rpc.call(device_subject(self._id, "put_device"), request, DeviceRef)

    async def get_tsl(self, tenant: str, identifier: str) -> dict[str, Any]:
        """Return the TSL document of a device."""
        request = GetTsl(tenant=tenant, identifier=identifier)
        return (await self._rpc.call(device_subject(self._id, "get_tsl"), request, DeviceTsl)).tsl

    async def list_devices(self) -> AsyncIterator[DeviceRef]:
        """Yield the integration's devices in all tenants, in the order of their ids."""
        after = 0
        while True:
            request = ListDevices(after=after, limit=DEVICES_PER_PAGE)
            subject = device_subject(self._id, "list_devices")
            devices = (await self._rpc.call(subject, request, ListedDevices)).devices
            for device in devices:
                yield device
            if len(devices) < DEVICES_PER_PAGE:
                return
            after = devices[-1].device_id


class Integration:
    """Base of integrations; override the methods that the manifest announces.

    A handler rejects a request with an error of `libs.common.errors` (`InvalidInput` with the
    parameter), which the caller receives. A request may be repeated after an answer was lost, so
    repeated requests must succeed.
    """

    manifest: Manifest
    things: IntegrationThings
    """Reports and requests for its devices and itself; set by its host."""

    async def add_device(self, request: AddDevice) -> NewDevice:
        """Prepare a new device and return its data; the platform then stores it."""
        raise MethodNotAllowed(f"integration {self.manifest.id} does not add devices")

    async def delete_device(self, device: DeviceRef) -> None:
        """Delete a device; the platform then removes it."""

    async def call(self, request: CallService) -> ServiceResult:
        """Run a service of the integration itself."""
        raise MethodNotAllowed(f"integration {self.manifest.id} has no services")

    async def updated(self, change: PropertiesUpdated) -> None:
        """Process properties of the integration that users changed."""

    async def command(self, request: DeviceCommand) -> None:
        """Send a command to a device (`carries_commands`), and report its result later."""
        raise MethodNotAllowed(f"integration {self.manifest.id} does not carry commands")

    async def downlink(self, request: QueueDownlinks) -> None:
        """Queue frames for a device (`carries_frames`), and report their state later."""
        raise MethodNotAllowed(f"integration {self.manifest.id} does not carry frames")


Q = TypeVar("Q")
A = TypeVar("A")
Announce = Callable[[str, Manifest], Awaitable[Acknowledged]]
"""Announces the manifest of the integration with the given id."""


class IntegrationHost:
    """An integration on one connection; several processes may host it."""

    def __init__(
        self, bus: Bus, integration: Integration, announce: Announce | None = None
    ) -> None:
        """`announce` replaces the request on the bus, and raises `ThingwayError`."""
        manifest = integration.manifest
        self._integration = integration
        self._client = RpcClient(bus)
        self._rpc = RpcServer(bus, f"integration.{manifest.id}", discovered=False)
        self._rpc.offer("add_device", AddDevice, _name_errors(integration.add_device))
        self._rpc.offer("delete_device", DeviceRef, _acknowledge(integration.delete_device))
        self._rpc.offer("call", CallService, _name_errors(integration.call))
        self._rpc.offer(
            "updated", PropertiesUpdated, _name_errors(_acknowledge(integration.updated))
        )
        self._rpc.offer("command", DeviceCommand, _acknowledge(integration.command))
        self._rpc.offer("downlink", QueueDownlinks, _acknowledge(integration.downlink))
        self._send_announcement = announce or self._announce_on_bus
        self._announcing: asyncio.Task[None] | None = None
        self.things = integration.things = IntegrationThings(self._client, manifest.id)
        """Calls to `device` about the integration's things."""

    async def start(self) -> None:
        """Answer calls and announce the integration to the platform."""
        await self._rpc.start()
        await self._announce()
        self._announcing = asyncio.ensure_future(self._keep_announcing())

    async def stop(self) -> None:
        """Stop; the platform considers it stopped when the announcement expires."""
        if self._announcing is not None:
            await cancel_and_wait(self._announcing)
        await self._rpc.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _keep_announcing(self) -> None:
        while True:
            await asyncio.sleep(seconds_to_tick(ANNOUNCE_INTERVAL_SECONDS))
            await self._announce()

    async def _announce(self) -> None:
        manifest: Manifest = self._integration.manifest
        try:
            await self._send_announcement(manifest.id, manifest)
        except ThingwayError as error:
            log.warning("integration %s could not be announced: %s", manifest.id, error)

    async def _announce_on_bus(self, integration: str, manifest: Manifest) -> Acknowledged:
        return await self._client.call(announce_subject(integration), manifest, Acknowledged)


def _acknowledge(handle: Callable[[Q], Awaitable[None]]) -> Callable[[Q], Awaitable[Acknowledged]]:
    """Return a handler that runs `handle` and acknowledges."""

    async def acknowledge(request: Q) -> Acknowledged:
        await handle(request)
        return Acknowledged()

    return acknowledge


def _name_errors(handle: Callable[[Q], Awaitable[A]]) -> Callable[[Q], Awaitable[A]]:
    """Return a handler whose errors begin with the name of the invalid input.

    It is not sufficient that the message contains the name ("a serial has no spaces").
    """

    async def name_error(request: Q) -> A:
        try:
            return await handle(request)
        except ThingwayError as error:
            if error.field and not error.message.startswith(f"{error.field}: "):
                error.message = f"{error.field}: {error.message}"
            raise

    return name_error
