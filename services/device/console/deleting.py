"""Deletes devices: their integrations let them go first (notes, section 3.7)."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from libs.common.contracts.integrations import DeviceRef
from libs.common.errors import InvalidInput, ThingwayError
from libs.common.http.console import ids_of
from libs.common.identity import Principal
from services.device.console.adding import Integrations
from services.device.console.schemas import DeleteDevices
from services.device.console.service import GrantsOf
from services.device.devices.keys import delete_with_key
from services.device.devices.ports import CredentialsGateway
from services.device.integrations.tells import ref_of
from services.device.things.model import Device
from services.device.things.store import DeviceStore


class Removers(Protocol):
    """Asks integrations to let devices go."""

    async def delete_device(self, integration: str, device: DeviceRef) -> None:
        """Let a device go."""


class Forgetting(Protocol):
    """Keeps grants."""

    async def forget_devices(self, tenant: str, ids: Sequence[int]) -> None:
        """They are gone, so are their grants."""


class DeviceDeleter:
    """Deletes devices on behalf of users."""

    def __init__(
        self,
        *,
        integrations: Integrations,
        removers: Removers,
        devices: DeviceStore,
        credentials: CredentialsGateway,
        forgetting: Forgetting,
        grants: GrantsOf,
    ) -> None:
        self._integrations = integrations
        self._removers = removers
        self._devices = devices
        self._credentials = credentials
        self._forgetting = forgetting
        self._grants = grants

    async def delete(self, principal: Principal, body: DeleteDevices) -> None:
        """Delete the devices that the user sees; what is unknown is passed over.

        Nothing is deleted when one cannot be. When an integration fails in between, the
        devices before that one are gone and the error names it.
        """
        grants = await self._grants.of(principal)
        ids = sorted(ids_of(body.device_id_list))
        found = [
            device
            for device in await self._devices.find_all(principal.tenant, ids)
            if grants.device(device.id, device.integration)
        ]
        asked = {one: await self._asks(one) for one in {device.integration for device in found}}
        gone: list[int] = []
        try:
            for device in found:
                await self._delete(device, asks=asked[device.integration])
                gone.append(device.id)
        finally:
            await self._forgetting.forget_devices(principal.tenant, gone)

    async def _asks(self, integration: str) -> bool:
        """Whether the integration is asked; it is not when it is not there any more."""
        found = await self._integrations.find(integration)
        if found is None or not found.alive:
            return False
        if found.manifest.delete_device_service is None:
            raise InvalidInput(
                f"integration {integration} cannot delete device!",
                field="device_id_list",
                code="method_not_allowed",
            )
        return True

    async def _delete(self, device: Device, *, asks: bool) -> None:
        if asks:
            try:
                await self._removers.delete_device(device.integration, ref_of(device))
            except ThingwayError as error:
                error.field = error.field or f"device_id_list.{device.id}"
                raise
        delete = partial(self._devices.delete, device.tenant, device.id)
        await delete_with_key(self._credentials, device, delete)
