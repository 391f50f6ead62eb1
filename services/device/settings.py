"""Settings of a process of the service, and its clients."""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from libs.common import process
from libs.common.bus import Bus
from libs.common.bus.streams import Partitions
from libs.common.integrations.client import IntegrationClient, Integrations
from libs.common.settings import Count, Days, Seconds, StoreSettings
from libs.common.store.mongo import MOST_DAYS, Mongo
from libs.common.telemetry import Telemetry

KeptDays = Annotated[int, msgspec.Meta(ge=1, le=MOST_DAYS)]


@dataclass(frozen=True, kw_only=True)
class DeviceSettings(StoreSettings):
    """What both processes of the service are told."""

    sys_nats_user: str = ""
    """User of NATS's system account: it hears of connections (`device` only)."""
    sys_nats_password: str = ""
    """Its password."""
    retention_days: Days = 30
    """Days that history is kept; older reports are refused."""
    frame_retention_days: KeptDays = 30
    """Days that frames of devices with a codec are kept, to be read again, unless their product
    says another number."""
    command_retention_days: KeptDays = 90
    """Days that a command (a task, a service call) can be looked up after its end; never fewer
    than history is kept."""
    alarm_retention_days: Days = 90
    """Days that an alarm can be looked up after it is over; 0 is for ever."""
    command_life: Seconds = 86_400.0
    """Seconds until an unanswered command ends as TIMEOUT."""
    downlink_life: Seconds = 86_400.0
    """The same of one that a network server of LoRaWAN carries: it waits for its sensor."""
    service_call_timeout: Seconds = 10.0
    """Seconds that a console waits for the answer of a service; the call goes on after that."""
    http_offline_after: Seconds = 300.0
    """Seconds without a report after which a device that speaks HTTP is OFFLINE."""
    uplink_partitions: Partitions = 1
    """Streams that reports are spread over by SN, as nats-server is told (`device-ingest` only)."""
    ingest_batch: Count = 8000
    """Most messages of one ingest batch, which is one transaction."""
    ingest_concurrency: Count = 3
    """Ingest batches of a partition in hand at the same time."""


class Clients(process.Clients[DeviceSettings]):
    """The clients of a process of the service."""

    def __init__(
        self, settings: DeviceSettings, telemetry: Telemetry, mongo: Mongo, bus: Bus
    ) -> None:
        """Take connections to MongoDB and NATS."""
        super().__init__(settings, telemetry, mongo, bus)
        self.integrations = Integrations(self.rpc)
        self.integration_client = IntegrationClient(self.rpc, settings.service_call_timeout)
