"""Removes write-only values of closed commands from what nats-server keeps for MQTT sessions."""

import logging
from datetime import datetime, timedelta
from typing import Any

import msgspec
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from libs.common.bus import Bus
from libs.common.bus.retained_messages import delete_messages
from libs.common.bus.streams import MQTT
from libs.common.scheduling.turns import Steps, take_turns
from services.device.commands.messages import stored_down
from services.device.commands.model import OPEN, Command, now
from services.device.commands.store import CommandStore

log = logging.getLogger(__name__)

WORKERS = 4
"""Tenants that have a turn at a time."""
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
        """Work for ever."""
        await take_turns("wiping", WORKERS, self._commands.tenants_to_wipe, self.steps, PERIOD)

    async def steps(self, tenant: str) -> Steps:
        """Delete the messages of a tenant's commands until none is due."""
        while await self.wipe(tenant, now()):
            yield

    async def wipe(self, tenant: str, moment: datetime) -> int:
        """Delete the messages of closed commands, and of open ones whose device is away.

        Return how many commands there were. An open one is sent again when its device connects.
        """
        commands = await self._commands.to_wipe(tenant, moment)
        for command in commands:
            try:
                await self._delete(command)
            except (NatsError, APIError, TimeoutError) as error:
                log.warning("command %d: its stored messages remain: %r", command.id, error)
                await self._commands.wiped(command, again=moment + RETRY)
                continue
            late = moment if command.status in OPEN else (command.finished_at or moment) + LATE
            await self._commands.wiped(command, again=None if moment >= late else late)
        return len(commands)

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
