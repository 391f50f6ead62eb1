"""Queries of alarms."""

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from libs.common.contracts.flows import Severity
from libs.common.store.mongo import Collection, Document, build_page_stages, read_rows
from services.device.alarms.model import Alarm, from_document


class AlarmGroup(NamedTuple):
    """Number of alarms that have the same `severity`, `is_open` and `is_claimed`."""

    severity: Severity
    is_open: bool
    is_claimed: bool
    number: int


class AlarmQueries:
    """Reads alarms."""

    def __init__(self, alarms: Collection, direct: Collection) -> None:
        """Use two views of the same collection; `direct` is the one of `Mongo.direct`."""
        self._alarms = alarms
        self._direct = direct

    async def count_matching(self, query: Document) -> int:
        """Return how many alarms match."""
        return await self._alarms.count_documents(query)

    async def iterate_alarms(
        self, query: Document, order: list[tuple[str, int]], skip: int, limit: int
    ) -> AsyncGenerator[Alarm, None]:
        """Yield up to `limit` matching alarms, sorted by `order`, after the first `skip`."""
        stages = build_page_stages(query, order, skip, limit)
        async for row in read_rows(self._direct, stages):
            yield from_document(row, Alarm)

    async def find_newest_open_unclaimed(
        self, tenant: str, devices: Sequence[int]
    ) -> dict[int, Alarm]:
        """Return each device's newest alarm that is open and unclaimed, by device id."""
        query = {
            "tenant": tenant,
            "device": {"$in": list(devices)},
            "open": True,
            "claimedAt": None,
        }
        stages: list[Document] = [
            {"$match": query},
            {"$sort": {"device": 1, "raisedAt": 1, "_id": 1}},
            {"$group": {"_id": "$device", "newest": {"$last": "$$ROOT"}}},
        ]
        cursor = await self._alarms.aggregate(stages)
        return {entry["_id"]: from_document(entry["newest"], Alarm) async for entry in cursor}

    async def count_groups(self, query: Document) -> list[AlarmGroup]:
        """Return the groups of matching alarms with their counts."""
        of = {
            "severity": "$severity",
            "is_open": "$open",
            "is_claimed": {"$gt": ["$claimedAt", None]},
        }
        stages = [{"$match": query}, {"$group": {"_id": of, "n": {"$sum": 1}}}]
        return [
            AlarmGroup(**group["_id"], number=group["n"])
            async for group in await self._alarms.aggregate(stages)
        ]

    async def list_ids(self, query: Document, limit: int) -> list[int]:
        """Return up to `limit` ids of matching alarms, in ascending order."""
        cursor = self._alarms.find(query, {"_id": 1}, sort=[("_id", 1)], limit=limit)
        return [entry["_id"] async for entry in cursor]
