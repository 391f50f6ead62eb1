"""The gaps of a device, the newest first."""

from dataclasses import dataclass

from libs.common.identity import Principal
from services.device.reports.frames.store import FrameStore
from services.device.reports.gaps.finding import Gap, find_gaps
from services.device.reports.gaps.schemas import FindGaps, FoundGaps, GapPage, GapRecord
from services.device.reports.gaps.store import GapStore, KeptGap
from services.device.telemetry.history import encode_key
from services.device.telemetry.partitions import LAST, history_key
from services.device.telemetry.windows import Window, Windows

SCANNED = 2000
"""Frames that are looked at for a page: with a key for the next one it may be short, or empty."""


@dataclass(frozen=True)
class GapService:
    """Answers who may see the device."""

    frames: FrameStore
    gaps: GapStore
    windows: Windows

    async def page(
        self,
        principal: Principal,
        device_id: int,
        start: int | None,
        end: int | None,
        size: int,
        key: str | None,
    ) -> GapPage:
        """A page for an application; raises as `Windows`."""
        window = await self.windows.of_application(principal, device_id, start, end, key)
        records, following = await self._page(window, size)
        return GapPage(list=records, page_size=size, next_page_key=following)

    async def find(self, principal: Principal, device_id: int, wanted: FindGaps) -> FoundGaps:
        """A page for a user; raises as `Windows`."""
        bounds = (wanted.start_timestamp, wanted.end_timestamp, wanted.next_key)
        window = await self.windows.of_user(principal, device_id, *bounds)
        records, following = await self._page(window, wanted.page_size)
        return FoundGaps(content=records, next_key=following)

    async def _page(self, window: Window, size: int) -> tuple[list[GapRecord], str | None]:
        device, first, last, continued = window
        if not continued:  # a gap may reach beyond the end
            after = await self.frames.counters(last, history_key(device.id, LAST, LAST), 1)
            last = after[0].key if after else last
        frames = await self.frames.counters(first, last, SCANNED, newest=True)
        following = frames[-1].key if len(frames) == SCANNED else None
        if following is None:
            owned = history_key(device.id, device.owned_since, 0)
            frames += await self.frames.counters(owned, _before(first), 1, newest=True)
        gaps = find_gaps(reversed(frames))
        shown = gaps[::-1][:size]
        if len(gaps) > size:
            following = shown[-1].key
        return await self._records(device.id, shown), encode_key(following) if following else None

    async def _records(self, device_id: int, gaps: list[Gap]) -> list[GapRecord]:
        if not gaps:
            return []
        kept = await self.gaps.overlapping(device_id, gaps[-1].start, gaps[0].end)
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
