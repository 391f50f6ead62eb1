"""Writes commands with what they say, in one transaction, and then says it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any
from weakref import WeakValueDictionary

from libs.common.bus import Outbox, OutboxEntry
from libs.common.store.mongo import Mongo, Session
from services.device.commands.model import Command
from services.device.commands.store import CommandStore

Made = tuple[Sequence[Command], Sequence[OutboxEntry]]


class CommandWriter:
    """The transactional side of issuing and expiring commands."""

    def __init__(self, mongo: Mongo, commands: CommandStore, outbox: Outbox) -> None:
        self._mongo = mongo
        self._commands = commands
        self._outbox = outbox
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def write(
        self, make: Callable[[Session], Awaitable[Made]], in_turn: Sequence[int] = ()
    ) -> Sequence[Command]:
        """Write the commands that `make` gives and relay what they say.

        `make` may run again after a conflict. Nobody else makes commands for the things
        `in_turn` meanwhile, so what it reads of them in its session still holds.
        """

        things = sorted(set(in_turn))  # whoever takes several takes them in the same order

        async def work(session: Session) -> tuple[Sequence[Command], list[dict[str, Any]]]:
            await self._commands.take_turns(things, session)
            commands, entries = await make(session)
            await self._commands.add(commands, session)
            return commands, await self._outbox.add(entries, session)

        async with AsyncExitStack() as turns:  # conflicts are for those of other processes
            for one in things:
                await turns.enter_async_context(self._turn(one))
            commands, written = await self._mongo.transaction(work)
        await self._outbox.relay(written)
        return commands

    def _turn(self, thing_id: int) -> asyncio.Lock:
        lock = self._turns.get(thing_id)
        if lock is None:
            lock = self._turns[thing_id] = asyncio.Lock()
        return lock

    async def end(self, command: Command, entry: OutboxEntry) -> None:
        """Write the end of a command, unless somebody else was faster."""

        async def work(session: Session) -> list[dict[str, Any]]:
            if not await self._commands.close(command, session):
                return []
            return await self._outbox.add([entry], session)

        await self._outbox.relay(await self._mongo.transaction(work))
