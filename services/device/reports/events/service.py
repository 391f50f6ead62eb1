"""The events of a device, the newest first."""

from dataclasses import dataclass

from libs.common.http.streaming import cut_page
from libs.common.identity import Principal
from libs.common.store.mongo import Document
from services.device.reports.events.schemas import EventRecord, FindEvents, FoundEvents
from services.device.reports.events.store import EventStore
from services.device.reports.frames.windows import Windows
from services.device.reports.history.partitions import KEY
from services.device.reports.history.service import encode_key


@dataclass(frozen=True)
class EventService:
    """Answers users who may see the device."""

    store: EventStore
    windows: Windows

    async def find(self, principal: Principal, device_id: int, wanted: FindEvents) -> FoundEvents:
        """Return a page; raise as `Windows`."""
        window = await self.windows.of_user(
            principal, device_id, wanted.start_timestamp, wanted.end_timestamp, wanted.next_key
        )
        size = wanted.page_size
        rows = self.store.before(window.first, window.last, size + 1, wanted.event_id)
        shown, last = await cut_page(rows, size, _record)
        following = None if last is None else encode_key(last["_id"])
        return FoundEvents(content=shown, next_key=following)


def _record(row: Document) -> EventRecord:
    key = bytes(row["_id"])
    return EventRecord(
        id=encode_key(key), ts=KEY.unpack(key)[1], event_id=row["e"], outputs=row["o"]
    )
