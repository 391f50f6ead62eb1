"""The resources that a user may see, requested from `auth` and cached by version."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.bus import RpcClient
from libs.common.contracts.access import (
    FORGET_RESOURCES,
    GET_GRANTS,
    SHARE_WITH_ROLES,
    ForgetResources,
    GrantedResources,
    ResourceRef,
    ResourceType,
    ShareWithRoles,
)
from libs.common.contracts.auth import Done
from libs.common.contracts.entities import ResolvedEntity
from libs.common.errors import Forbidden, ThingwayError
from libs.common.identity.access import VersionedCache
from libs.common.identity.principal import Principal, PrincipalKind
from libs.common.things import SYSTEM_INTEGRATION

log = logging.getLogger(__name__)

MAX_CACHED_USERS = 1000
"""Users whose grants a process caches."""

_NO_RESOURCES = GrantedResources(version=0)


@dataclass(frozen=True, slots=True)
class Grants:
    """The resources that a user may see: `everything` of the tenant, or `resources`."""

    everything: bool
    resources: GrantedResources

    @property
    def is_empty(self) -> bool:
        """Return whether no resource is granted."""
        resources = self.resources
        return not self.everything and not (
            resources.integrations
            or resources.devices
            or resources.groups
            or resources.entities
            or resources.dashboards
            or resources.workflows
        )

    def allows_integration(self, integration: str) -> bool:
        """Return whether an integration is visible."""
        return self.everything or integration in self.resources.integrations

    def allows_device(self, device_id: int, integration: str, group: int | None) -> bool:
        """Return whether a device is visible, by itself, its integration or its group."""
        return (
            self.everything
            or device_id in self.resources.devices
            or integration in self.resources.integrations
            or group in self.resources.groups
        )

    def allows_thing(
        self, thing_id: int, integration: str, *, device: bool, group: int | None = None
    ) -> bool:
        """Return whether all entities of a thing are visible; custom entities always are."""
        if device:
            return self.allows_device(thing_id, integration, group)
        return integration == SYSTEM_INTEGRATION or self.allows_integration(integration)

    def allows_entity_id(self, entity_id: int) -> bool:
        """Return whether an entity itself is granted; its thing may grant it too."""
        return self.everything or entity_id in self.resources.entities

    def allows_entity(self, entity: ResolvedEntity) -> bool:
        """Return whether an entity is visible, by its thing or by itself."""
        whole = self.allows_thing(
            entity.thing_id, entity.integration, device=entity.device, group=entity.group
        )
        return whole or self.allows_entity_id(entity.id)

    def allows_dashboard(self, dashboard_id: int) -> bool:
        """Return whether a dashboard is visible."""
        return self.everything or dashboard_id in self.resources.dashboards

    def allows_workflow(self, workflow_id: int) -> bool:
        """Return whether a flow is visible."""
        return self.everything or workflow_id in self.resources.workflows


SUPER_ADMIN_GRANTS = Grants(everything=True, resources=_NO_RESOURCES)
"""The grants of a super-admin."""


class GrantReader:
    """Reads the grants of users; one instance per process."""

    def __init__(self, rpc: RpcClient) -> None:
        self._cache = VersionedCache(rpc, GET_GRANTS, GrantedResources, MAX_CACHED_USERS)

    async def read(self, principal: Principal) -> Grants:
        """Return the grants of a user, not older than `principal.access`.

        Raises `Forbidden` for callers that are not users, `Unauthenticated` if the user is deleted,
        `Unavailable` if `auth` is needed and does not answer.
        """
        if principal.kind is not PrincipalKind.USER:
            raise Forbidden("this operation is for users")
        if principal.super_admin:
            return SUPER_ADMIN_GRANTS
        return Grants(everything=False, resources=await self._cache.get(principal))


class ResourceTypeGrants:
    """Reads, adds and deletes the grants of one type of resources that users create."""

    def __init__(self, rpc: RpcClient, grants: GrantReader, kind: ResourceType) -> None:
        self._rpc = rpc
        self._grants = grants
        self._kind = kind

    async def read_grants(self, principal: Principal) -> Grants:
        """Return the grants of a user."""
        return await self._grants.read(principal)

    async def share(self, principal: Principal, resource_id: int) -> None:
        """Grant a resource to the roles of its creator; raise the errors of `auth`."""
        resource = ResourceRef(str(resource_id), self._kind)
        request = ShareWithRoles(principal.tenant, principal.user_id, [resource])
        await self._rpc.call(SHARE_WITH_ROLES, request, Done)

    async def forget(self, tenant: str, ids: Sequence[int]) -> None:
        """Delete the grants of deleted resources; see `forget_grants`."""
        await forget_grants(self._rpc, self._kind, tenant, ids)


async def forget_grants(
    rpc: RpcClient, kind: ResourceType, tenant: str, ids: Sequence[int]
) -> None:
    """Delete the grants of deleted resources.

    After a failure they remain without effect, because ids are not reused.
    """
    if not ids:
        return
    resources = [ResourceRef(str(id_), kind) for id_ in ids]
    try:
        await rpc.call(FORGET_RESOURCES, ForgetResources(tenant, resources), Done)
    except ThingwayError as error:
        log.warning("grants of %d deleted resources (%s) remain: %s", len(ids), kind, error)


class GrantsClient:
    """Deletes grants with calls of `auth`; after a failure they remain without effect."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def forget_devices(self, tenant: str, ids: Sequence[int]) -> None:
        """Delete the grants of deleted devices."""
        await forget_grants(self._rpc, ResourceType.DEVICE, tenant, ids)

    async def forget_group(self, tenant: str, group_id: int) -> None:
        """Delete the grants of a deleted group."""
        await forget_grants(self._rpc, ResourceType.DEVICE_GROUP, tenant, [group_id])

    async def forget_entities(self, tenant: str, ids: Sequence[int]) -> None:
        """Delete the grants of deleted entities."""
        await forget_grants(self._rpc, ResourceType.ENTITY, tenant, ids)
