"""A network server as an integration that tests control, and a product with a codec."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from libs.common.bus import RpcClient
from libs.common.contracts.frames import (
    DeviceFrame,
    Downlink,
    DownlinkState,
    Frame,
    QueueDownlinks,
    SendDownlinkState,
)
from libs.common.contracts.integrations import AddDevice, Manifest, NewDevice
from libs.common.integrations import Integration as SdkIntegration
from libs.common.integrations import IntegrationThings
from tests.integration.device.values.world import World, param, property_of

SERVER = "radio"
MODEL = "SENSOR"
SENSOR = {
    "version": "v1.0",
    "properties": [
        property_of("temperature", "DOUBLE", "R"),
        property_of("interval", "INT", validator={"min": 0, "max": 65535}),
        property_of("label", "STRING"),
        property_of("alias", "STRING"),
        property_of("odd", "INT"),
    ],
    "events": [],
    "services": [
        {"id": "reboot", "name": "reboot", "inputs": [], "outputs": []},
        {
            "id": "fetch_history",
            "name": "fetch",
            "inputs": [
                param("fetch_history.start_time", "LONG"),
                param("fetch_history.end_time", "LONG"),
            ],
        },
    ],
}
SCRIPT = """
const u32 = (n) => [n >>> 24, n >>> 16 & 255, n >>> 8 & 255, n & 255];
function encodeDownlink({data}) {
  const bytes = [];
  for (const [key, value] of Object.entries(data)) {
    if (key == 'odd' && value) throw new Error('odd is nothing for me');
    if (key == 'interval') bytes.push(3, value >> 8, value & 255);
    if (key == 'label' || key == 'alias')
      bytes.push(4, ...[...value].map((one) => one.charCodeAt(0)));
    if (key == 'reboot') bytes.push(16);
    if (key == 'fetch_history') bytes.push(0x6c, ...u32(value.start_time), ...u32(value.end_time));
  }
  return {bytes, fPort: 7};
}
function decodeUplink({bytes}) {
  const data = {}, n = (at) => bytes.slice(at, at + 4).reduce((sum, one) => sum * 256 + one, 0);
  for (let at = 0; at < bytes.length;) {
    if (bytes[at] == 1) data.temperature = bytes[at + 1], at += 2;
    else if (bytes[at] == 3) data.interval = bytes[at + 1] << 8 | bytes[at + 2], at += 3;
    else if (bytes[at] == 32) {
      (data.history ??= []).push({timestamp: n(at + 1), temperature: bytes[at + 5]});
      at += 6;
    }
    else if (bytes[at] == 33) {
      const timestamp = n(at + 1);
      data.history = Array.from({length: 300}, (_, i) => ({timestamp: timestamp - i, odd: i}));
      at += 5;
    }
    else at++;
  }
  return {data};
}
"""
MANIFEST = Manifest(
    id=SERVER,
    name="Network server",
    tsl={
        "version": "v1.0",
        "properties": [],
        "events": [],
        "services": [
            {"id": "add", "name": "add", "inputs": [param("add.eui", "STRING")]},
            {"id": "remove", "name": "remove"},
        ],
    },
    add_device_service="add",
    delete_device_service="remove",
    carries_frames=True,
)


@dataclass
class Server(SdkIntegration):
    """Keeps the downlinks that it received."""

    world: World
    manifest: Manifest = MANIFEST
    fails: Exception | None = None
    queued: dict[str, list[Downlink]] = field(default_factory=dict)
    """By device, in their order, also those that came again."""
    _heard: asyncio.Condition = field(default_factory=asyncio.Condition)
    _counters: dict[str, int] = field(default_factory=dict)

    async def add_device(self, wanted: AddDevice) -> NewDevice:
        return NewDevice(identifier=wanted.params["eui"], model=MODEL, tsl=SENSOR)

    async def downlink(self, wanted: QueueDownlinks) -> None:
        async with self._heard:
            self.queued.setdefault(wanted.device.identifier, []).extend(wanted.downlinks)
            self._heard.notify_all()
        if self.fails is not None:
            raise self.fails

    async def asked(self, eui: str, count: int = 1) -> list[Downlink]:
        """Return the downlinks of a device, once there are this many."""
        async with asyncio.timeout(20), self._heard:
            await self._heard.wait_for(lambda: len(self.queued.get(eui, [])) >= count)
        return self.queued[eui]

    @property
    def tells(self) -> IntegrationThings:
        """Return what it publishes, on a connection of its own."""
        return IntegrationThings(RpcClient(self.world.outside), SERVER)

    async def add(self, eui: str) -> int:
        """Add a sensor as the console does, and return its id."""
        body = {
            "name": eui,
            "integration": SERVER,
            "param_entities": {f"{SERVER}.integration.add.eui": eui},
        }
        await self.world.admin().done("POST", "/device", body)
        return int((await self.world.device(eui))["_id"])

    async def hear(self, eui: str, data: bytes, **more: Any) -> None:
        """Send an uplink with the next counter, or the given one."""
        counter = more.pop("counter", self._counters.get(eui, -1) + 1)
        self._counters[eui] = counter
        frame = Frame(port=85, data=data, counter=counter, **{"session": "s", **more})
        told = DeviceFrame(tenant="default", identifier=eui, frame=frame)
        assert (await self.tells.send_frames([told])).refused == []

    async def tell(self, eui: str, downlink: str, state: DownlinkState, error: str = "") -> None:
        """Report the state of a downlink."""
        told = SendDownlinkState(
            tenant="default", identifier=eui, downlink=downlink, state=state, error=error
        )
        await self.tells.send_downlink_state(told)


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[Server]:
    """Run the server, with a codec for its product."""
    server = Server(world)
    await world.put_product(MODEL, SENSOR)
    await world.admin().done("PUT", f"/product/{MODEL}/codec", {"script": SCRIPT})
    async with world.hosting(server):
        yield server
