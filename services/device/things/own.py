"""Things that are no devices: an integration's own, and custom entities (`things`).

They report one way with devices, as `~{id}`, against the TSL that their document holds. It is
looked up for every batch, so that a change holds for the very next report.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from libs.common.store.mongo import Database
from libs.common.tsl import Tsl, TslDocument, compile_tsl

KEPT = 1000
"""Most compiled TSLs that are kept."""
_FIELDS = {"tenant": 1, "integration": 1, "hash": 1}
_DOCUMENT: msgspec.json.Decoder[TslDocument] = msgspec.json.Decoder(TslDocument)


@dataclass(slots=True, frozen=True)
class OwnThing:
    """A thing that is no device."""

    id: int
    tenant: str
    integration: str
    tsl: Tsl


class OwnThings:
    """Reads them, and keeps their compiled TSLs by content."""

    def __init__(self, database: Database) -> None:
        self._things = database["things"]
        self._compiled: OrderedDict[str, Tsl] = OrderedDict()

    async def of(self, ids: Iterable[int]) -> dict[int, OwnThing]:
        """The things of `ids`; what is unknown is missing."""
        query = {"_id": {"$in": list(ids)}, "hash": {"$exists": True}}
        heads = await self._things.find(query, _FIELDS).to_list(None)
        missing = {head["hash"] for head in heads} - self._compiled.keys()
        if missing:
            query["hash"] = {"$in": list(missing)}
            async for stored in self._things.find(query, {"hash": 1, "tsl": 1}):
                self._compiled[stored["hash"]] = compile_tsl(_DOCUMENT.decode(stored["tsl"]))
        found = {}
        for head in heads:
            tsl = self._compiled.get(head["hash"])
            if tsl is not None:  # else it was changed between the two readings
                self._compiled.move_to_end(head["hash"])
                found[head["_id"]] = OwnThing(head["_id"], head["tenant"], head["integration"], tsl)
        while len(self._compiled) > KEPT:
            self._compiled.popitem(last=False)
        return found

    async def after(self, tenant: str, after: int, limit: int) -> list[int]:
        """Things of a tenant by id, behind `after`."""
        query = {"tenant": tenant, "_id": {"$gt": after}}
        found = self._things.find(query, {"_id": 1}, sort=[("_id", 1)], limit=limit)
        return [row["_id"] async for row in found]

    async def tenants_of(self, ids: Iterable[int]) -> dict[int, str]:
        """The tenants of things, by id."""
        found = self._things.find({"_id": {"$in": list(ids)}}, {"tenant": 1})
        return {row["_id"]: row["tenant"] async for row in found}
