"""Which resources a user sees: asked of `auth` once for every version, then from memory."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.bus import RpcClient
from libs.common.contracts.access import (
    FORGET,
    GRANTS,
    SHARE,
    ForgetResources,
    GrantedResources,
    ResourceRef,
    ResourceType,
    ShareWithRoles,
)
from libs.common.contracts.auth import Done
from libs.common.contracts.entities import ResolvedEntity
from libs.common.errors import Forbidden, ThingwayError
from libs.common.identity.access import Asked
from libs.common.identity.principal import Kind, Principal
from libs.common.things import SYSTEM

log = logging.getLogger(__name__)

KEPT = 1000
"""Most users whose grants are kept in a process."""

_NOTHING = GrantedResources(version=0)


@dataclass(frozen=True, slots=True)
class Grants:
    """What a user may see; `everything` of the tenant, or the resources that are named."""

    everything: bool
    resources: GrantedResources

    @property
    def nothing(self) -> bool:
        """Whether no resource at all is granted."""
        found = self.resources
        return not self.everything and not (
            found.integrations
            or found.devices
            or found.groups
            or found.entities
            or found.dashboards
            or found.workflows
        )

    def integration(self, integration: str) -> bool:
        """Tell whether an integration is visible."""
        return self.everything or integration in self.resources.integrations

    def device(self, device_id: int, integration: str, group: int | None) -> bool:
        """Tell whether a device of an integration, and perhaps of a group, is visible."""
        return (
            self.everything
            or device_id in self.resources.devices
            or integration in self.resources.integrations
            or group in self.resources.groups
        )

    def thing(
        self, thing_id: int, integration: str, *, device: bool, group: int | None = None
    ) -> bool:
        """Tell whether all entities of a thing are visible; custom ones are everybody's."""
        if device:
            return self.device(thing_id, integration, group)
        return integration == SYSTEM or self.integration(integration)

    def entity(self, entity_id: int) -> bool:
        """Tell whether an entity is granted by itself (its thing may grant it too)."""
        return self.everything or entity_id in self.resources.entities

    def sees(self, entity: ResolvedEntity) -> bool:
        """Tell whether an entity is visible: with its thing, or by itself."""
        whole = self.thing(
            entity.thing_id, entity.integration, device=entity.device, group=entity.group
        )
        return whole or self.entity(entity.id)

    def dashboard(self, dashboard_id: int) -> bool:
        """Tell whether a dashboard is visible."""
        return self.everything or dashboard_id in self.resources.dashboards

    def workflow(self, workflow_id: int) -> bool:
        """Tell whether a flow is visible."""
        return self.everything or workflow_id in self.resources.workflows


ALL = Grants(everything=True, resources=_NOTHING)
"""What a super-admin sees."""


class GrantReader:
    """Answers what the caller of a request sees; one per process."""

    def __init__(self, rpc: RpcClient) -> None:
        self._asked = Asked(rpc, GRANTS, GrantedResources, KEPT)

    async def of(self, principal: Principal) -> Grants:
        """The grants of a user, never older than `principal.access`.

        Raises `Forbidden` for callers that are no users, `Unauthenticated` when the user is
        gone, `Unavailable` when `auth` is needed and silent.
        """
        if principal.kind is not Kind.USER:
            raise Forbidden("this operation is for users")
        if principal.super_admin:
            return ALL
        return Grants(everything=False, resources=await self._asked.about(principal))


class Sharing:
    """The grants of what users make: resources of one type."""

    def __init__(self, rpc: RpcClient, grants: GrantReader, kind: ResourceType) -> None:
        self._rpc = rpc
        self._grants = grants
        self._kind = kind

    async def of(self, principal: Principal) -> Grants:
        """What a user sees."""
        return await self._grants.of(principal)

    async def share(self, principal: Principal, resource_id: int) -> None:
        """Grant a resource to the roles of its creator; raise what `auth` answers."""
        resource = ResourceRef(str(resource_id), self._kind)
        wanted = ShareWithRoles(principal.tenant, principal.user_id, [resource])
        await self._rpc.call(SHARE, wanted, Done)

    async def forget(self, tenant: str, ids: Sequence[int]) -> None:
        """Drop the grants of resources that are gone; see `forget_grants`."""
        await forget_grants(self._rpc, self._kind, tenant, ids)


async def forget_grants(
    rpc: RpcClient, kind: ResourceType, tenant: str, ids: Sequence[int]
) -> None:
    """Drop the grants of what is gone; left over they grant nothing, an id never returns."""
    if not ids:
        return
    resources = [ResourceRef(str(one), kind) for one in ids]
    try:
        await rpc.call(FORGET, ForgetResources(tenant, resources), Done)
    except ThingwayError as error:
        log.warning("grants of %d resources (%s) are left over: %s", len(ids), kind, error)


class GrantsOverRpc:
    """Grants, kept by `auth`; without it they are left over, and grant nothing."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def forget_devices(self, tenant: str, ids: Sequence[int]) -> None:
        """Devices are gone."""
        await forget_grants(self._rpc, ResourceType.DEVICE, tenant, ids)

    async def forget_group(self, tenant: str, group_id: int) -> None:
        """A group is gone."""
        await forget_grants(self._rpc, ResourceType.DEVICE_GROUP, tenant, [group_id])

    async def forget_entities(self, tenant: str, ids: Sequence[int]) -> None:
        """Entities are gone."""
        await forget_grants(self._rpc, ResourceType.ENTITY, tenant, ids)
