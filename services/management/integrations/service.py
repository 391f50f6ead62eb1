"""Operations on integrations for users and `auth`."""

from operator import attrgetter
from typing import Any

from libs.common.contracts.integrations import Manifest
from libs.common.contracts.names import (
    DescribedIntegration,
    DescribedIntegrations,
    DescribeIntegrations,
    DeviceCount,
)
from libs.common.device_client import DeviceClient
from libs.common.errors import Forbidden, NotFound
from libs.common.http.console import Page
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader
from libs.common.things import integration_key, member_key
from services.management.integrations.registry import Registry, parse_tsl
from services.management.integrations.schemas import (
    IntegrationDetail,
    IntegrationEntity,
    SearchIntegrations,
    ShownIntegration,
)

COLUMNS = {name: name for name in ("id", "name", "device_count", "entity_count")}
"""Properties by which a search can be sorted."""
_NONE = DeviceCount(devices=0, entities=0)


class IntegrationService:
    """The operations on integrations."""

    def __init__(self, registry: Registry, devices: DeviceClient, grants: GrantReader) -> None:
        self._registry = registry
        self._devices = devices
        self._grants = grants

    async def search(
        self, user: Principal, wanted: SearchIntegrations
    ) -> list[ShownIntegration] | Page[ShownIntegration]:
        """Return the running integrations that the user sees, or the requested page."""
        order = wanted.order(COLUMNS, [("id", 1)])
        grants = await self._grants.read(user)
        found = [
            manifest
            for manifest in await self._registry.list_visible()
            if grants.integration(manifest.id) and _matches(manifest, wanted)
        ]
        counts = await self._devices.count_devices(user.tenant) if found else {}
        shown = [
            ShownIntegration.from_fields(one, **_counted(one, counts.get(one.id, _NONE)))
            for one in found
        ]
        for column, direction in reversed(order):
            if column in COLUMNS:
                shown.sort(key=attrgetter(column), reverse=direction < 0)
        return wanted.cut(shown)

    async def get(self, user: Principal, integration: str) -> IntegrationDetail:
        """Return an integration with its entities; raise `NotFound` or `Forbidden`."""
        if not (await self._grants.read(user)).integration(integration):
            raise Forbidden("the user does not have data permission", field="integration_id")
        visible = await self._registry.list_visible()
        manifest = next((one for one in visible if one.id == integration), None)
        if manifest is None:
            raise NotFound(f"the integration {integration} does not exist", field="integration_id")
        counts = await self._devices.count_devices(user.tenant)
        entities = await self._devices.describe_integration(user.tenant, integration)
        return IntegrationDetail.from_fields(
            manifest,
            **_counted(manifest, counts.get(integration, _NONE)),
            integration_entities=[IntegrationEntity.from_fields(entity) for entity in entities],
        )

    async def describe(self, wanted: DescribeIntegrations) -> DescribedIntegrations:
        """Answer `auth` with integrations for roles, sorted by name."""
        keyword = wanted.keyword.casefold()
        ids = None if wanted.ids is None else frozenset(wanted.ids)
        found = [
            manifest
            for manifest in await self._registry.list_visible()
            if (ids is None or manifest.id in ids) and keyword in manifest.name.casefold()
        ]
        counts = await self._devices.count_devices(wanted.tenant) if found else {}
        return DescribedIntegrations(
            [
                DescribedIntegration(
                    id=one.id,
                    name=one.name,
                    devices=counts.get(one.id, _NONE).devices,
                    entities=_entity_count(one, counts.get(one.id, _NONE)),
                )
                for one in sorted(found, key=lambda one: (one.name.casefold(), one.id))
            ]
        )


def _matches(manifest: Manifest, wanted: SearchIntegrations) -> bool:
    addable = manifest.add_device_service is not None
    deletable = manifest.delete_device_service is not None
    return wanted.device_addable in {None, addable} and wanted.device_deletable in {None, deletable}


def _counted(manifest: Manifest, counts: DeviceCount) -> dict[str, Any]:
    """Return the fields of an answer that the manifest lacks."""
    devices, entities = counts.devices, _entity_count(manifest, counts)
    return {
        "add_device_service_key": _service_key(manifest, manifest.add_device_service),
        "delete_device_service_key": _service_key(manifest, manifest.delete_device_service),
        "device_count": devices,
        "entity_count": entities,
        "device_count_camel": devices,
        "entity_count_camel": entities,
    }


def _entity_count(manifest: Manifest, counts: DeviceCount) -> int:
    """Return the number of entities of the devices and of the integration itself."""
    tsl = parse_tsl(manifest)
    own = len(tsl.properties)
    own += sum(1 + len(event.outputs) for event in tsl.events)
    own += sum(1 + len(service.inputs) for service in tsl.services)
    return counts.entities + own


def _service_key(manifest: Manifest, service: str | None) -> str | None:
    return None if service is None else member_key(integration_key(manifest.id), service)
