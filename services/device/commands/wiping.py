"""Removes write-only values of closed commands from what nats-server keeps for MQTT sessions."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NotFoundError

from libs.common.bus import Bus
from libs.common.bus.streams import MQTT
from services.device.commands.messages import stored_down
from services.device.commands.model import Command
from services.device.commands.store import CommandStore

log = logging.getLogger(__name__)

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

    async def take_back(self, commands: Sequence[Command]) -> None:
        """Delete the messages of open commands whose device is away; it gets them on its return."""
        for command in commands:
            if command.write_only:
                try:
                    await self._delete(command)
                except (NatsError, APIError, TimeoutError) as error:
                    log.warning("command %d: its stored messages remain: %r", command.id, error)

    async def wipe(self, moment: datetime) -> None:
        """Delete the messages of the closed commands that are due."""
        for command in await self._commands.to_wipe(moment):
            try:
                await self._delete(command)
            except (NatsError, APIError, TimeoutError) as error:
                log.warning("command %d: its stored messages remain: %r", command.id, error)
                await self._commands.wiped(command, again=moment + RETRY)
                continue
            late = (command.finished_at or moment) + LATE
            await self._commands.wiped(command, again=None if moment >= late else late)

    async def _delete(self, command: Command) -> None:
        """Delete each message of a command; nats-server overwrites what it deletes."""
        subject, sequence = stored_down(command.sn), 1
        while True:
            try:
                message = await self._bus.js.get_msg(MQTT, sequence, subject, next=True)
            except NotFoundError:
                return
            sequence = (message.seq or sequence) + 1
            if _command_id(message.data or b"") == command.id:
                await self._bus.js.delete_msg(MQTT, sequence - 1)


def _command_id(payload: bytes) -> Any:
    try:
        message = _decode(payload)
    except msgspec.DecodeError:
        return None
    return message.get("commandId") if isinstance(message, dict) else None
