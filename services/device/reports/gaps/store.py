"""What became of gaps, in MongoDB: `gaps`, clustered, with the fields of `KeptGap`.

Only gaps of products that heal are here; all of them are found in the frames.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from pymongo import UpdateOne

from libs.common.store.mongo import Database, Session
from services.device.reports.gaps.finding import Gap
from services.device.reports.gaps.schemas import GapState
from services.device.telemetry.partitions import KEY, LAST, history_key
from services.device.things.deleted_things import ThingDataStore

GAPS = "gaps"
MOST_KEPT = 2000
"""Gaps of a device that are kept: what comes beyond is not healed."""


class KeptGap(msgspec.Struct, kw_only=True):
    """A gap, and what became of it."""

    key: bytes = msgspec.field(name="_id")
    """Of the frame before it."""
    start: int
    """When that was received, ms."""
    end: int
    counter: int
    last: int
    session: bytes
    missing: int
    at: datetime
    """When this goes."""
    state: GapState = "OPEN"
    asks: int = 0
    asked: int | None = None
    """When the device was asked last, ms."""
    found: int | None = None
    """Readings that history had in it when it was looked at last."""
    reason: str | None = None

    @property
    def gap(self) -> Gap:
        """The gap by itself."""
        counters = (self.counter, self.last, self.session, self.missing)
        return Gap(self.key, self.start, self.end, *counters)


class GapStore(ThingDataStore):
    """Reads and writes what became of gaps."""

    def __init__(self, database: Database) -> None:
        self._gaps = database[GAPS]

    async def keep(self, gaps: Sequence[Gap], until: datetime) -> None:
        """Keep new gaps of a device, the largest that there is room for."""
        if not gaps:
            return
        (thing_id,) = {KEY.unpack(gap.key)[0] for gap in gaps}
        room = MOST_KEPT - await self._gaps.count_documents({"_id": _of(thing_id)})
        largest = sorted(gaps, key=lambda gap: gap.missing, reverse=True)[: max(room, 0)]
        writes = [_insert(gap, until) for gap in largest]
        if writes:
            await self._gaps.bulk_write(writes, ordered=False)

    async def find(self, key: bytes) -> KeptGap | None:
        """What is kept of a gap."""
        return msgspec.convert(await self._gaps.find_one({"_id": key}), KeptGap | None)

    async def overlapping(self, thing_id: int, start: int, end: int) -> list[KeptGap]:
        """Those of a device that are kept and overlap a time (ms)."""
        first, last = history_key(thing_id, 0, 0), history_key(thing_id, end, LAST)
        found = self._gaps.find({"_id": {"$gte": first, "$lte": last}, "end": {"$gte": start}})
        return msgspec.convert(await found.to_list(None), list[KeptGap])

    async def largest(self, thing_id: int, before: int, limit: int) -> list[KeptGap]:
        """Open gaps of a device that ended before a time (ms), the largest first."""
        query = {"_id": _of(thing_id), "state": "OPEN", "end": {"$lte": before}}
        found = self._gaps.find(query, sort=[("missing", -1), ("_id", 1)], limit=limit)
        return msgspec.convert(await found.to_list(None), list[KeptGap])

    async def change(self, gap: KeptGap, **changes: Any) -> None:
        """Write what has become of a gap."""
        for name, value in changes.items():
            setattr(gap, name, value)
        await self._gaps.update_one({"_id": gap.key}, {"$set": changes})

    async def remove(self, gap: KeptGap) -> None:
        """Remove one that is closed: its frames have arrived."""
        await self._gaps.delete_one({"_id": gap.key})

    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the gaps of a device."""
        await self._gaps.delete_many({"_id": _of(thing_id)}, session=session)


def _of(thing_id: int) -> dict[str, bytes]:
    return {"$gte": history_key(thing_id, 0, 0), "$lte": history_key(thing_id, LAST, LAST)}


def _insert(gap: Gap, until: datetime) -> UpdateOne:
    kept = KeptGap(
        key=gap.key,
        start=gap.start,
        end=gap.end,
        counter=gap.counter,
        last=gap.last,
        session=gap.session,
        missing=gap.missing,
        at=until,
    )
    document = msgspec.to_builtins(kept, builtin_types=(bytes, datetime))
    return UpdateOne({"_id": document.pop("_id")}, {"$setOnInsert": document}, upsert=True)
