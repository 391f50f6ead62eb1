"""What users may do with devices: those that they are granted, of the whole tenant."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from libs.common.clock import to_ms
from libs.common.errors import Forbidden, NotFound
from libs.common.http.console import Page
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from services.device.console.integrations import Integration, Integrations
from services.device.console.schemas import (
    DeviceDetail,
    DeviceEntity,
    RenameDevice,
    SearchDevices,
    ShownCredentials,
    ShownDevice,
)
from services.device.console.search import wanted_of
from services.device.devices.keys import issue_key
from services.device.devices.ports import CredentialsGateway
from services.device.things.model import Device, DeviceChanges
from services.device.things.store import DeviceStore


class GrantsOf(Protocol):
    """Knows what users see."""

    async def of(self, principal: Principal) -> Grants:
        """The grants of a user."""


class DeviceEntities(Protocol):
    """Knows the entities of devices."""

    async def of_device(self, device: Device) -> Sequence[DeviceEntity]:
        """The entities of a device, each parent before its children."""


class ConsoleDevices:
    """Devices on behalf of users."""

    def __init__(
        self,
        store: DeviceStore,
        grants: GrantsOf,
        entities: DeviceEntities,
        integrations: Integrations,
        credentials: CredentialsGateway,
    ) -> None:
        self._store = store
        self._grants = grants
        self._entities = entities
        self._integrations = integrations
        self._credentials = credentials

    async def search(self, principal: Principal, search: SearchDevices) -> Page[ShownDevice]:
        """One page of the devices that a user sees; a page is answered asked for or not."""
        grants = await self._grants.of(principal)
        wanted = wanted_of(principal.tenant, grants, search)
        integrations = await self._integrations.known()
        found, total = (
            ([], 0) if grants.nothing else await self._store.search(wanted.query, wanted.counted)
        )
        rows = [ShownDevice(**_fields(device, integrations)) for device in found]
        return Page(page_size=search.size, page_number=search.number, total=total, content=rows)

    async def get(self, principal: Principal, device_id: int) -> DeviceDetail:
        """A device with its entities."""
        device = await self._find(principal, device_id)
        entities = await self._entities.of_device(device)
        fields = _fields(device, await self._integrations.known())
        return DeviceDetail(**fields, entities=list(entities))

    async def rename(self, principal: Principal, device_id: int, body: RenameDevice) -> None:
        """Give a device another name, and tell of it; the same name changes nothing."""
        device = await self._find(principal, device_id)
        if device.name == body.name:
            return
        changes = DeviceChanges(name=body.name)
        if await self._store.update(principal.tenant, device_id, changes) is None:
            raise _not_found(device_id)

    async def issue_credentials(self, principal: Principal, device_id: int) -> ShownCredentials:
        """Make a new key for a device; the old one dies."""
        device = await self._find(principal, device_id)
        look = partial(self._find, principal, device_id)
        issued = await issue_key(self._credentials, device, look)
        return ShownCredentials(issued.sn, issued.key)

    async def _find(self, principal: Principal, device_id: int) -> Device:
        """The device, when the user sees it.

        Raises `Forbidden` for a user who sees nothing at all, else `NotFound`, as consoles
        expect it (notes, section 3.5).
        """
        grants = await self._grants.of(principal)
        if grants.nothing:
            raise Forbidden("user does not have data permission")
        device = await self._store.find(principal.tenant, device_id)
        if device is None or not grants.device(device_id, device.integration):
            raise _not_found(device_id)
        return device


def _not_found(device_id: int) -> NotFound:
    return NotFound(f"device {device_id} not found", field="device_id")


def _fields(device: Device, integrations: Mapping[str, Integration]) -> dict[str, Any]:
    """The fields of `ShownDevice`."""
    integration = integrations.get(device.integration)
    return {
        "id": str(device.id),
        "key": device.thing_key,
        "name": device.name,
        "integration": device.integration,
        "integration_name": integration.name if integration else None,
        "identifier": device.identifier,
        "additional_data": device.additional or {},
        "created_at": to_ms(device.created_at),
        "updated_at": to_ms(device.updated_at),
        "deletable": integration is None or integration.deletable,
    }
