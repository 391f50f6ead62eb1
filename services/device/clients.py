"""Clients that a process of the service uses: MongoDB, NATS, RPC and integrations.

They are not in the module `settings`, because the launcher imports it and needs no clients.
"""

from libs.common import process
from libs.common.bus import Bus, Wakeups
from libs.common.integrations.client import IntegrationClient, Integrations
from libs.common.store.mongo import Mongo
from libs.common.telemetry import Telemetry
from services.device.settings import DeviceSettings


class Clients(process.ProcessClients[DeviceSettings]):
    """The clients of the process `device` or `device-ingest`."""

    def __init__(
        self, settings: DeviceSettings, telemetry: Telemetry, mongo: Mongo, bus: Bus
    ) -> None:
        """Create the clients on connections to MongoDB and NATS."""
        super().__init__(settings, telemetry, mongo, bus)
        self.wakeups = Wakeups(bus, "device")
        self.integrations = Integrations(self.rpc)
        self.integration_client = IntegrationClient(self.rpc, settings.service_call_timeout)
