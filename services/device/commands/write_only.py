"""Write-only values of commands, and their removal, also from what nats-server keeps for MQTT."""

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
from libs.common.store.mongo import Collection, Document, distinct_values
from libs.common.tsl import Tsl, mask_text, texts_beyond
from services.device.commands.events import stored_down
from services.device.commands.model import OPEN, Command, now

log = logging.getLogger(__name__)

WORKERS = 4
"""Tenants that have a turn at a time."""
PERIOD = 1.0
"""Seconds between looks at what is due."""
LATE = timedelta(seconds=30)
"""After this no process publishes a command any more that it read when it was open."""
RETRY = timedelta(seconds=10)
"""Until the next attempt, while the bus is away."""

WIPE_INDEX = "wipe"
"""Name of an index that begins with the tenant."""

_decode = msgspec.json.decode


class WriteOnlyCommands:
    """Finds and removes write-only values in commands and profiles."""

    def __init__(self, commands: Collection, profiles: Collection) -> None:
        self._commands = commands
        self._profiles = profiles

    async def tenants_to_wipe(self) -> list[str]:
        """Return the tenants of commands that `to_wipe` returns now."""
        return await distinct_values(self._commands, "tenant", _to_wipe(now()), WIPE_INDEX)

    async def to_wipe(self, tenant: str, moment: datetime, limit: int = 10) -> list[Command]:
        """Return commands whose write-only values nats-server may keep and must not."""
        query = {"tenant": tenant, **_to_wipe(moment)}
        found = self._commands.find(query, sort=[("wipeAt", 1)], limit=limit)
        return msgspec.convert(await found.to_list(), list[Command])

    async def wiped(self, command: Command, again: datetime | None) -> None:
        """Note that nats-server keeps nothing of a command; look once more at `again`."""
        change: Document = {"$set": {"wipeAt": again}} if again else {"$unset": {"wipeAt": ""}}
        await self._commands.update_one({"_id": command.id}, change)

    async def conceal(self, thing_id: int, tsl: Tsl) -> list[int]:
        """Remove from commands and profile of a thing what its TSL conceals.

        Return the ids of the commands that had such values; open ones keep them for delivery.
        """
        changed: list[int] = []
        kinds = ["SET_PROPERTIES", "SET_PROFILE"]
        async for document in self._commands.find({"thingId": thing_id, "kind": {"$in": kinds}}):
            command = msgspec.convert(document, Command)
            shown = command.readable_by(tsl)
            if shown is command:
                continue
            changes: Document = {"payload": shown.payload, "writeOnly": shown.write_only}
            if command.status in OPEN:
                changes["sealed"] = command.sealed or command.payload
            else:
                changes["wipeAt"] = now()
                changes |= {"downlinks.$[].data": b""} if command.downlinks else {}
                if command.error:
                    secrets = texts_beyond(command.payload, shown.payload)
                    changes["error"] = mask_text(command.error, secrets)
            same = {"_id": command.id, "status": command.status}
            await self._commands.update_one(same, {"$set": changes})
            changed.append(command.id)
        stored = await self._profiles.find_one({"_id": thing_id})
        profile = {entry["key"]: entry["value"] for entry in stored["values"]} if stored else {}
        if (readable := tsl.readable(profile)) != profile:
            listed = [{"key": key, "value": value} for key, value in readable.items()]
            await self._profiles.update_one({"_id": thing_id}, {"$set": {"values": listed}})
        return changed


class CommandWiper:
    """Deletes stored messages of closed commands: at once, and once more after `LATE`."""

    def __init__(self, commands: WriteOnlyCommands, bus: Bus) -> None:
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


def _to_wipe(moment: datetime) -> Document:
    return {"wipeAt": {"$lte": moment}}
