"""What a role shows, and what it could show, with the names that the owners know."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from libs.common.contracts.access import ResourceType
from libs.common.contracts.names import (
    HIDDEN_INTEGRATION,
    DescribedDashboard,
    DescribedDevice,
    DescribeDevices,
    DescribedIntegration,
)
from libs.common.identity import Caller
from services.auth.accounts import Accounts
from services.auth.accounts.users import Person
from services.auth.grants.owners import Owners
from services.auth.roles.schemas import Search
from services.auth.roles.service import RoleService

T = TypeVar("T")

_INTEGRATION_COLUMNS = {
    "id": "id",
    "integration_id": "id",
    "integration_name": "name",
    "device_num": "devices",
    "entity_num": "entities",
}
_DEVICE_COLUMNS = {
    "id": "id",
    "device_id": "id",
    "name": "name",
    "device_name": "name",
    "created_at": "createdAt",
    "integration_name": "integrationName",
}
_DASHBOARD_COLUMNS = {
    "id": "id",
    "dashboard_id": "id",
    "dashboard_name": "name",
    "created_at": "created_at",
}
"""What each list may be sorted by."""
_BY_NAME = (("name", 1),)


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device of a list."""

    device: DescribedDevice
    integration_name: str
    person: Person | None
    """Who added it, when that user is still there."""
    through_another: bool
    """Whether the role has its integration or its group."""


class Listings:
    """Resources of the roles of the caller's tenant; each raises `NotFound` without the role."""

    def __init__(self, roles: RoleService, accounts: Accounts, owners: Owners) -> None:
        self._roles = roles
        self._grants = accounts.grants
        self._users = accounts.users
        self._owners = owners

    async def integrations(
        self, caller: Caller, role_id: int, wanted: Search
    ) -> list[DescribedIntegration]:
        """Every integration that a role is granted."""
        granted = await self._granted(caller, role_id, ResourceType.INTEGRATION)
        visible = [integration for integration in granted if integration != HIDDEN_INTEGRATION]
        order = wanted.order(_INTEGRATION_COLUMNS, _BY_NAME)
        if not visible:
            return []
        tenant = caller.principal.tenant
        found = await self._owners.integrations(tenant, visible, wanted.keyword or "")
        return _ordered(found, order)

    async def other_integrations(
        self, caller: Caller, role_id: int, wanted: Search
    ) -> list[DescribedIntegration]:
        """Every integration that a role is not granted."""
        granted = await self._granted(caller, role_id, ResourceType.INTEGRATION)
        order = wanted.order(_INTEGRATION_COLUMNS, _BY_NAME)
        tenant = caller.principal.tenant
        found = await self._owners.integrations(tenant, keyword=wanted.keyword or "")
        hidden = {HIDDEN_INTEGRATION, *granted}
        return _ordered([each for each in found if each.id not in hidden], order)

    async def dashboards(
        self, caller: Caller, role_id: int, wanted: Search
    ) -> tuple[list[DescribedDashboard], dict[int, Person]]:
        """Every dashboard that a role is granted, and who made them."""
        granted = await self._granted(caller, role_id, ResourceType.DASHBOARD)
        order = wanted.order(_DASHBOARD_COLUMNS, _BY_NAME)
        if not granted:
            return [], {}
        tenant = caller.principal.tenant
        found = await self._owners.dashboards(tenant, granted, wanted.keyword or "")
        return _ordered(found, order), await self._makers(caller, found)

    async def other_dashboards(
        self, caller: Caller, role_id: int, wanted: Search
    ) -> tuple[list[DescribedDashboard], dict[int, Person]]:
        """Every dashboard that a role is not granted, and who made them."""
        granted = set(await self._granted(caller, role_id, ResourceType.DASHBOARD))
        order = wanted.order(_DASHBOARD_COLUMNS, _BY_NAME)
        tenant = caller.principal.tenant
        found = await self._owners.dashboards(tenant, keyword=wanted.keyword or "")
        others = [dashboard for dashboard in found if dashboard.id not in granted]
        return _ordered(others, order), await self._makers(caller, others)

    async def devices(
        self, caller: Caller, role_id: int, wanted: Search
    ) -> tuple[list[DeviceRow], int]:
        """The page of the devices that a role shows: granted, or of what is granted."""
        granted = await self._granted(caller, role_id, ResourceType.DEVICE)
        integrations = await self._granted(caller, role_id, ResourceType.INTEGRATION)
        groups = await self._granted(caller, role_id, ResourceType.DEVICE_GROUP)
        request = await self._request(caller, wanted)
        if not granted and not integrations and not groups:
            return [], 0
        request.ids, request.integrations, request.groups = granted, integrations, groups
        return await self._rows(caller, request, {*integrations, *groups})

    async def other_devices(
        self, caller: Caller, role_id: int, wanted: Search
    ) -> tuple[list[DeviceRow], int]:
        """The page of the devices that a role does not show."""
        request = await self._request(caller, wanted)
        request.exclude_ids = await self._granted(caller, role_id, ResourceType.DEVICE)
        integrations = await self._granted(caller, role_id, ResourceType.INTEGRATION)
        request.exclude_integrations = integrations
        groups = await self._granted(caller, role_id, ResourceType.DEVICE_GROUP)
        request.exclude_groups = groups
        return await self._rows(caller, request, set())

    async def _granted(self, caller: Caller, role_id: int, kind: ResourceType) -> list[Any]:
        await self._roles.get(caller, role_id)
        return await self._grants.of_role(caller.principal.tenant, role_id, kind)

    async def _request(self, caller: Caller, wanted: Search) -> DescribeDevices:
        tenant, keyword = caller.principal.tenant, wanted.keyword or ""
        order = wanted.order(_DEVICE_COLUMNS, ())
        named = await self._owners.integrations(tenant, keyword=keyword) if keyword else []
        return DescribeDevices(
            tenant=tenant,
            keyword=keyword,
            keyword_integrations=[integration.id for integration in named],
            skip=wanted.skip,
            limit=wanted.limit,
            order=[(field, way) for field, way in order if field != "_id"],
        )

    async def _rows(
        self, caller: Caller, request: DescribeDevices, granted: Container[str | int | None]
    ) -> tuple[list[DeviceRow], int]:
        found = await self._owners.devices(request)
        ids = sorted({device.integration for device in found.devices})
        described = await self._owners.integrations(request.tenant, ids) if ids else []
        names = {integration.id: integration.name for integration in described}
        makers = await self._makers(caller, found.devices)
        rows = [
            DeviceRow(
                device,
                names.get(device.integration, device.integration),
                makers.get(device.user_id or 0),
                device.integration in granted or device.group in granted,
            )
            for device in found.devices
        ]
        return rows, found.total

    async def _makers(
        self, caller: Caller, found: Iterable[DescribedDevice | DescribedDashboard]
    ) -> dict[int, Person]:
        ids = {each.user_id for each in found if each.user_id is not None}
        return await self._users.people(caller.principal.tenant, sorted(ids)) if ids else {}


def _ordered(found: Sequence[T], order: Sequence[tuple[str, int]]) -> list[T]:
    """Sort by several criteria: a stable sort for each, the last one first."""
    rows = list(found)
    for field, way in reversed(order):
        if field != "_id":
            rows.sort(key=attrgetter(field), reverse=way < 0)
    return rows
