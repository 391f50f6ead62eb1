"""What alarms say on the bus, and what is read of what others say."""

from typing import Any
from uuid import uuid4

import msgspec

from libs.common.bus import OutboxEntry
from libs.common.bus.fitting import fitted
from libs.common.bus.subjects import alarm_event
from libs.common.clock import now_ms
from libs.common.contracts.events import AlarmChange, AlarmChanged, DeviceProfile
from services.device.alarms.model import Alarm


class HeardDevice(msgspec.Struct, rename="camel"):
    """The device of an event."""

    device_id: int
    model: str = ""


class Heard(msgspec.Struct, rename="camel"):
    """What rules read of an event: a report, an event of the TSL, or a change of a device."""

    event_id: str
    tenant: str
    device: HeardDevice
    ts: int = 0
    properties: dict[str, Any] = {}
    tsl_id: str = ""

    @property
    def sequence(self) -> int:
        """Of the report in `UPLINK`, which the id ends in; 0 where it came otherwise."""
        _, _, last = self.event_id.rpartition("-")
        try:
            return int(last, 16) if self.event_id.startswith(("r-", "e-")) else 0
        except ValueError:
            return 0


read_heard = msgspec.json.Decoder(Heard).decode


def alarm_changed(alarm: Alarm, change: AlarmChange, profile: DeviceProfile) -> OutboxEntry:
    """`event.{tenant}.alarm.{deviceId}.(raised|cleared|claimed)`."""
    event = AlarmChanged(
        event_id=uuid4().hex,
        created_at=now_ms(),
        tenant=alarm.tenant,
        device=profile,
        change=change,
        alarm_id=alarm.id,
        rule_id=alarm.rule,
        severity=alarm.severity,
        content=alarm.content,
        value=alarm.value,
        raised_at=alarm.raised_at,
        cleared_at=alarm.cleared_at,
        cleared_by=alarm.cleared_by,
        claimed_at=alarm.claimed_at,
        claimed_by=alarm.claimed_by,
        note=alarm.note,
    )
    return OutboxEntry(alarm_event(alarm.tenant, alarm.device, change), fitted(event))
