"""What devices say on the bus when they are changed, and what other services keep of them."""

from collections.abc import Sequence
from typing import Literal
from uuid import uuid4

from libs.common.bus import OutboxEntry, RpcClient
from libs.common.bus.fitting import fitted
from libs.common.bus.subjects import device_event
from libs.common.clock import now_ms
from libs.common.contracts.access import ResourceType
from libs.common.contracts.events import DeviceChanged
from libs.common.contracts.names import CANVAS_OF_DEVICE, AskCanvas, DeviceCanvas
from libs.common.identity.grants import forget_grants
from services.device.things.model import Device, profile_of

Change = Literal["added", "updated", "deleted", "removed"]


def changed(device: Device, change: Change) -> OutboxEntry:
    """`device.{id}.(added|updated|deleted)`; removed from its application is an update."""
    event = DeviceChanged(
        event_id=str(uuid4()),
        created_at=now_ms(),
        tenant=device.tenant,
        device=profile_of(device),
        change=change,
    )
    what = "updated" if change == "removed" else change
    return OutboxEntry(device_event(device.tenant, device.id, what), fitted(event))


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


class CanvasesOverRpc:
    """The canvases of devices, kept by `management`."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def of_device(self, tenant: str, device_id: int) -> DeviceCanvas:
        """The canvas of a device that there is."""
        wanted = AskCanvas(tenant, device_id)
        return await self._rpc.call(CANVAS_OF_DEVICE, wanted, DeviceCanvas)
