"""The SDK of integrations: subclass `Integration` and run it in an `IntegrationHost`.

    class Lamps(Integration):
        manifest = Manifest(id="lamps", name="Lamps", tsl=TSL, add_device_service="add_lamp")

        async def add_device(self, request: AddDevice) -> NewDevice:
            return NewDevice(identifier=request.params["serial"], model="LAMP-1")

    async with IntegrationHost(bus, Lamps()) as host:
        await host.things.report("default", "L1", {"on": True})

Integrations may also use the bus directly, in any language: `libs.common.contracts.integrations`
defines subjects and messages, docs/how-to/integrations.md explains them.
"""

from libs.common.contracts.integrations import (
    Acknowledged,
    AddDevice,
    CallService,
    DeviceCommand,
    DeviceRef,
    Manifest,
    NewDevice,
    PropertiesUpdated,
    ServiceResult,
)
from libs.common.integrations.host import Integration, IntegrationHost, IntegrationThings

__all__ = [
    "Acknowledged",
    "AddDevice",
    "CallService",
    "DeviceCommand",
    "DeviceRef",
    "Integration",
    "IntegrationHost",
    "IntegrationThings",
    "Manifest",
    "NewDevice",
    "PropertiesUpdated",
    "ServiceResult",
]
