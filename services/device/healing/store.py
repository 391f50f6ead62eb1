"""How far the healing of each device is, in MongoDB: `healing`, with the fields of `Heal`.

A request is counted here before it is sent. Each change is made of the state that was read, so of
two replicas that look at a device at the same time one comes too late, and sends nothing.
"""

from collections.abc import Sequence

import msgspec

from libs.common.store.mongo import Database, DuplicateKey, Session
from services.device.things.deleted_things import ThingDataStore

HEALING = "healing"


class Heal(msgspec.Struct, kw_only=True):
    """A device whose gaps are looked for and asked for. Times are ms."""

    id: int = msgspec.field(name="_id")
    turn: int = 0
    """Grows with every change."""
    seen: bytes | None = None
    """The key of the last frame that was looked at."""
    latest: int = -1
    """Its newest report when that was so."""
    open: bool = False
    """Whether it may have open gaps."""
    asks: list[int] = []
    """When it was asked, of the last 24 hours at least."""
    gap: bytes | None = None
    """What it is asked for."""
    command: int | None = None
    """By which command; None until it is written."""
    found: int = 0
    """Readings of the gap that history had."""
    since: int = 0
    """When these were last more than before, or the device was asked."""


class HealStore(ThingDataStore):
    """Reads and writes how far it is."""

    def __init__(self, database: Database) -> None:
        self._heals = database[HEALING]

    async def of(self, thing_ids: Sequence[int]) -> dict[int, Heal]:
        """The devices that were looked at."""
        found = self._heals.find({"_id": {"$in": list(thing_ids)}})
        return {row["_id"]: msgspec.convert(row, Heal) async for row in found}

    async def put(self, heal: Heal) -> bool:
        """Write the next state of a device; False when somebody else has written one."""
        query = {"_id": heal.id, "turn": heal.turn}
        first, heal.turn = heal.turn == 0, heal.turn + 1
        document = msgspec.to_builtins(heal, builtin_types=(bytes,))
        try:
            written = await self._heals.replace_one(query, document, upsert=first)
        except DuplicateKey:
            return False
        return first or bool(written.matched_count)

    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the state of a device."""
        await self._heals.delete_one({"_id": thing_id}, session=session)
