"""Settings of a process of the service."""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from libs.common.bus.streams import PartitionCount
from libs.common.settings import Count, Days, Seconds, StorageSize, StoreSettings
from libs.common.store.migrations import MAX_RETENTION_DAYS

RetentionDays = Annotated[int, msgspec.Meta(ge=1, le=MAX_RETENTION_DAYS)]


@dataclass(frozen=True, kw_only=True)
class DeviceSettings(StoreSettings):
    """Settings of both processes of the service."""

    sys_nats_user: str = ""
    """User of NATS's system account, which reports connections (`device` only)."""
    sys_nats_password: str = ""
    """Password of `THINGWAY_SYS_NATS_USER`."""
    retention_days: Days = 30
    """Retention of history in days. Older reports are rejected."""
    frame_retention_days: RetentionDays = 30
    """Retention in days of frames that can be decoded again. A product may set another number."""
    command_retention_days: RetentionDays = 90
    """Retention of finished commands (tasks, service calls) in days, but at least
    `THINGWAY_RETENTION_DAYS`."""
    alarm_retention_days: Annotated[int, msgspec.Meta(ge=0, le=MAX_RETENTION_DAYS)] = 90
    """Retention of cleared alarms in days; 0 keeps them forever."""
    command_life: Seconds = 86_400.0
    """Seconds until an unanswered command ends as TIMEOUT."""
    downlink_life: Seconds = 86_400.0
    """Seconds until a command that waits for a LoRaWAN device ends as TIMEOUT."""
    service_call_timeout: Seconds = 10.0
    """Seconds that a console waits for the answer of a service call. The call continues after
    that."""
    http_offline_after: Seconds = 300.0
    """Seconds without a request after which a device that uses HTTP is OFFLINE, unless its product
    sets another time."""
    uplink_partitions: PartitionCount = 1
    """Number of streams that share the messages of devices, 1 to 16. The messages of a device are
    in one of them. The configuration of nats-server must have the same number."""
    nats_storage: StorageSize = ""
    """Size of the volume of each nats-server, such as `20Gi`, for an alert; if empty, the alert
    compares with the server's setting `max_file_store`."""
    ingest_batch: Count = 8000
    """Maximum messages of an ingest batch, which is one transaction."""
    ingest_concurrency: Count = 3
    """Maximum concurrent ingest batches of a partition."""
