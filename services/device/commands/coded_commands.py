"""Commands that network servers deliver as downlinks."""

from collections.abc import Collection, Mapping, Sequence

import msgspec
from pymongo import ReturnDocument

from libs.common.contracts.frames import DownlinkState
from libs.common.store.mongo import Collection as MongoCollection
from libs.common.store.mongo import Document, require_document
from services.device.commands.model import OPEN_STATES, Command, CommandDownlink

PREVIOUS_STATES_BY_STATE: Mapping[DownlinkState, tuple[DownlinkState | None, ...]] = {
    "SENT": (None,),
    "ACKNOWLEDGED": (None, "SENT"),
    "UNACKNOWLEDGED": (None, "SENT"),
    "REFUSED": (None, "SENT"),
}
"""The states that may precede each downlink state; None means that no state is stored."""
AWAITED_THINGS_QUERY_LIMIT = 2_000
"""Maximum open coded commands that the query for their things reads. Its result is not used if it
has this many things, because others may be missing."""
OLDEST_FIRST = [("createdAt", 1), ("_id", 1)]
"""Sort order by time of creation. Ids alone are not in this order, because each replica allocates
them in blocks."""


class CodedCommands:
    """Reads and writes the fields of commands that are delivered as downlinks."""

    def __init__(self, commands: MongoCollection) -> None:
        self._commands = commands

    async def store_downlinks(
        self, command: Command, downlinks: Sequence[CommandDownlink]
    ) -> list[CommandDownlink]:
        """Store the downlinks of a command unless it has some; return the stored ones.

        Returns an empty list when the command is closed.
        """
        identity = {"_id": command.id}
        await self._commands.update_one(
            {**identity, "downlinks": {"$exists": False}, "status": {"$in": OPEN_STATES}},
            {"$set": {"downlinks": msgspec.to_builtins(downlinks)}},
        )
        stored = require_document(
            await self._commands.find_one(identity, {"downlinks": 1, "status": 1})
        )
        if stored["status"] not in OPEN_STATES:
            return []
        return msgspec.convert(stored["downlinks"], list[CommandDownlink])

    async def update_state(
        self, command_id: int, thing_id: int, number: int, state: DownlinkState
    ) -> Command | None:
        """Store the state of a downlink; return its command, or None if the command is unknown.

        `number` counts the downlinks of the command from 1. A state that may not follow the stored
        state, or that arrives after the command's end, changes nothing.
        """
        path = f"downlinks.{number - 1}"
        query = {"_id": command_id, "thingId": thing_id}
        changes: Document = {f"{path}.state": state}
        if state == "SENT":
            changes["status"] = "SENT"
        await self._commands.update_one(
            {
                **query,
                "status": {"$in": OPEN_STATES},
                f"{path}.port": {"$exists": True},
                f"{path}.state": {"$in": PREVIOUS_STATES_BY_STATE[state]},
            },
            {"$set": changes},
        )
        return msgspec.convert(await self._commands.find_one(query), Command | None)

    async def list_open(self, thing_ids: Collection[int]) -> list[Command]:
        """Return the open coded commands of these things.

        Few coded commands are open at a time, so one read of a small index usually suffices.
        """
        everywhere = self._commands.find({"awaited": {"$gt": 0}}, {"_id": 0, "awaited": 1})
        open_things = {row["awaited"] async for row in everywhere.limit(AWAITED_THINGS_QUERY_LIMIT)}
        wanted_ids = set(thing_ids)
        if len(open_things) < AWAITED_THINGS_QUERY_LIMIT:
            wanted_ids &= open_things
        if not wanted_ids:
            return []
        cursor = self._commands.find({"awaited": {"$in": list(wanted_ids)}}, sort=OLDEST_FIRST)
        return msgspec.convert(await cursor.to_list(None), list[Command])

    async def add_confirmed_keys(self, command: Command, keys: Collection[str]) -> list[str]:
        """Add keys to the confirmed keys of a command; return all its confirmed keys.

        A key is confirmed when the device has reported the requested value of the property.
        """
        stored = await self._commands.find_one_and_update(
            {"_id": command.id},
            {"$addToSet": {"shown": {"$each": sorted(keys)}}},
            return_document=ReturnDocument.AFTER,
        )
        return list(stored["shown"]) if stored else []
