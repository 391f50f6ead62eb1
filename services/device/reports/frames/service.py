"""The frames of a device, the newest first."""

from libs.common.clock import now_ms
from libs.common.errors import InvalidInput
from libs.common.identity import Principal
from libs.common.store.mongo import Document
from services.device.reports.frames.schemas import FindFrames, FoundFrames, FramePage, FrameRecord
from services.device.reports.frames.store import FrameStore, frame_of
from services.device.reports.history.partitions import (
    KEY,
    LAST,
    Partitions,
    history_key,
)
from services.device.reports.history.service import decode_key, encode_key
from services.device.things import ThingDirectory
from services.device.things.granted import GrantedDevices
from services.device.things.model import Device


class FrameService:
    """Answers who may see the device."""

    def __init__(
        self,
        store: FrameStore,
        partitions: Partitions,
        things: ThingDirectory,
        granted: GrantedDevices,
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._things = things
        self._granted = granted

    async def page(
        self,
        principal: Principal,
        device_id: int,
        start: int | None,
        end: int | None,
        size: int,
        key: str | None,
    ) -> FramePage:
        """A page for an application; times are ms.

        Raises `InvalidInput` for bounds or a cursor that cannot be, `NotFound` for a device that
        the caller may not see.
        """
        device = await self._things.device(principal, device_id)
        records, following = await self._page(device, start, end, size, key, "endTime", "pageKey")
        return FramePage(list=records, page_size=size, next_page_key=following)

    async def find(self, principal: Principal, device_id: int, wanted: FindFrames) -> FoundFrames:
        """A page for a user; raises the same, and `Forbidden` for one who sees nothing at all."""
        device = await self._granted.find(principal, device_id)
        bounds = (wanted.start_timestamp, wanted.end_timestamp, wanted.page_size, wanted.next_key)
        found = await self._page(device, *bounds, "end_timestamp", "next_key")
        return FoundFrames(content=found[0], next_key=found[1])

    async def _page(
        self,
        device: Device,
        start: int | None,
        end: int | None,
        size: int,
        key: str | None,
        end_field: str,
        key_field: str,
    ) -> tuple[list[FrameRecord], str | None]:
        first = max(start or 0, device.owned_since)
        last = now_ms() if end is None else end
        if start is not None and end is not None and start > end:
            raise InvalidInput("must not be before the start", field=end_field)
        before = history_key(device.id, last, LAST)
        if key is not None:
            before = min(before, decode_key(key, device.id, key_field))
        rows = await self._store.before(history_key(device.id, first, 0), before, size + 1)
        values = await self._partitions.at(bytes(row["_id"]) for row in rows[:size])
        records = [_record(row, values) for row in rows[:size]]
        return records, encode_key(rows[size - 1]["_id"]) if len(rows) > size else None


def _record(row: Document, values: dict[bytes, Document]) -> FrameRecord:
    key, frame = bytes(row["_id"]), frame_of(row)
    return FrameRecord(
        ts=KEY.unpack(key)[1],
        port=frame.port,
        hex=frame.data.hex(),
        session=frame.session,
        counter=frame.counter,
        confirmed=frame.confirmed,
        rate=frame.data_rate,
        frequency=frame.frequency,
        gateways=frame.gateways,
        values=values.get(key),
        reason=row.get("w"),
        codec=row["c"].partition("/")[0],
    )
