"""What canvases ask `device` and answer it, and which events end some."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import EVENTS, BatchConsumer, Bus, RpcClient, acknowledge, event_tenant
from libs.common.contracts.entities import (
    RESOLVE,
    ResolvedEntities,
    ResolvedEntity,
    ResolveEntities,
)
from libs.common.contracts.events import AccountChanged
from libs.common.contracts.names import (
    DEVICES,
    MOST_DEVICES,
    DescribedDevice,
    DescribedDevices,
    DescribeDevices,
)

DURABLE = "management"
ENDS = ("event.*.device.*.deleted", "event.*.auth.user.deleted")
BATCH = 200
TENANTS = 4
"""Tenants whose events are handled at the same time."""
TOGETHER = 100
"""Entities of one question: an answer is one message."""
Forget = Callable[[str, Sequence[int]], Awaitable[None]]
"""Forgets what belonged to some ids of a tenant."""


class ThingsOverRpc:
    """Asks `device` what there is."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def devices(self, tenant: str, ids: Sequence[int]) -> list[DescribedDevice]:
        """Those of the devices that there are; at most `MOST_DEVICES` are asked for."""
        wanted = DescribeDevices(tenant, ids=list(ids), limit=MOST_DEVICES, counted=False)
        return (await self._rpc.call(DEVICES, wanted, DescribedDevices)).devices

    async def entities(self, tenant: str, ids: Sequence[int]) -> list[ResolvedEntity]:
        """Those of the entities that there are."""
        found: list[ResolvedEntity] = []
        for first in range(0, len(ids), TOGETHER):
            wanted = ResolveEntities(tenant=tenant, ids=list(ids[first : first + TOGETHER]))
            found += (await self._rpc.call(RESOLVE, wanted, ResolvedEntities)).entities
        return found


def consumer_of_ends(bus: Bus, devices: Forget, users: Forget) -> BatchConsumer:
    """Forgets what devices and users had when events tell that they were deleted."""

    async def handle(messages: list[Msg]) -> None:
        gone: dict[Forget, list[int]] = defaultdict(list)
        for message in messages:
            _, _, about, name, _ = message.subject.split(".")
            if about == "device":
                gone[devices].append(int(name))
            else:
                user = msgspec.json.decode(message.data, type=AccountChanged).object
                gone[users].append(int(user.id))
        for forget, ids in gone.items():
            await forget(event_tenant(messages[0]), ids)
        await acknowledge(bus.client, messages)

    return BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable=DURABLE,
        subjects=ENDS,
        handle=handle,
        lane=event_tenant,
        batch=BATCH,
        concurrency=TENANTS,
    )
