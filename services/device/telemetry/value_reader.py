"""Reads latest values; `latest_values` describes the documents."""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Any

from libs.common.store.mongo import Database, Document, Session
from services.device.telemetry import folded_values
from services.device.telemetry.folded_values import entry_projection, parts_condition

PARTS_COLLECTION = "latest_parts"


class LatestValueReader:
    """Reads latest values."""

    def __init__(self, database: Database) -> None:
        self._latest = database["latest"]
        self._parts = database[PARTS_COLLECTION]

    async def find_values(
        self, thing_ids: Sequence[int], session: Session | None = None
    ) -> dict[int, dict[str, Any]]:
        """Return the latest value of each property, by thing; omit things without any."""
        found = await self.find_entries(thing_ids, session)
        return {
            thing: {key: entry["v"] for key, entry in entries.items()}
            for thing, entries in found.items()
        }

    async def find_entries(
        self,
        thing_ids: Collection[int],
        session: Session | None = None,
        keys: Collection[str] | None = None,
    ) -> dict[int, dict[str, Any]]:
        """Return `{key: {"v": value, "t": ms}}` of some or all keys, by thing."""
        found: dict[int, dict[str, Any]] = {}
        async for thing, document in self.read_documents(thing_ids, session, keys):
            entries = document.get("v", {})
            found[thing] = (
                folded_values.merge_entries(found[thing], entries) if thing in found else entries
            )
        return found

    async def read_documents(
        self,
        thing_ids: Collection[int],
        session: Session | None = None,
        keys: Collection[str] | None = None,
    ) -> AsyncIterator[tuple[int, Document]]:
        """Yield (thing id, document) of the documents of things, then of their parts."""
        projection = entry_projection(keys)
        divided = []
        async for document in self._latest.find(
            ids_condition(thing_ids), projection, session=session
        ):
            if "p" in document:
                divided.append(document["_id"])
            yield document["_id"], document
        if divided:
            query = parts_condition(divided)
            if keys is not None:
                query = ids_condition(folded_values.possible_part_keys(divided, keys))
            async for part in self._parts.find(query, projection, session=session):
                yield folded_values.part_thing_id(part["_id"]), part

    async def find_report_times(self, thing_ids: Sequence[int]) -> dict[int, int]:
        """Return the time (ms) of the newest report of each thing that has one."""
        cursor = self._latest.find({"_id": {"$in": list(thing_ids)}}, {"t": 1})
        return {latest["_id"]: latest["t"] async for latest in cursor if "t" in latest}

    async def find_arrival_times(self, thing_ids: Sequence[int]) -> dict[int, int]:
        """Return the time (ms) at which the last report of each thing arrived."""
        cursor = self._latest.find({"_id": {"$in": list(thing_ids)}}, {"t": 1, "a": 1})
        return {
            row["_id"]: row["a"] if "a" in row else row["t"] async for row in cursor if "t" in row
        }

    async def find_values_with_times(
        self, thing_ids: Iterable[int], keys: Iterable[str]
    ) -> dict[int, dict[str, tuple[Any, int]]]:
        """Return values of some properties with their times (ms), by thing."""
        found = await self.find_entries(list(thing_ids), keys=list(keys))
        return {
            thing: {key: (entry["v"], entry["t"]) for key, entry in entries.items()}
            for thing, entries in found.items()
        }


def ids_condition(keys: Collection[Any]) -> Document:
    """Return the condition that `_id` is one of `keys`."""
    return {"_id": {"$in": list(keys)}}
