"""Writes commands with what they say, in one transaction, and then says it."""

from collections.abc import Sequence
from typing import Any

from libs.common.bus import Outbox, OutboxEntry
from libs.common.store.mongo import Mongo, Session
from services.device.commands.model import Command
from services.device.commands.store import CommandStore


class CommandWriter:
    """The transactional side of issuing and expiring commands."""

    def __init__(self, mongo: Mongo, commands: CommandStore, outbox: Outbox) -> None:
        self._mongo = mongo
        self._commands = commands
        self._outbox = outbox

    async def write(self, commands: Sequence[Command], entries: Sequence[OutboxEntry]) -> None:
        """Write new commands and relay what they say."""

        async def work(session: Session) -> list[dict[str, Any]]:
            await self._commands.add(commands, session)
            return await self._outbox.add(entries, session)

        await self._outbox.relay(await self._mongo.transaction(work))

    async def end(self, command: Command, entry: OutboxEntry) -> None:
        """Write the end of a command, unless somebody else was faster."""

        async def work(session: Session) -> list[dict[str, Any]]:
            if not await self._commands.close(command, session):
                return []
            return await self._outbox.add([entry], session)

        await self._outbox.relay(await self._mongo.transaction(work))
