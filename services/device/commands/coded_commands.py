"""Commands that network servers carry: their downlinks, and values that devices have shown."""

from collections.abc import Collection, Mapping, Sequence

import msgspec
from pymongo import ReturnDocument

from libs.common.contracts.frames import DownlinkState
from libs.common.store.mongo import Collection as Stored
from libs.common.store.mongo import Document, present
from services.device.commands.model import OPEN, Command, SentDownlink

FOLLOWS: Mapping[DownlinkState, tuple[DownlinkState | None, ...]] = {
    "SENT": (None,),
    "ACKNOWLEDGED": (None, "SENT"),
    "UNACKNOWLEDGED": (None, "SENT"),
    "REFUSED": (None, "SENT"),
}
"""What may have been told of a downlink before each state."""
MOST_AWAITED = 2_000
"""Devices with open coded commands that are looked at whole."""
OLDEST_FIRST = [("createdAt", 1), ("_id", 1)]
"""Not by id alone: each replica hands out ids of a block of its own."""


class CodedCommands:
    """Reads and writes what only such commands have."""

    def __init__(self, commands: Stored) -> None:
        self._commands = commands

    async def keep_downlinks(
        self, command: Command, made: Sequence[SentDownlink]
    ) -> list[SentDownlink]:
        """Keep the bytes of a command, unless it has some; those that it has now, while open."""
        identity = {"_id": command.id}
        await self._commands.update_one(
            {**identity, "downlinks": {"$exists": False}, "status": {"$in": OPEN}},
            {"$set": {"downlinks": msgspec.to_builtins(made)}},
        )
        kept = present(await self._commands.find_one(identity, {"downlinks": 1, "status": 1}))
        if kept["status"] not in OPEN:
            return []
        return msgspec.convert(kept["downlinks"], list[SentDownlink])

    async def note_state(
        self, command_id: int, thing_id: int, number: int, state: DownlinkState
    ) -> Command | None:
        """Note what was told of the `number`th downlink of a command; the command then.

        What was told before, or after the end, changes nothing.
        """
        place = f"downlinks.{number - 1}"
        query = {"_id": command_id, "thingId": thing_id}
        changes: Document = {f"{place}.state": state}
        if state == "SENT":
            changes["status"] = "SENT"
        await self._commands.update_one(
            {
                **query,
                "status": {"$in": OPEN},
                f"{place}.port": {"$exists": True},
                f"{place}.state": {"$in": FOLLOWS[state]},
            },
            {"$set": changes},
        )
        return msgspec.convert(await self._commands.find_one(query), Command | None)

    async def awaited(self, thing_ids: Collection[int]) -> list[Command]:
        """The open commands of some of these things that network servers carry.

        All that are open anywhere are few mostly; then it costs one look at a small index.
        """
        everywhere = self._commands.find({"awaited": {"$gt": 0}}, {"_id": 0, "awaited": 1})
        open_things = {row["awaited"] async for row in everywhere.limit(MOST_AWAITED)}
        some = set(thing_ids)
        if len(open_things) < MOST_AWAITED:
            some &= open_things
        if not some:
            return []
        found = self._commands.find({"awaited": {"$in": list(some)}}, sort=OLDEST_FIRST)
        return msgspec.convert(await found.to_list(None), list[Command])

    async def note_shown(self, command: Command, keys: Collection[str]) -> list[str]:
        """Note which values of a command its device has shown; all that it has shown now."""
        kept = await self._commands.find_one_and_update(
            {"_id": command.id},
            {"$addToSet": {"shown": {"$each": sorted(keys)}}},
            return_document=ReturnDocument.AFTER,
        )
        return list(kept["shown"]) if kept else []
