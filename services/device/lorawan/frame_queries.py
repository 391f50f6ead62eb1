"""Pages of frames of a device, newest first."""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.decoding import copy_fields
from libs.common.http.streaming import cut_page, map_batches
from libs.common.identity import Principal
from libs.common.store.mongo import Document
from services.device.lorawan.frame_store import FrameStore, frame_of
from services.device.lorawan.schemas import FindFrames, FoundFrames, FramePage, FrameRecord
from services.device.telemetry.history import KeyRange, KeyRangeResolver, encode_key
from services.device.telemetry.partitions import KEY, Partitions

VALUES_TOGETHER = 32
"""Frames whose values are read together; one frame has up to 256 KiB of values."""


@dataclass(frozen=True)
class FrameService:
    """Pages of frames for users and applications that may see the device."""

    store: FrameStore
    partitions: Partitions
    key_ranges: KeyRangeResolver

    async def page(
        self,
        principal: Principal,
        device_id: int,
        start: int | None,
        end: int | None,
        size: int,
        key: str | None,
    ) -> FramePage:
        """A page for an application; raises as `KeyRangeResolver`."""
        key_range = await self.key_ranges.resolve_for_application(
            principal, device_id, start, end, key
        )
        records, following = await self._page(key_range, size)
        return FramePage(list=records, page_size=size, next_page_key=following)

    async def find(self, principal: Principal, device_id: int, wanted: FindFrames) -> FoundFrames:
        """A page for a user; raises as `KeyRangeResolver`."""
        bounds = (wanted.start_timestamp, wanted.end_timestamp, wanted.next_key)
        key_range = await self.key_ranges.resolve_for_user(principal, device_id, *bounds)
        records, following = await self._page(key_range, wanted.page_size)
        return FoundFrames(content=records, next_key=following)

    async def _page(self, key_range: KeyRange, size: int) -> tuple[list[FrameRecord], str | None]:
        tsl = (await self.key_ranges.things.build_thing(key_range.device)).tsl

        async def with_values(rows: Sequence[Document]) -> list[tuple[Document, Document | None]]:
            found = await self.partitions.find_properties(bytes(row["_id"]) for row in rows)
            values = [found.get(bytes(row["_id"])) for row in rows]
            return [
                (row, None if one is None else tsl.readable(one))
                for row, one in zip(rows, values, strict=True)
            ]

        rows = self.store.list_before(key_range.first, key_range.last, size + 1)
        shown, last = await cut_page(map_batches(rows, with_values, VALUES_TOGETHER), size, _record)
        return shown, None if last is None else encode_key(last[0]["_id"])


def _record(found: tuple[Document, Document | None]) -> FrameRecord:
    row, values = found
    key, frame = bytes(row["_id"]), frame_of(row)
    return copy_fields(
        FrameRecord,
        frame,
        ts=KEY.unpack(key)[1],
        hex=frame.data.hex(),
        rate=frame.data_rate,
        values=values,
        reason=row.get("w"),
        codec=row["c"].partition("/")[0],
    )
