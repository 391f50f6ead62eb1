"""An integration of the tests' own, as the documents of the management API have it for example."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from libs.common.bus import Bus
from libs.common.contracts.integrations import (
    AddDevice,
    CallService,
    DeviceRef,
    Manifest,
    NewDevice,
    PropertiesUpdated,
    ServiceResult,
)
from libs.common.errors import InvalidInput
from libs.common.integrations import Integration, IntegrationHost
from tests.e2e.platform import Platform

ID = "ping"
MODEL = "PING-HOST"


def _property(name: str, access: str, **spec: Any) -> dict[str, Any]:
    return {"id": name, "name": name.title(), "accessMode": access, "dataSpec": spec}


def _param(name: str, **spec: Any) -> dict[str, Any]:
    owner = name.partition(".")[0]
    return {"id": name, "name": name, "dataSpec": spec | {"parentId": owner}}


TSL = {
    "version": "v1.0",
    "properties": [
        _property("detect_status", "RW", dataType="ENUM", mapping={"0": "STANDBY", "1": "ON"}),
        _property("period", "RW", dataType="INT", validator={"min": 5, "max": 60}),
        _property("loss", "R", dataType="FLOAT"),
    ],
    "events": [],
    "services": [
        {
            "id": "add_device",
            "name": "Add",
            "inputs": [_param("add_device.ip", dataType="STRING", validator={"required": True})],
        },
        {"id": "delete_device", "name": "Delete", "inputs": []},
        {"id": "benchmark", "name": "Benchmark", "inputs": []},
        {
            "id": "trace",
            "name": "Trace",
            "inputs": [_param("trace.hops", dataType="INT", validator={"required": True})],
        },
    ],
}
DEVICE_TSL = {
    "version": "v1.0",
    "properties": [_property("delay", "R", dataType="INT", unitName="ms")],
    "events": [],
    "services": [],
}


class Ping(Integration):
    """Remembers what it is asked."""

    def __init__(self, integration: str = ID) -> None:
        self.manifest = Manifest(
            id=integration,
            name="Ping",
            description="Hosts in the network",
            icon="https://example.org/ping.svg",
            tsl=TSL,
            add_device_service="add_device",
            delete_device_service="delete_device",
        )
        self.changed: list[dict[str, Any]] = []
        self.gone: list[str] = []

    async def add_device(self, wanted: AddDevice) -> NewDevice:
        """A host is known by its address; one in 192.0.2.0/24 is no host."""
        address = wanted.params["ip"]
        if address.startswith("192.0.2."):
            raise InvalidInput("must be a host", field="ip")
        name = f"{self.manifest.id}-{address.replace('.', '-')}"
        additional = {"by": wanted.user_id}
        return NewDevice(identifier=name, model=MODEL, tsl=DEVICE_TSL, additional=additional)

    async def delete_device(self, device: DeviceRef) -> None:
        """Let go of a host."""
        self.gone.append(device.identifier)

    async def call(self, wanted: CallService) -> ServiceResult:
        """Both services say how they were called."""
        return ServiceResult({"called": wanted.service_id, **wanted.inputs})

    async def updated(self, change: PropertiesUpdated) -> None:
        """Hear of new settings."""
        self.changed.append(change.properties)


@asynccontextmanager
async def hosted(platform: Platform, integration: Integration) -> AsyncIterator[IntegrationHost]:
    """The integration, on a connection of its own as the operator."""
    bus = await Bus.connect(
        f"nats://127.0.0.1:{platform.nats_port}",
        user="admin",
        password=platform.state.secrets["nats.admin"],
        name="ping",
    )
    try:
        async with IntegrationHost(bus, integration) as host:
            yield host
    finally:
        await bus.drain()
