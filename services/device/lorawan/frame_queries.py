"""Pages of frames of a device, newest first."""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.decoding import copy_fields
from libs.common.http.streaming import cut_page, map_batches
from libs.common.store.mongo import Document
from services.device.lorawan.frame_store import FrameStore, decode_frame
from services.device.lorawan.schemas import FrameRecord
from services.device.telemetry.history import KeyRange, encode_cursor
from services.device.telemetry.partitions import KEY_FORMAT, Partitions
from services.device.things.directory import ThingDirectory

FRAMES_PER_VALUE_READ = 32
"""Frames whose values are read together; one frame has up to 256 KiB of values."""


@dataclass(frozen=True)
class FrameService:
    """Lists frames of devices in pages."""

    store: FrameStore
    partitions: Partitions
    things: ThingDirectory

    async def list_page(
        self, key_range: KeyRange, size: int
    ) -> tuple[list[FrameRecord], str | None]:
        """Return up to `size` frames of a key range, newest first, and the next page's key."""
        tsl = (await self.things.build_thing(key_range.device)).tsl

        async def with_values(rows: Sequence[Document]) -> list[tuple[Document, Document | None]]:
            values_by_key = await self.partitions.find_properties(bytes(row["_id"]) for row in rows)
            values = [values_by_key.get(bytes(row["_id"])) for row in rows]
            return [
                (row, None if value is None else tsl.readable(value))
                for row, value in zip(rows, values, strict=True)
            ]

        rows = self.store.iterate_before(key_range.first, key_range.last, size + 1)
        records, last = await cut_page(
            map_batches(rows, with_values, FRAMES_PER_VALUE_READ), size, _to_frame_record
        )
        return records, None if last is None else encode_cursor(last[0]["_id"])


def _to_frame_record(row_and_values: tuple[Document, Document | None]) -> FrameRecord:
    row, values = row_and_values
    key, frame = bytes(row["_id"]), decode_frame(row)
    return copy_fields(
        FrameRecord,
        frame,
        ts=KEY_FORMAT.unpack(key)[1],
        hex=frame.data.hex(),
        rate=frame.data_rate,
        values=values,
        reason=row.get("w"),
        codec=row["c"].partition("/")[0],
    )
