"""An example integration with imaginary lamps, which runs as a separate process.

    .venv/bin/thingway integration create lamps      # prints the NATS user and secret once
    export NATS_URL=nats://localhost:4222 NATS_USER=integration.lamps NATS_SECRET=…
    .venv/bin/python examples/integrations/lamps.py

A real integration would call hardware or a vendor's cloud in `Lamps.switch`. Every other part is
needed by each integration.
"""

import asyncio
import os
import signal
from typing import Any

from libs.common.bus import Bus
from libs.common.errors import InvalidInput, NotFound
from libs.common.integrations import (
    AddDevice,
    CallService,
    DeviceCommand,
    DeviceRef,
    Integration,
    IntegrationHost,
    Manifest,
    NewDevice,
    ServiceResult,
)

REMEMBERED = 1000  # replies that are kept to answer repeated commands
LAMP = {  # thing specification of the product: a lamp
    "version": "v1.0",
    "properties": [
        {"id": "on", "name": "On", "accessMode": "RW", "dataSpec": {"dataType": "BOOL"}},
        {
            "id": "level",
            "name": "Level",
            "accessMode": "RW",
            "dataSpec": {"dataType": "INT", "unitName": "%", "validator": {"min": 0, "max": 100}},
        },
    ],
    "events": [],
    "services": [{"id": "toggle", "name": "Toggle", "callType": "SYNC", "inputs": []}],
}
BRIDGE = {  # thing specification of the integration: services to add and delete lamps
    "version": "v1.0",
    "properties": [],
    "events": [],
    "services": [
        {
            "id": "add_lamp",
            "name": "Add lamp",
            "callType": "SYNC",
            "inputs": [
                {
                    "id": "add_lamp.serial",
                    "name": "Serial number",
                    "dataSpec": {
                        "dataType": "STRING",
                        "parentId": "add_lamp",
                        "validator": {"minSize": 3, "maxSize": 16, "required": True},
                    },
                }
            ],
        },
        {"id": "remove_lamp", "name": "Remove lamp", "callType": "SYNC", "inputs": []},
        {
            "id": "count",
            "name": "Count lamps",
            "callType": "SYNC",
            "inputs": [],
            "outputs": [
                {
                    "id": "count.lamps",
                    "name": "Lamps",
                    "dataSpec": {"dataType": "INT", "parentId": "count"},
                }
            ],
        },
    ],
}


class Lamps(Integration):
    """Answers requests of the platform and reports through `self.things`."""

    manifest = Manifest(
        id="lamps",
        name="Lamps",
        description="Imaginary lamps on an imaginary bridge",
        tsl=BRIDGE,
        add_device_service="add_lamp",
        delete_device_service="remove_lamp",
        carries_commands=True,
    )

    def __init__(self) -> None:
        self.lamps: dict[tuple[str, str], dict[str, Any]] = {}
        self.answered: dict[Any, dict[str, Any]] = {}

    async def recover(self) -> None:
        """Read the lamps from the platform after a start."""
        async for device in self.things.list_devices():
            self.lamps.setdefault((device.tenant, device.identifier), {"on": False, "level": 50})

    async def add_device(self, request: AddDevice) -> NewDevice:
        """Return the identifier and product of a new lamp, which the platform then stores."""
        serial = request.params["serial"]
        if not serial.isalnum():
            raise InvalidInput("must be letters and digits", field="serial")
        return NewDevice(identifier=serial, model="LAMP-1", tsl=LAMP)

    async def delete_device(self, device: DeviceRef) -> None:
        """Forget a lamp; the platform may repeat the request."""
        self.lamps.pop((device.tenant, device.identifier), None)

    async def command(self, request: DeviceCommand) -> None:
        """Execute a command once, and answer its copies with the same reply."""
        lamp, command = request.device, request.command
        reply = self.answered.get(command["commandId"])
        if reply is None:
            reply = self.answered[command["commandId"]] = await self.switch(lamp, command)
        if len(self.answered) > REMEMBERED:
            del self.answered[next(iter(self.answered))]
        await self.things.send_reply(lamp.tenant, lamp.identifier, command["commandId"], **reply)

    async def switch(self, lamp: DeviceRef, command: dict[str, Any]) -> dict[str, Any]:
        """Switch a lamp, report its state, and return the fields of the reply."""
        state = self.lamps.setdefault((lamp.tenant, lamp.identifier), {"on": False, "level": 50})
        match command["kind"]:
            case "SET_PROPERTIES":
                state |= command["properties"]
            case "CALL_SERVICE":
                state["on"] = not state["on"]
            case kind:
                return {"status": "FAILED", "error": f"lamps do not support {kind}"}
        await self.things.report(lamp.tenant, lamp.identifier, state)
        return {"status": "SUCCESS"}

    async def call(self, request: CallService) -> ServiceResult:
        """Return the number of lamps of a tenant."""
        if request.service_id != "count":
            raise NotFound(f"there is no service {request.service_id}", field="service_id")
        tenants = [device.tenant async for device in self.things.list_devices()]
        return ServiceResult({"lamps": tenants.count(request.tenant)})


async def main() -> None:
    """Serve the integration until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    bus = await Bus.connect(
        os.environ["NATS_URL"],
        user=os.environ["NATS_USER"],
        password=os.environ["NATS_SECRET"],
        name="lamps",
    )
    lamps = Lamps()
    host = IntegrationHost(bus, lamps)
    await lamps.recover()
    async with host:
        await stop.wait()
    await bus.drain()


if __name__ == "__main__":
    asyncio.run(main())
