"""Tells `auth` what is gone, so that its grants go too."""

from collections.abc import Iterable, Sequence

from libs.common.bus import RpcClient
from libs.common.contracts.access import FORGET, ForgetResources, ResourceRef, ResourceType
from libs.common.contracts.auth import Done


class GrantsOverRpc:
    """Grants, kept by `auth`."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def forget_devices(self, tenant: str, ids: Sequence[int]) -> None:
        """Devices are gone."""
        await self._forget(tenant, (ResourceRef(str(one), ResourceType.DEVICE) for one in ids))

    async def forget_entities(self, tenant: str, ids: Sequence[int]) -> None:
        """Entities are gone."""
        await self._forget(tenant, (ResourceRef(str(one), ResourceType.ENTITY) for one in ids))

    async def _forget(self, tenant: str, resources: Iterable[ResourceRef]) -> None:
        await self._rpc.call(FORGET, ForgetResources(tenant, list(resources)), Done)
