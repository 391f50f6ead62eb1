"""The SDK of integrations: write a class, give it to a host, and the platform knows it.

    class Lamps(Integration):
        manifest = Manifest(id="lamps", name="Lamps", tsl=TSL, add_device_service="add_lamp")

        async def add_device(self, wanted: AddDevice) -> NewDevice:
            return NewDevice(identifier=wanted.params["serial"], model="LAMP-1")

    async with IntegrationHost(bus, Lamps()) as host:
        await host.things.report("default", "L1", {"on": True})

The same can be done in any language: the subjects and shapes are those of
`libs.common.contracts.integrations`; docs/how-to/integrations.md has the page.
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
