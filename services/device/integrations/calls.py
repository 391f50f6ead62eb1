"""What integrations are asked on behalf of users: about themselves, and for devices."""

import logging
from collections.abc import Mapping
from typing import Any

from libs.common.contracts.integrations import (
    Acknowledged,
    AddDevice,
    CallService,
    DeviceRef,
    NewDevice,
    PropertiesUpdated,
    ServiceResult,
)
from libs.common.errors import Unavailable, UpstreamTimeout
from services.device.integrations.asking import IntegrationClient

log = logging.getLogger(__name__)

DEVICE_SECONDS = 10.0
"""How long an integration may take to add or delete a device."""
UPDATE_SECONDS = 5.0
"""How long an integration may take to hear of changed properties."""


class IntegrationCallsOverRpc:
    """Asks over the bus."""

    def __init__(self, client: IntegrationClient, seconds: float) -> None:
        self._client = client
        self._seconds = seconds

    async def updated(
        self, integration: str, tenant: str, thing_id: int, properties: dict[str, Any]
    ) -> None:
        """Say that people changed properties; raises what the integration refuses with.

        They are stored already: one that is away reads them when it is back.
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
        await self._client.ask(integration, "updated", change, Acknowledged, UPDATE_SECONDS)

    async def call(
        self, integration: str, tenant: str, thing_id: int, service: str, inputs: dict[str, Any]
    ) -> Mapping[str, Any]:
        """Call a service of the integration itself; its outputs."""
        wanted = CallService(tenant=tenant, thing_id=thing_id, service_id=service, inputs=inputs)
        answer = await self._client.ask(integration, "call", wanted, ServiceResult, self._seconds)
        return answer.outputs

    async def add_device(self, integration: str, wanted: AddDevice) -> NewDevice:
        """Let an integration make ready for a device, and say what it is."""
        return await self._client.ask(integration, "add_device", wanted, NewDevice, DEVICE_SECONDS)

    async def delete_device(self, integration: str, device: DeviceRef) -> None:
        """Let an integration let a device go."""
        await self._client.ask(integration, "delete_device", device, Acknowledged, DEVICE_SECONDS)
