"""Which integrations there are, and what they are asked over the bus."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from libs.common.bus import NobodyAnswers, RpcClient
from libs.common.contracts.frames import CarryDownlinks, Downlink
from libs.common.contracts.integrations import (
    GET_INTEGRATIONS,
    Acknowledged,
    AddDevice,
    CallService,
    DeviceRef,
    GetIntegrations,
    Integration,
    KnownIntegrations,
    Manifest,
    NewDevice,
    Operation,
    PropertiesUpdated,
    ServiceResult,
    operation_subject,
)
from libs.common.errors import ThingwayError, Unavailable, UpstreamFailed, UpstreamTimeout
from libs.common.things import DIRECT, SYSTEM
from libs.common.tsl import TslDocument, TslInvalid

log = logging.getLogger(__name__)

FRESH = 2.0
"""Seconds for which it holds what `management` said of the integrations."""
DEVICE_SECONDS = 10.0
"""How long an integration may take to add or delete a device."""
UPDATE_SECONDS = 5.0
"""How long an integration may take to hear of changed properties."""

CARRY_SECONDS = 5.0
"""How long an integration may take to accept a command or downlinks."""

A = TypeVar("A")
Carries = Literal["", "commands", "frames"]
"""Nothing, commands as they are, or the bytes that codecs make of them."""


class ShownIntegration(msgspec.Struct, frozen=True):
    """An integration, as answers show it."""

    name: str
    deletable: bool = True
    """Whether its devices can be deleted."""
    carries_frames: bool = False
    """Whether its devices send bytes, which codecs read."""


BUILT_IN = {
    DIRECT: ShownIntegration("Direct connection"),
    SYSTEM: ShownIntegration("System"),
}
"""The integrations that are always there: all that is known while `management` is silent."""


class Integrations:
    """Knows the integrations as `management` does; one per process."""

    def __init__(self, client: RpcClient) -> None:
        self._client = client
        self._found: Mapping[str, Integration] = {}
        self._until = 0.0
        self._asking = asyncio.Lock()

    async def all(self) -> Mapping[str, Integration]:
        """The integrations by id, silent ones too; raise `Unavailable` when nobody knows."""
        if time.monotonic() < self._until:
            return self._found
        async with self._asking:
            if time.monotonic() >= self._until:
                answer = await self._client.call(
                    GET_INTEGRATIONS, GetIntegrations(), KnownIntegrations
                )
                self._found = {found.manifest.id: found for found in answer.integrations}
                self._until = time.monotonic() + FRESH
        return self._found

    async def expecting(self, integrations: Iterable[str]) -> Mapping[str, Integration]:
        """All of them, asked anew when one of `integrations` is not there: it may just come."""
        found = await self.all()
        if any(name not in found or not found[name].alive for name in integrations):
            self._until = 0.0
            found = await self.all()
        return found

    async def find(self, integration: str) -> Integration | None:
        """The integration, there or silent; None when it was never announced."""
        return (await self.expecting([integration])).get(integration)

    async def carries(self, integration: str) -> Carries:
        """What of commands to its devices goes to the integration."""
        found = None if integration == DIRECT else (await self.all()).get(integration)
        if found is None:
            return ""
        if found.manifest.carries_frames:
            return "frames"
        return "commands" if found.manifest.carries_commands else ""

    async def by_name(self) -> list[str]:
        """Return the ids of integrations in the order of their names."""
        known = await self.known()
        return sorted(known, key=lambda one: (known[one].name or "", one))

    async def known(self) -> Mapping[str, ShownIntegration]:
        """As lists show them: what was known last when `management` is silent.

        Devices of an integration that is gone can be deleted, whatever it could do.
        """
        try:
            found = await self.all()
        except (Unavailable, UpstreamFailed) as error:
            log.warning("names of integrations may be old: %s", error)
            found = self._found
        shown = {
            key: ShownIntegration(
                known.manifest.name, _deletable(known), known.manifest.carries_frames
            )
            for key, known in found.items()
        }
        return shown or BUILT_IN


def away(integration: str) -> str:
    """What is said of an integration that is not there."""
    return f"integration {integration} is not there at the moment"


def _deletable(integration: Integration) -> bool:
    return not integration.alive or integration.manifest.delete_device_service is not None


class IntegrationClient:
    """Asks integrations, and says clearly when one is away, late or out of its mind."""

    def __init__(self, client: RpcClient, call_seconds: float) -> None:
        self._client = client
        self._call_seconds = call_seconds
        """How long a service of an integration may take."""

    async def ask(
        self, integration: str, operation: Operation, request: Any, answer: type[A], seconds: float
    ) -> A:
        """Ask, and wait up to `seconds`; raises what the integration refuses with.

        Besides that `NobodyAnswers` when it is not there, `UpstreamTimeout` when it is late and
        `UpstreamFailed` when it answers nonsense.
        """
        subject = operation_subject(integration, operation)
        try:
            return await self._client.call(subject, request, answer, seconds)
        except NobodyAnswers as error:
            raise NobodyAnswers(away(integration)) from error
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

    async def updated(
        self, integration: str, tenant: str, thing_id: int, properties: dict[str, Any]
    ) -> None:
        """Say that people changed properties; raises what the integration refuses with.

        They are stored after it: one that is away reads them when it is back.
        """
        try:
            await self.entrust(integration, tenant, thing_id, properties)
        except (Unavailable, UpstreamTimeout) as error:
            log.warning("integration %s has not heard of an update: %s", integration, error)

    async def entrust(
        self, integration: str, tenant: str, thing_id: int, properties: dict[str, Any]
    ) -> None:
        """Say that people changed properties, secrets among them, which are kept nowhere else.

        Raises what the integration refuses with, and what says that it was not told.
        """
        change = PropertiesUpdated(tenant=tenant, thing_id=thing_id, properties=properties)
        await self.ask(integration, "updated", change, Acknowledged, UPDATE_SECONDS)

    async def call(
        self, integration: str, tenant: str, thing_id: int, service: str, inputs: dict[str, Any]
    ) -> Mapping[str, Any]:
        """Call a service of the integration itself; its outputs."""
        wanted = CallService(tenant=tenant, thing_id=thing_id, service_id=service, inputs=inputs)
        answer = await self.ask(integration, "call", wanted, ServiceResult, self._call_seconds)
        return answer.outputs

    async def add_device(self, integration: str, wanted: AddDevice) -> NewDevice:
        """Let an integration make ready for a device, and say what it is."""
        return await self.ask(integration, "add_device", wanted, NewDevice, DEVICE_SECONDS)

    async def carry(self, integration: str, device: DeviceRef, some: Sequence[Downlink]) -> None:
        """Let an integration queue downlinks for a device; raises what it refuses with."""
        wanted = CarryDownlinks(device=device, downlinks=list(some))
        await self.ask(integration, "downlink", wanted, Acknowledged, CARRY_SECONDS)

    async def delete_device(self, integration: str, device: DeviceRef) -> None:
        """Let an integration let a device go."""
        await self.ask(integration, "delete_device", device, Acknowledged, DEVICE_SECONDS)


def tsl_of(manifest: Manifest) -> TslDocument:
    """The manifest's TSL; `management` takes none that is broken."""
    try:
        return manifest.document(stored=True)
    except TslInvalid as error:
        raise UpstreamFailed(f"the TSL of integration {manifest.id} is broken") from error
