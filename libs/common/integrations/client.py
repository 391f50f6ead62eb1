"""The known integrations, and calls of their operations over the bus."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from libs.common.bus import NoResponders, RpcClient
from libs.common.contracts.frames import Downlink, QueueDownlinks
from libs.common.contracts.integrations import (
    GET_INTEGRATIONS,
    Acknowledged,
    AddDevice,
    CallService,
    DeviceRef,
    GetIntegrations,
    Integration,
    IntegrationOperation,
    KnownIntegrations,
    Manifest,
    NewDevice,
    PropertiesUpdated,
    ServiceResult,
    operation_subject,
)
from libs.common.errors import ThingwayError, Unavailable, UpstreamFailed, UpstreamTimeout
from libs.common.things import DIRECT_INTEGRATION, SYSTEM_INTEGRATION
from libs.common.tsl import TslDocument, TslInvalid

log = logging.getLogger(__name__)

CACHE_SECONDS = 2.0
"""Seconds for which the list from `management` is cached."""
DEVICE_TIMEOUT_SECONDS = 10.0
"""Seconds that an integration may take to add or delete a device."""
UPDATE_TIMEOUT_SECONDS = 5.0
"""Seconds that an integration may take to accept changed properties."""

COMMAND_TIMEOUT_SECONDS = 5.0
"""Seconds that an integration may take to accept a command or downlinks."""

A = TypeVar("A")
CommandTransport = Literal["", "commands", "frames"]
"""The form in which an integration gets commands: empty for none, unchanged, or as encoded
frames."""


class IntegrationSummary(msgspec.Struct, frozen=True):
    """An integration in answers of `device`."""

    name: str
    deletable: bool = True
    """Whether its devices can be deleted."""
    carries_frames: bool = False
    """Whether its devices send bytes, which codecs decode."""


ALWAYS_KNOWN_INTEGRATIONS = {
    DIRECT_INTEGRATION: IntegrationSummary("Direct connection"),
    SYSTEM_INTEGRATION: IntegrationSummary("System"),
}
"""The integrations that always exist, and are known even without `management`."""


class Integrations:
    """The integrations that `management` knows; one instance per process."""

    def __init__(self, client: RpcClient) -> None:
        self._client = client
        self._found: Mapping[str, Integration] = {}
        self._until = 0.0
        self._asking = asyncio.Lock()

    async def list_all(self) -> Mapping[str, Integration]:
        """Return integrations by id, also stopped ones; raise the error of the request."""
        if time.monotonic() < self._until:
            return self._found
        async with self._asking:
            if time.monotonic() >= self._until:
                answer = await self._client.call(
                    GET_INTEGRATIONS, GetIntegrations(), KnownIntegrations
                )
                self._found = {found.manifest.id: found for found in answer.integrations}
                self._until = time.monotonic() + CACHE_SECONDS
        return self._found

    async def list_expected(self, integrations: Iterable[str]) -> Mapping[str, Integration]:
        """Return all integrations, read again if one of `integrations` is unknown or stopped."""
        integrations_by_id = await self.list_all()
        if any(
            name not in integrations_by_id or not integrations_by_id[name].alive
            for name in integrations
        ):
            self._until = 0.0
            integrations_by_id = await self.list_all()
        return integrations_by_id

    async def find(self, integration: str) -> Integration | None:
        """Return a running or stopped integration; None if it was never announced."""
        return (await self.list_expected([integration])).get(integration)

    async def get_transport(self, integration: str) -> CommandTransport:
        """Return the form in which an integration gets commands to its devices."""
        known_integration = (
            None if integration == DIRECT_INTEGRATION else (await self.list_all()).get(integration)
        )
        if known_integration is None:
            return ""
        if known_integration.manifest.carries_frames:
            return "frames"
        return "commands" if known_integration.manifest.carries_commands else ""

    async def list_by_name(self) -> list[str]:
        """Return the ids of integrations, sorted by name."""
        summaries = await self.list_summaries()
        return sorted(
            summaries, key=lambda integration: (summaries[integration].name or "", integration)
        )

    async def list_summaries(self) -> Mapping[str, IntegrationSummary]:
        """Return a summary of every known integration by id.

        Returns the last known integrations if `management` is unavailable. A stopped integration is
        `deletable`, even if it does not support this: its devices are deleted without it.
        """
        try:
            integrations_by_id = await self.list_all()
        except (Unavailable, UpstreamFailed) as error:
            log.warning("names of integrations may be outdated: %s", error)
            integrations_by_id = self._found
        summaries = {
            key: IntegrationSummary(
                integration.manifest.name,
                _may_delete_devices(integration),
                integration.manifest.carries_frames,
            )
            for key, integration in integrations_by_id.items()
        }
        return summaries or ALWAYS_KNOWN_INTEGRATIONS


def describe_stopped_integration(integration: str) -> str:
    """Return the error message for a stopped integration."""
    return f"integration {integration} is not running"


def _may_delete_devices(integration: Integration) -> bool:
    return not integration.alive or integration.manifest.delete_device_service is not None


class IntegrationClient:
    """Calls operations of integrations, and reports stopped, slow and failing ones."""

    def __init__(self, client: RpcClient, call_seconds: float) -> None:
        self._client = client
        self._call_seconds = call_seconds
        """Seconds that a service of an integration may take."""

    async def call_operation(
        self,
        integration: str,
        operation: IntegrationOperation,
        request: Any,
        answer: type[A],
        seconds: float,
    ) -> A:
        """Call an operation, and wait up to `seconds`; raise the integration's error.

        Also raises `NoResponders` if the integration is stopped, `UpstreamTimeout` after
        `seconds`, and `UpstreamFailed` for an invalid answer.
        """
        subject = operation_subject(integration, operation)
        try:
            return await self._client.call(subject, request, answer, seconds)
        except NoResponders as error:
            raise NoResponders(describe_stopped_integration(integration)) from error
        except Unavailable as error:
            if not isinstance(error.__cause__, TimeoutError):
                raise
            text = f"integration {integration} did not answer within {seconds:g} s"
            raise UpstreamTimeout(text) from error
        except ThingwayError as error:
            if error.status != ThingwayError.status:
                raise
            text = f"integration {integration} failed: {error.message}"
            raise UpstreamFailed(text) from error

    async def send_update(
        self, integration: str, tenant: str, thing_id: int, properties: dict[str, Any]
    ) -> None:
        """Send changed properties to an integration; raise its error.

        The caller stores them afterwards. If the integration does not answer, no error is
        raised: it reads the stored properties when it is back.
        """
        try:
            await self.send_secrets(integration, tenant, thing_id, properties)
        except (Unavailable, UpstreamTimeout) as error:
            log.warning("integration %s did not receive an update: %s", integration, error)

    async def send_secrets(
        self, integration: str, tenant: str, thing_id: int, properties: dict[str, Any]
    ) -> None:
        """Send changed properties with secrets, which only the integration stores.

        Raises the integration's error, or the reason why the message was not delivered.
        """
        change = PropertiesUpdated(tenant=tenant, thing_id=thing_id, properties=properties)
        await self.call_operation(
            integration, "updated", change, Acknowledged, UPDATE_TIMEOUT_SECONDS
        )

    async def call(
        self, integration: str, tenant: str, thing_id: int, service: str, inputs: dict[str, Any]
    ) -> Mapping[str, Any]:
        """Call a service of the integration itself; return its outputs."""
        request = CallService(tenant=tenant, thing_id=thing_id, service_id=service, inputs=inputs)
        answer = await self.call_operation(
            integration, "call", request, ServiceResult, self._call_seconds
        )
        return answer.outputs

    async def add_device(self, integration: str, request: AddDevice) -> NewDevice:
        """Let an integration prepare a new device; return the data of the device."""
        return await self.call_operation(
            integration, "add_device", request, NewDevice, DEVICE_TIMEOUT_SECONDS
        )

    async def queue_downlinks(
        self, integration: str, device: DeviceRef, downlinks: Sequence[Downlink]
    ) -> None:
        """Let an integration queue downlinks for a device; raise its error."""
        request = QueueDownlinks(device=device, downlinks=list(downlinks))
        await self.call_operation(
            integration, "downlink", request, Acknowledged, COMMAND_TIMEOUT_SECONDS
        )

    async def delete_device(self, integration: str, device: DeviceRef) -> None:
        """Let an integration delete a device."""
        await self.call_operation(
            integration, "delete_device", device, Acknowledged, DEVICE_TIMEOUT_SECONDS
        )


def parse_manifest_tsl(manifest: Manifest) -> TslDocument:
    """Return the manifest's TSL, which `management` has validated."""
    try:
        return manifest.document(stored=True)
    except TslInvalid as error:
        raise UpstreamFailed(f"the TSL of integration {manifest.id} is invalid") from error
