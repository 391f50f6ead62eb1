"""The gaps of a device, the newest first."""

from libs.common.clock import now_ms
from libs.common.errors import InvalidInput
from libs.common.identity import Principal
from services.device.reports.frames.store import FrameStore
from services.device.reports.gaps.finding import Gap, find_gaps
from services.device.reports.gaps.schemas import FindGaps, FoundGaps, GapPage, GapRecord
from services.device.reports.gaps.store import GapStore, KeptGap
from services.device.reports.history.partitions import LAST, history_key
from services.device.reports.history.service import decode_key, encode_key
from services.device.things import ThingDirectory
from services.device.things.granted import GrantedDevices
from services.device.things.model import Device

SCANNED = 2000
"""Frames that are looked at for a page: with a key for the next one it may be short, or empty."""


class GapService:
    """Answers who may see the device."""

    def __init__(
        self,
        frames: FrameStore,
        gaps: GapStore,
        things: ThingDirectory,
        granted: GrantedDevices,
    ) -> None:
        self._frames = frames
        self._gaps = gaps
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
    ) -> GapPage:
        """A page for an application; times are ms.

        Raises `InvalidInput` for bounds or a cursor that cannot be, `NotFound` for a device that
        the caller may not see.
        """
        device = await self._things.device(principal, device_id)
        records, following = await self._page(device, start, end, size, key, "endTime", "pageKey")
        return GapPage(list=records, page_size=size, next_page_key=following)

    async def find(self, principal: Principal, device_id: int, wanted: FindGaps) -> FoundGaps:
        """A page for a user; raises the same, and `Forbidden` for one who sees nothing at all."""
        device = await self._granted.find(principal, device_id)
        bounds = (wanted.start_timestamp, wanted.end_timestamp, wanted.page_size, wanted.next_key)
        found = await self._page(device, *bounds, "end_timestamp", "next_key")
        return FoundGaps(content=found[0], next_key=found[1])

    async def _page(
        self,
        device: Device,
        start: int | None,
        end: int | None,
        size: int,
        key: str | None,
        end_field: str,
        key_field: str,
    ) -> tuple[list[GapRecord], str | None]:
        if start is not None and end is not None and start > end:
            raise InvalidInput("must not be before the start", field=end_field)
        owned = history_key(device.id, device.owned_since, 0)
        first = history_key(device.id, max(start or 0, device.owned_since), 0)
        last = history_key(device.id, now_ms() if end is None else end, LAST)
        if key is None:  # a gap may reach beyond the end
            after = await self._frames.counters(last, history_key(device.id, LAST, LAST), 1)
            last = after[0].key if after else last
        else:
            last = min(last, decode_key(key, device.id, key_field))
        frames = await self._frames.counters(first, last, SCANNED, newest=True)
        following = frames[-1].key if len(frames) == SCANNED else None
        if following is None:
            frames += await self._frames.counters(owned, _before(first), 1, newest=True)
        gaps = find_gaps(reversed(frames))
        shown = gaps[::-1][:size]
        if len(gaps) > size:
            following = shown[-1].key
        return await self._records(device.id, shown), encode_key(following) if following else None

    async def _records(self, device_id: int, gaps: list[Gap]) -> list[GapRecord]:
        if not gaps:
            return []
        kept = await self._gaps.overlapping(device_id, gaps[-1].start, gaps[0].end)
        return [_record(gap, kept) for gap in gaps]


def _before(key: bytes) -> bytes:
    """The last key below another."""
    return (int.from_bytes(key) - 1).to_bytes(len(key))


def _record(gap: Gap, kept: list[KeptGap]) -> GapRecord:
    """A gap with what became of it, or of the one that it is left of."""
    there = next((one for one in kept if one.start <= gap.start and gap.end <= one.end), None)
    record = GapRecord(
        start=gap.start, end=gap.end, counter=gap.counter, missing=gap.missing, state="OPEN"
    )
    if there is not None:
        for name in ("state", "asks", "asked", "found", "reason"):
            setattr(record, name, getattr(there, name))
    return record
