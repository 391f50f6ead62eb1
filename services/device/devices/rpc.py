"""`rpc.device.…`: what other services ask about devices, to list them."""

from collections import defaultdict
from dataclasses import replace

from libs.common.bus import RpcClient, RpcServer
from libs.common.clock import to_ms
from libs.common.contracts.names import (
    CANVAS_OF_DEVICE,
    MOST_DEVICES,
    AskCanvas,
    CountDevices,
    DescribedDevice,
    DescribedDevices,
    DescribeDevices,
    DeviceCanvas,
    DeviceCount,
    DeviceCounts,
)
from libs.common.errors import InvalidInput
from libs.common.integrations.client import Integrations
from libs.common.store.mongo import Document, containing
from libs.common.things import DIRECT
from services.device.members.directory import Models
from services.device.things.device_queries import DeviceLists
from services.device.things.device_search import INTEGRATION_NAME, Query
from services.device.things.visibility import Condition

ORDERS = {
    "id": "_id",
    "name": "name",
    "createdAt": "createdAt",
    INTEGRATION_NAME: INTEGRATION_NAME,
}
"""What devices may be sorted by, and where it is stored."""
_SHOWN = {"name": 1, "integration": 1, "createdAt": 1, "userId": 1, "group": 1}


class DeviceNames:
    """Answers `describe_devices` and `count_devices`."""

    def __init__(self, lists: DeviceLists, models: Models, integrations: Integrations) -> None:
        self._integrations = integrations
        self._lists = lists
        self._models = models

    def offer(self, rpc: RpcServer) -> None:
        """Offer the operations."""
        rpc.offer("describe_devices", DescribeDevices, self.describe)
        rpc.offer("count_devices", CountDevices, self.count)

    async def describe(self, wanted: DescribeDevices) -> DescribedDevices:
        """The devices that are wanted; raise `InvalidInput` for what cannot be asked."""
        if not 1 <= wanted.limit <= MOST_DEVICES:
            raise InvalidInput(f"must be from 1 to {MOST_DEVICES}", field="limit")
        if wanted.skip < 0:
            raise InvalidInput("must not be negative", field="skip")
        order: dict[str, int] = {}
        for name, way in wanted.order:
            if name not in ORDERS or way not in (1, -1):
                raise InvalidInput(f"must be {', '.join(ORDERS)} with 1 or -1", field="order")
            order.setdefault(ORDERS[name], way)
        order.setdefault("_id", -1)
        query = Query(_condition(wanted), list(order.items()), wanted.skip, wanted.limit)
        if query.by_integration:
            query = replace(query, integrations=await self._integrations.by_name())
        found, total = await self._lists.find_documents(query, _SHOWN, counted=wanted.counted)
        return DescribedDevices(list(map(_described, found)), total)

    async def count(self, wanted: CountDevices) -> DeviceCounts:
        """Devices and their entities by integration.

        Entities are counted by product: as many as the TSL has members, times its devices.
        """
        groups = await self._lists.counted_models(wanted.tenant)
        members = await self._models.of(wanted.tenant, {group.model for group in groups})
        counts: dict[str, DeviceCount] = defaultdict(lambda: DeviceCount(0, 0))
        for group in groups:
            count = counts[group.integration]
            count.devices += group.devices
            count.entities += group.devices * len(members[group.model].members)
        return DeviceCounts(dict(counts))


def _condition(wanted: DescribeDevices) -> Condition:
    conditions: list[Condition] = [{"tenant": wanted.tenant}]
    either: list[Condition] = []
    if wanted.ids is not None:
        either.append({"_id": {"$in": wanted.ids}})
    if wanted.integrations is not None:
        either.append({"integration": {"$in": wanted.integrations}})
    if wanted.groups is not None:
        either.append({"group": {"$in": wanted.groups}})
    if either:
        conditions.append({"$or": either})
    if wanted.exclude_ids:
        conditions.append({"_id": {"$nin": wanted.exclude_ids}})
    if wanted.exclude_integrations:
        conditions.append({"integration": {"$nin": wanted.exclude_integrations}})
    if wanted.exclude_groups:
        conditions.append({"group": {"$nin": wanted.exclude_groups}})
    if wanted.keyword:
        named: list[Condition] = [{"name": containing(wanted.keyword)}]
        named.append({"integration": {"$in": wanted.keyword_integrations}})
        conditions.append({"$or": named})
    return {"$and": conditions}


def _described(document: Document) -> DescribedDevice:
    user = document.get("userId")
    return DescribedDevice(
        id=int(document["_id"]),
        name=document["name"],
        integration=document.get("integration", DIRECT),
        created_at=to_ms(document["createdAt"]),
        user_id=None if user is None else int(user),
        group=document.get("group"),
    )


class CanvasesOverRpc:
    """The canvases of devices, kept by `management`."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def of_device(self, tenant: str, device_id: int) -> DeviceCanvas:
        """The canvas of a device that there is."""
        wanted = AskCanvas(tenant, device_id)
        return await self._rpc.call(CANVAS_OF_DEVICE, wanted, DeviceCanvas)
