"""Resources that a role is granted or could be granted, with their names."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from libs.common.bus import NoResponders, RpcClient
from libs.common.contracts import names
from libs.common.contracts.access import ResourceType
from libs.common.contracts.integrations import GET_INTEGRATIONS, GetIntegrations, KnownIntegrations
from libs.common.contracts.names import (
    HIDDEN_INTEGRATION,
    DescribedDashboard,
    DescribedDevice,
    DescribeDevices,
    DescribedIntegration,
)
from libs.common.device_client import DeviceClient
from libs.common.http.console import MAX_PAGE_ROWS
from libs.common.identity import Caller
from services.auth.accounts import Accounts
from services.auth.accounts.grants import Resource
from services.auth.accounts.users import UserSummary
from services.auth.grants.schemas import CandidateDevice, RoleDashboard, RoleDevice
from services.auth.roles.service import KeywordSearch, RoleService

MAX_RESOURCES_PER_REQUEST = 200
"""Resources per request, so that the response fits into one NATS message."""


@dataclass(frozen=True)
class ResourceOwnerClient:
    """Client of `device`, `management` and `workflow`.

    Each method raises `Unavailable` if a service does not respond in time.
    """

    rpc: RpcClient

    async def list_devices(self, request: names.DescribeDevices) -> names.DescribedDevices:
        """Return the requested devices and their total, in as many requests as needed.

        A limit of 0 means `MAX_PAGE_ROWS` devices.
        """
        maximum = request.limit or MAX_PAGE_ROWS
        part = msgspec.structs.replace(request, limit=min(maximum, names.MAX_DESCRIBED_DEVICES))
        described = await self.rpc.call(names.DESCRIBE_DEVICES, part, names.DescribedDevices)
        newest = described.devices
        while len(newest) == part.limit and len(described.devices) < maximum:
            part.skip = request.skip + len(described.devices)
            part.limit = min(maximum - len(described.devices), names.MAX_DESCRIBED_DEVICES)
            part.counted = False
            newest = (
                await self.rpc.call(names.DESCRIBE_DEVICES, part, names.DescribedDevices)
            ).devices
            described.devices.extend(newest)
        return described

    async def list_integrations(
        self, tenant: str, ids: Sequence[str] | None = None, keyword: str = ""
    ) -> list[names.DescribedIntegration]:
        """Return integrations sorted by name; empty if no service offers integrations."""
        request = names.DescribeIntegrations(tenant, None if ids is None else list(ids), keyword)
        try:
            described = await self.rpc.call(
                names.DESCRIBE_INTEGRATIONS, request, names.DescribedIntegrations
            )
        except NoResponders:
            return []
        return described.integrations

    async def list_dashboards(
        self, tenant: str, ids: Sequence[int] | None = None, keyword: str = ""
    ) -> list[names.DescribedDashboard]:
        """Return dashboards sorted by name; empty if no service offers dashboards."""
        try:
            return await self._request_dashboards(tenant, ids, keyword)
        except NoResponders:
            return []

    async def _request_dashboards(
        self, tenant: str, ids: Sequence[int] | None, keyword: str = ""
    ) -> list[names.DescribedDashboard]:
        request = names.DescribeDashboards(tenant, None if ids is None else list(ids), keyword)
        described = await self.rpc.call(
            names.DESCRIBE_DASHBOARDS, request, names.DescribedDashboards
        )
        return described.dashboards

    async def find_missing(self, tenant: str, resources: Sequence[Resource]) -> list[Resource]:
        """Return those of `resources` that do not exist, in the order of `resources`.

        Resources whose service does not run count as existing.
        """
        ids: dict[ResourceType, list[Any]] = defaultdict(list)
        for resource in resources:
            ids[resource.type].append(resource.id)
        existing: set[Resource] = set()
        for kind, resource_ids in ids.items():
            for first in range(0, len(resource_ids), MAX_RESOURCES_PER_REQUEST):
                part = resource_ids[first : first + MAX_RESOURCES_PER_REQUEST]
                try:
                    found = await self._find_existing(kind, tenant, part)
                except NoResponders:
                    found = part
                existing |= {Resource(kind, each) for each in found}
        return [resource for resource in resources if resource not in existing]

    async def _find_existing(self, kind: ResourceType, tenant: str, ids: list[Any]) -> list[Any]:
        match kind:
            case ResourceType.DEVICE:
                devices = await DeviceClient(self.rpc).describe_devices(tenant, ids)
                return [device.id for device in devices]
            case ResourceType.DEVICE_GROUP:
                groups = await self.rpc.call(
                    names.DESCRIBE_GROUPS, names.DescribeGroups(tenant, ids), names.DescribedGroups
                )
                return groups.ids
            case ResourceType.ENTITY:
                entities = await DeviceClient(self.rpc).resolve(tenant, ids=ids)
                return [entity.id for entity in entities]
            case ResourceType.INTEGRATION:
                integrations = await self.rpc.call(
                    GET_INTEGRATIONS, GetIntegrations(), KnownIntegrations
                )
                return [integration.manifest.id for integration in integrations.integrations]
            case ResourceType.DASHBOARD:
                return [dashboard.id for dashboard in await self._request_dashboards(tenant, ids)]
            case ResourceType.WORKFLOW:
                flows = await self.rpc.call(
                    names.DESCRIBE_FLOWS, names.DescribeFlows(tenant, ids), names.DescribedFlows
                )
                return flows.ids


T = TypeVar("T")

_INTEGRATION_FIELD_BY_COLUMN = {
    "id": "id",
    "integration_id": "id",
    "integration_name": "name",
    "device_num": "devices",
    "entity_num": "entities",
}
_DEVICE_FIELD_BY_COLUMN = {
    "id": "id",
    "device_id": "id",
    "name": "name",
    "device_name": "name",
    "created_at": "createdAt",
    "integration_name": "integrationName",
}
_DASHBOARD_FIELD_BY_COLUMN = {
    "id": "id",
    "dashboard_id": "id",
    "dashboard_name": "name",
    "created_at": "created_at",
}
"""Each mapping above: field of a described resource, by the name of a sortable column."""
_NAME_ORDER = (("name", 1),)


@dataclass(frozen=True)
class RoleListings:
    """Lists the granted and the other resources of a role.

    Methods raise `NotFound` if the role does not exist.
    """

    roles: RoleService
    accounts: Accounts
    owners: ResourceOwnerClient

    async def list_integrations(
        self, caller: Caller, role_id: int, request: KeywordSearch, *, granted: bool
    ) -> list[DescribedIntegration]:
        """Return matching integrations that a role is granted (or is not granted)."""
        granted_ids = await self._list_granted_ids(caller, role_id, ResourceType.INTEGRATION)
        order = request.order(_INTEGRATION_FIELD_BY_COLUMN, _NAME_ORDER)
        ids = [integration for integration in granted_ids if integration != HIDDEN_INTEGRATION]
        if granted and not ids:
            return []
        requested_ids = ids if granted else None
        integrations = await self.owners.list_integrations(
            caller.tenant, requested_ids, request.keyword or ""
        )
        hidden = set() if granted else {HIDDEN_INTEGRATION, *granted_ids}
        return _sort_rows([each for each in integrations if each.id not in hidden], order)

    async def list_dashboards(
        self, caller: Caller, role_id: int, request: KeywordSearch, *, granted: bool
    ) -> list[RoleDashboard]:
        """Return matching dashboards that a role is granted (or is not granted)."""
        granted_ids = await self._list_granted_ids(caller, role_id, ResourceType.DASHBOARD)
        order = request.order(_DASHBOARD_FIELD_BY_COLUMN, _NAME_ORDER)
        if granted and not granted_ids:
            return []
        requested_ids = granted_ids if granted else None
        dashboards = await self.owners.list_dashboards(
            caller.tenant, requested_ids, request.keyword or ""
        )
        hidden = set() if granted else set(granted_ids)
        chosen = _sort_rows([each for each in dashboards if each.id not in hidden], order)
        creators = await self._find_creators(caller, chosen)
        return [
            RoleDashboard(
                dashboard_id=str(each.id),
                dashboard_name=each.name,
                created_at=str(each.created_at),
                **_creator_fields(each.user_id, creators),
            )
            for each in chosen
        ]

    async def list_devices(
        self, caller: Caller, role_id: int, body: KeywordSearch
    ) -> tuple[list[RoleDevice], int]:
        """Return one page of the devices that a role can see, and the total."""
        granted = await self._list_granted_ids(caller, role_id, ResourceType.DEVICE)
        integrations = await self._list_granted_ids(caller, role_id, ResourceType.INTEGRATION)
        groups = await self._list_granted_ids(caller, role_id, ResourceType.DEVICE_GROUP)
        request = await self._build_device_request(caller, body)
        if not granted and not integrations and not groups:
            return [], 0
        request.ids, request.integrations, request.groups = granted, integrations, groups
        rows, total = await self._list_devices_with_fields(caller, request)
        through = {*integrations, *groups}
        return [
            RoleDevice(
                **fields, role_integration=device.integration in through or device.group in through
            )
            for device, fields in rows
        ], total

    async def list_other_devices(
        self, caller: Caller, role_id: int, body: KeywordSearch
    ) -> tuple[list[CandidateDevice], int]:
        """Return one page of the devices that a role cannot see, and the total."""
        request = await self._build_device_request(caller, body)
        request.exclude_ids = await self._list_granted_ids(caller, role_id, ResourceType.DEVICE)
        integrations = await self._list_granted_ids(caller, role_id, ResourceType.INTEGRATION)
        request.exclude_integrations = integrations
        groups = await self._list_granted_ids(caller, role_id, ResourceType.DEVICE_GROUP)
        request.exclude_groups = groups
        rows, total = await self._list_devices_with_fields(caller, request)
        return [CandidateDevice(**fields) for _, fields in rows], total

    async def _list_granted_ids(
        self, caller: Caller, role_id: int, kind: ResourceType
    ) -> list[Any]:
        await self.roles.get(caller, role_id)
        return await self.accounts.grants.list_ids(caller.tenant, role_id, kind)

    async def _build_device_request(
        self, caller: Caller, request: KeywordSearch
    ) -> DescribeDevices:
        tenant, keyword = caller.tenant, request.keyword or ""
        order = request.order(_DEVICE_FIELD_BY_COLUMN, ())
        matching_integrations = (
            await self.owners.list_integrations(tenant, keyword=keyword) if keyword else []
        )
        return DescribeDevices(
            tenant=tenant,
            keyword=keyword,
            keyword_integrations=[integration.id for integration in matching_integrations],
            skip=request.skip,
            limit=request.limit,
            order=[(field, way) for field, way in order if field != "_id"],
        )

    async def _list_devices_with_fields(
        self, caller: Caller, request: DescribeDevices
    ) -> tuple[list[tuple[DescribedDevice, dict[str, Any]]], int]:
        """Return devices with their fields of `CandidateDevice`, and the total."""
        devices = await self.owners.list_devices(request)
        ids = sorted({device.integration for device in devices.devices})
        described = await self.owners.list_integrations(request.tenant, ids) if ids else []
        names = {integration.id: integration.name for integration in described}
        creators = await self._find_creators(caller, devices.devices)
        rows = [
            (
                device,
                {
                    "device_id": str(device.id),
                    "device_name": device.name,
                    "created_at": str(device.created_at),
                    "integration_id": device.integration,
                    "integration_name": names.get(device.integration, device.integration),
                    **_creator_fields(device.user_id, creators),
                },
            )
            for device in devices.devices
        ]
        return rows, devices.total

    async def _find_creators(
        self, caller: Caller, resources: Iterable[DescribedDevice | DescribedDashboard]
    ) -> dict[int, UserSummary]:
        ids = {each.user_id for each in resources if each.user_id is not None}
        return await self.accounts.users.find_summaries(caller.tenant, sorted(ids)) if ids else {}


def _creator_fields(
    user_id: int | None, creators: Mapping[int, UserSummary]
) -> dict[str, str | None]:
    creator = creators.get(user_id or 0)
    return {
        "user_id": None if user_id is None else str(user_id),
        "user_email": creator.email if creator else None,
        "user_nickname": creator.nickname if creator else None,
    }


def _sort_rows(found: Sequence[T], order: Sequence[tuple[str, int]]) -> list[T]:
    """Sort by several columns: one stable sort each, the last column first."""
    rows = list(found)
    for field, way in reversed(order):
        if field != "_id":
            rows.sort(key=attrgetter(field), reverse=way < 0)
    return rows
