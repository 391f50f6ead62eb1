"""The service once for all tests of a module, and a `device` that knows some things."""

import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from libs.common.bus import Bus, RpcServer
from libs.common.contracts.access import ResourceType
from libs.common.contracts.entities import ResolvedEntities, ResolvedEntity, ResolveEntities
from libs.common.contracts.names import (
    DescribedDevice,
    DescribedDevices,
    DescribeDevices,
    DeviceCanvas,
    GetDeviceCanvas,
)
from libs.common.store.mongo import Mongo
from libs.common.things import entity_id
from tests.console import User
from tests.integration.management.conftest import Management, started
from tests.servers import Servers


@dataclass
class Played:
    """Stands for `device`: the devices of tenants, each with an entity."""

    devices: dict[int, tuple[str, DescribedDevice]] = field(default_factory=dict)

    def add(self, tenant: str, group: int | None = None) -> int:
        """Let there be a device; its id."""
        device_id = 5_000_000 + len(self.devices)
        device = DescribedDevice(device_id, f"Lamp {device_id}", "direct", 1, group=group)
        self.devices[device_id] = tenant, device
        return device_id

    def offer(self, rpc: RpcServer) -> None:
        """Answer as `device` would."""
        rpc.offer("describe_devices", DescribeDevices, self._describe)
        rpc.offer("resolve_entities", ResolveEntities, self._resolve)

    async def _describe(self, wanted: DescribeDevices) -> DescribedDevices:
        found = [
            device
            for device_id in wanted.ids or ()
            for tenant, device in [self.devices.get(device_id, ("", None))]
            if device is not None and tenant == wanted.tenant
        ]
        return DescribedDevices(found, len(found))

    async def _resolve(self, wanted: ResolveEntities) -> ResolvedEntities:
        return ResolvedEntities(
            [
                ResolvedEntity(
                    id=entity_id(device_id, 1),
                    key=f"direct.device.{device_id}.temperature",
                    thing_id=device_id,
                    integration="direct",
                    device=True,
                    member="temperature",
                    name="Temperature",
                    type="PROPERTY",
                    value_type="DOUBLE",
                    access_mod="R",
                    value_attribute={"unit": "°C"},
                    device_name=device.name,
                    group=device.group,
                )
                for device_id, (tenant, device) in self.devices.items()
                if tenant == wanted.tenant and entity_id(device_id, 1) in wanted.ids
            ]
        )


@dataclass
class World:
    """A tenant of the service."""

    management: Management
    played: Played
    tenant: str

    @property
    def admin(self) -> User:
        """A super-admin of the tenant."""
        return self.management.admin(self.tenant)

    def user(self, user_id: int, *functions: str) -> User:
        """A user of the tenant."""
        return self.management.user(user_id, *functions, tenant=self.tenant)

    def grant(self, user_id: int, kind: ResourceType, *ids: object) -> None:
        """Grant resources to a user."""
        self.management.grants.give(user_id, kind, *ids)

    def device(self, group: int | None = None) -> int:
        """Let there be a device; its id."""
        return self.played.add(self.tenant, group)

    async def canvas_of(self, device_id: int) -> str:
        """The canvas of a device, as `device` asks for it."""
        asked = GetDeviceCanvas(self.tenant, device_id)
        return (await self.management.rpc("canvas_of_device", asked, DeviceCanvas)).canvas_id

    async def dashboard(self, user: User | None = None, **body: object) -> str:
        """Make a dashboard; its id, which is that of its main canvas."""
        body = {"name": uuid.uuid4().hex} | body
        made = await (user or self.admin).done("POST", "/dashboard", body)
        assert made["dashboard_id"] == made["main_canvas_id"]
        return str(made["dashboard_id"])


@pytest_asyncio.fixture(scope="module")
async def service(
    servers: Servers, emptied: Callable[[str], str], mongo_of: Callable[[str], Mongo]
) -> AsyncIterator[tuple[Management, Played]]:
    """The service, and a `device` beside it."""
    bus = await Bus.connect(servers.nats_url, name="device")
    rpc, played = RpcServer(bus, "device"), Played()
    played.offer(rpc)
    await rpc.start()
    async with started(servers, mongo_of(emptied("management"))) as management:
        yield management, played
    await rpc.stop()
    await bus.drain()


@pytest.fixture
def world(service: tuple[Management, Played]) -> World:
    """A tenant of its own."""
    management, played = service
    for user_id in (7, 8, 9):
        management.grants.take(user_id)
    return World(management, played, f"t{uuid.uuid4().hex[:12]}")
