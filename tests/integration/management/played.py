"""Plays `device` on the bus for integrations: devices, TSLs, and what it is told."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import msgspec

from libs.common.bus import Bus, NoResponders, RpcClient, RpcServer
from libs.common.bus.subjects import device_event
from libs.common.contracts.events import DeviceChanged, DeviceProfile
from libs.common.contracts.integrations import (
    Acknowledged,
    AddDevice,
    CallService,
    DeviceCommand,
    DeviceRef,
    DeviceTsl,
    GetOwnValues,
    GetTsl,
    ListDevices,
    ListedDevices,
    NewDevice,
    OwnValues,
    PropertiesUpdated,
    PutDevice,
    SendOwnReport,
    SendReply,
    SendReport,
    ServiceResult,
    operation_subject,
)
from libs.common.errors import NotFound
from libs.common.things import device_key

PATIENCE = 20.0
THING = 99
SECRETS = ("secret", "password", "private_key", "token")


class PlayedDevice:
    """Answers one integration as `device` would, and remembers."""

    def __init__(self, bus: Bus, integration: str) -> None:
        self.integration = integration
        self.devices: dict[int, DeviceRef] = {}
        self.tsls: dict[str, dict[str, Any]] = {}
        self.reports: list[SendReport] = []
        self.replies: list[SendReply] = []
        self.own: dict[str, dict[str, Any]] = {}
        self.tsls_asked = 0
        self._bus = bus
        self._client = RpcClient(bus)
        self._told = asyncio.Event()
        self._rpc = rpc = RpcServer(bus, "device")
        rpc.offer_each("report", SendReport, self._report)
        rpc.offer_each("reply", SendReply, self._reply)
        rpc.offer_each("own_report", SendOwnReport, self._own_report)
        rpc.offer_each("list_devices", ListDevices, self._list)
        rpc.offer_each("get_tsl", GetTsl, self._tsl)
        rpc.offer_each("own_values", GetOwnValues, self._own_values)
        rpc.offer_each("put_device", PutDevice, self._put)

    async def start(self) -> None:
        """Begin to answer."""
        await self._rpc.start()
        await self._bus.client.flush()

    async def stop(self) -> None:
        """Stop."""
        await self._rpc.stop()

    async def until(self, true: Callable[[], Any]) -> Any:
        """Wait until something holds of what was told."""
        async with asyncio.timeout(PATIENCE):
            while not (answer := true()):
                self._told.clear()
                await self._told.wait()
        return answer

    async def ready(self) -> None:
        """Wait until the integration answers: it begins with its lease."""
        nothing = PropertiesUpdated(tenant="default", thing_id=THING, properties={})
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.ask("updated", nothing, Acknowledged)
                except NoResponders:
                    await asyncio.sleep(0.02)
                else:
                    return

    def reports_of(self, identifier: str) -> list[dict[str, Any]]:
        """Reported properties, in order."""
        return [report.properties for report in self.reports if report.identifier == identifier]

    async def ask(self, operation: Any, request: Any, answer: type) -> Any:
        """Ask the integration, as soon as it is there."""
        subject = operation_subject(self.integration, operation)
        return await self._client.call(subject, request, answer, timeout=10)

    async def add(self, params: dict[str, Any], tenant: str = "default", **more: Any) -> DeviceRef:
        """Add a device as the console does."""
        wanted = AddDevice(tenant=tenant, user_id=1, name="a device", params=params)
        made = await self.ask("add_device", wanted, NewDevice)
        return await self.made(tenant, wanted.name, made, **more)

    async def made(
        self, tenant: str, name: str, made: NewDevice, *, silently: bool = False
    ) -> DeviceRef:
        """Keep a device, and tell of it unless `silently`."""
        known = [
            one
            for one in self.devices.values()
            if (one.tenant, one.identifier) == (tenant, made.identifier)
        ]
        device = DeviceRef(
            tenant=tenant,
            device_id=known[0].device_id if known else len(self.devices) + 1,
            identifier=made.identifier,
            name=name,
            model=made.model,
            additional=made.additional,
        )
        self.devices[device.device_id] = device
        if made.tsl is not None:
            self.tsls.setdefault(made.model, made.tsl)
        if not silently and not known:
            await self.tell(device, "added")
        return device

    async def delete(self, device: DeviceRef) -> None:
        """Delete a device as the console does."""
        await self.ask("delete_device", device, Acknowledged)
        del self.devices[device.device_id]
        await self.tell(device, "deleted")

    async def command(self, device: DeviceRef, command: dict[str, Any]) -> None:
        """Hand over a command."""
        life = {"expiresAt": int(time.time() * 1000) + 60_000}
        await self.ask(
            "command", DeviceCommand(device=device, command=life | command), Acknowledged
        )

    async def call(self, service: str, tenant: str = "default") -> dict[str, Any]:
        """Call a service of the integration."""
        wanted = CallService(tenant=tenant, thing_id=THING, service_id=service)
        result: ServiceResult = await self.ask("call", wanted, ServiceResult)
        return result.outputs

    async def update(self, properties: dict[str, Any], tenant: str = "default") -> None:
        """Change properties of the integration as people do; secrets are not stored."""
        shown = {key: value for key, value in properties.items() if not key.endswith(SECRETS)}
        self.own.setdefault(tenant, {}).update(shown)
        changed = PropertiesUpdated(tenant=tenant, thing_id=THING, properties=properties)
        await self.ask("updated", changed, Acknowledged)

    async def tell(self, device: DeviceRef, change: Any) -> None:
        """Say on the bus what became of a device."""
        event = DeviceChanged(
            event_id=uuid4().hex,
            created_at=0,
            tenant=device.tenant,
            device=DeviceProfile(
                device.device_id,
                device.identifier,
                thing_key=device_key(self.integration, device.identifier),
            ),
            change=change,
        )
        subject = device_event(device.tenant, device.device_id, change)
        await self._bus.publish_core(subject, msgspec.json.encode(event))

    def _find(self, who: str, tenant: str, identifier: str) -> DeviceRef:
        assert who == self.integration
        for device in self.devices.values():
            if (device.tenant, device.identifier) == (tenant, identifier):
                return device
        raise NotFound(f"{who} has no device {identifier}", field="identifier")

    async def _report(self, who: str, told: SendReport) -> Acknowledged:
        self._find(who, told.tenant, told.identifier)
        self.reports.append(told)
        self._told.set()
        return Acknowledged()

    async def _reply(self, who: str, told: SendReply) -> Acknowledged:
        self._find(who, told.tenant, told.identifier)
        self.replies.append(told)
        self._told.set()
        return Acknowledged()

    async def _own_report(self, who: str, told: SendOwnReport) -> Acknowledged:
        assert who == self.integration
        self.own.setdefault(told.tenant, {}).update(told.properties)
        self._told.set()
        return Acknowledged()

    async def _own_values(self, who: str, asked: GetOwnValues) -> OwnValues:
        assert who == self.integration
        return OwnValues(THING, self.own.get(asked.tenant, {}))

    async def _list(self, who: str, asked: ListDevices) -> ListedDevices:
        if who != self.integration:
            return ListedDevices([])
        ids = sorted(device for device in self.devices if device > asked.after)[: asked.limit]
        return ListedDevices([self.devices[id_] for id_ in ids])

    async def _tsl(self, who: str, asked: GetTsl) -> DeviceTsl:
        self.tsls_asked += 1
        return DeviceTsl(self.tsls[self._find(who, asked.tenant, asked.identifier).model])

    async def _put(self, who: str, wanted: PutDevice) -> DeviceRef:
        assert who == self.integration
        device = await self.made(wanted.tenant, wanted.name, wanted.device)
        self._told.set()
        return device


@asynccontextmanager
async def playing(nats_url: str, integration: str) -> AsyncIterator[PlayedDevice]:
    """A played `device` on a connection of its own, once the integration answers."""
    bus = await Bus.connect(nats_url, name="device")
    played = PlayedDevice(bus, integration)
    await played.start()
    try:
        yield played
    finally:
        await played.stop()
        await bus.drain()
