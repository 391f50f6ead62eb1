"""Tells `auth` what is gone, so that its grants go too."""

from collections.abc import Sequence

from libs.common.bus import RpcClient
from libs.common.contracts.access import ResourceType
from libs.common.identity.sharing import forget


class GrantsOverRpc:
    """Grants, kept by `auth`; without it they are left over, and grant nothing."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def forget_devices(self, tenant: str, ids: Sequence[int]) -> None:
        """Devices are gone."""
        await forget(self._rpc, ResourceType.DEVICE, tenant, ids)

    async def forget_entities(self, tenant: str, ids: Sequence[int]) -> None:
        """Entities are gone."""
        await forget(self._rpc, ResourceType.ENTITY, tenant, ids)
