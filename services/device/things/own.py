"""Things that are no devices: an integration's own, and custom entities (`things`).

They report one way with devices, as `~{id}`, against the TSL that their document holds. It is
looked up for every batch, so that a change holds for the very next report.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from libs.common.store.mongo import Database
from libs.common.tsl import Tsl
from services.device.things.tsls import Tsls

_FIELDS = {"tenant": 1, "integration": 1, "hash": 1}


@dataclass(slots=True, frozen=True)
class OwnThing:
    """A thing that is no device."""

    id: int
    tenant: str
    integration: str
    tsl: Tsl


class OwnThings:
    """Reads them."""

    def __init__(self, database: Database, tsls: Tsls) -> None:
        self._things = database["things"]
        self._tsls = tsls

    async def of(self, ids: Iterable[int]) -> dict[int, OwnThing]:
        """The things of `ids`; what is unknown is missing."""
        query = {"_id": {"$in": list(ids)}, "hash": {"$exists": True}}
        heads = await self._things.find(query, _FIELDS).to_list(None)
        tsls = {head["hash"]: self._tsls.known(head["hash"]) for head in heads}
        missing = [key for key, tsl in tsls.items() if tsl is None]
        if missing:
            query["hash"] = {"$in": missing}
            async for stored in self._things.find(query, {"hash": 1, "tsl": 1}):
                tsls[stored["hash"]] = self._tsls.compiled(stored["hash"], stored["tsl"])
        return {
            head["_id"]: OwnThing(head["_id"], head["tenant"], head["integration"], tsl)
            for head in heads
            if (tsl := tsls[head["hash"]]) is not None  # else changed between the two readings
        }

    async def after(self, tenant: str, after: int, limit: int) -> list[int]:
        """Things of a tenant by id, behind `after`."""
        query = {"tenant": tenant, "_id": {"$gt": after}}
        found = self._things.find(query, {"_id": 1}, sort=[("_id", 1)], limit=limit)
        return [row["_id"] async for row in found]

    async def tenants_of(self, ids: Iterable[int]) -> dict[int, str]:
        """The tenants of things, by id."""
        found = self._things.find({"_id": {"$in": list(ids)}}, {"tenant": 1})
        return {row["_id"]: row["tenant"] async for row in found}
