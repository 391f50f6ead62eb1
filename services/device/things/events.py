"""What devices say on the bus when they are changed, and what other services keep of them."""

from typing import Literal
from uuid import uuid4

from libs.common.bus import OutboxEntry
from libs.common.bus.fitting import fitted
from libs.common.bus.subjects import device_event
from libs.common.clock import now_ms
from libs.common.contracts.events import DeviceChanged
from services.device.things.model import Device, profile_of

Change = Literal["added", "updated", "deleted", "removed"]


def changed(device: Device, change: Change) -> OutboxEntry:
    """`device.{id}.(added|updated|deleted)`; removed from its application is an update."""
    event = DeviceChanged(
        event_id=str(uuid4()),
        created_at=now_ms(),
        tenant=device.tenant,
        device=profile_of(device),
        change=change,
    )
    what = "updated" if change == "removed" else change
    return OutboxEntry(device_event(device.tenant, device.id, what), fitted(event))
