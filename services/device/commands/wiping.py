"""Removes write-only values of closed commands from what nats-server keeps for MQTT sessions."""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any

import msgspec
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from libs.common.bus import Bus
from libs.common.bus.deletion import delete_messages
from libs.common.bus.streams import MQTT
from libs.common.store.mongo import StoreError
from services.device.commands.messages import stored_down
from services.device.commands.model import OPEN, Command, now
from services.device.commands.store import CommandStore

log = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between looks at what is due."""
LATE = timedelta(seconds=30)
"""After this no process publishes a command any more that it read when it was open."""
RETRY = timedelta(seconds=10)
"""Until the next attempt, while the bus is away."""

_decode = msgspec.json.decode


class CommandWiper:
    """Deletes stored messages of closed commands: at once, and once more after `LATE`."""

    def __init__(self, commands: CommandStore, bus: Bus) -> None:
        self._commands = commands
        self._bus = bus

    async def run(self) -> None:
        """Work for ever; a store or bus that is away is waited for."""
        while True:
            try:
                await self.wipe(now())
            except StoreError as error:
                log.warning("write-only values of closed commands wait: %s", error)
            await asyncio.sleep(PERIOD)

    async def wipe(self, moment: datetime) -> None:
        """Delete the messages of closed commands, and of open ones whose device is away.

        An open command is sent again when its device connects.
        """
        for command in await self._commands.to_wipe(moment):
            try:
                await self._delete(command)
            except (NatsError, APIError, TimeoutError) as error:
                log.warning("command %d: its stored messages remain: %r", command.id, error)
                await self._commands.wiped(command, again=moment + RETRY)
                continue
            late = moment if command.status in OPEN else (command.finished_at or moment) + LATE
            await self._commands.wiped(command, again=None if moment >= late else late)

    async def _delete(self, command: Command) -> None:
        """Delete the stored messages of a command."""
        await delete_messages(
            self._bus, MQTT, stored_down(command.sn), lambda raw: _command_id(raw) == command.id
        )


def _command_id(payload: bytes) -> Any:
    try:
        message = _decode(payload)
    except msgspec.DecodeError:
        return None
    return message.get("commandId") if isinstance(message, dict) else None
