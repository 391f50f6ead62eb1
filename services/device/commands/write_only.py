"""Write-only values of commands, and their deletion from MongoDB and nats-server."""

import logging
from datetime import datetime, timedelta
from typing import Any

import msgspec
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from libs.common.bus import Bus, Wakeups
from libs.common.bus.stored_messages import delete_messages
from libs.common.bus.streams import MQTT
from libs.common.scheduling.turns import TenantSteps, take_turns
from libs.common.store.mongo import Collection, Document, list_distinct_values
from libs.common.tsl import Tsl, list_hidden_texts, mask_text
from services.device.commands.events import stored_command_subject
from services.device.commands.model import OPEN_STATES, Command, utc_now

log = logging.getLogger(__name__)

CONCURRENT_TENANTS = 4
"""Tenants whose messages are deleted concurrently."""
QUERY_INTERVAL_SECONDS = 1.0
"""Seconds between two queries for commands whose messages must be deleted."""
MAX_PUBLISH_DELAY = timedelta(seconds=30)
"""Maximum time from reading an open command to publishing it. A message may appear this long after
the command is closed."""
RETRY_DELAY = timedelta(seconds=10)
"""Time until the next attempt when NATS is unavailable."""

WIPING_TOPIC = "wiping"
"""Topic of `Wakeups`: messages of commands must be deleted."""
WIPE_INDEX = "wipe"
"""Name of the index of commands by tenant and `wipeAt`."""

_decode_json = msgspec.json.decode


class WriteOnlyCommands:
    """Finds and deletes write-only values in commands and profiles."""

    def __init__(self, commands: Collection, profiles: Collection, wakeups: Wakeups) -> None:
        self._commands = commands
        self._profiles = profiles
        self.wakeups = wakeups

    async def list_tenants_with_due_wipes(self, within: float = 0) -> list[str]:
        """Return the tenants with commands for `list_due_wipes` now or in `within` seconds."""
        due = _wipe_due_query(utc_now() + timedelta(seconds=within))
        return await list_distinct_values(self._commands, "tenant", due, WIPE_INDEX)

    async def list_due_wipes(self, tenant: str, moment: datetime, limit: int = 10) -> list[Command]:
        """Return up to `limit` commands whose messages in nats-server are due for deletion."""
        query = {"tenant": tenant, **_wipe_due_query(moment)}
        cursor = self._commands.find(query, sort=[("wipeAt", 1)], limit=limit)
        return msgspec.convert(await cursor.to_list(), list[Command])

    async def mark_wiped(self, command: Command, next_wipe: datetime | None) -> None:
        """Set when messages of a command are deleted again; None means never."""
        change: Document = (
            {"$set": {"wipeAt": next_wipe}} if next_wipe else {"$unset": {"wipeAt": ""}}
        )
        await self._commands.update_one({"_id": command.id}, change)

    async def conceal(self, thing_id: int, tsl: Tsl) -> list[int]:
        """Remove values that `tsl` declares write-only; return the ids of changed commands.

        The values are removed from commands and profile of a thing. Open commands keep them for
        delivery.
        """
        changed: list[int] = []
        kinds = ["SET_PROPERTIES", "SET_PROFILE"]
        async for document in self._commands.find({"thingId": thing_id, "kind": {"$in": kinds}}):
            command = msgspec.convert(document, Command)
            shown = command.conceal_values(tsl)
            if shown is command:
                continue
            changes: Document = {"payload": shown.payload, "writeOnly": shown.write_only}
            if command.status in OPEN_STATES:
                changes["sealed"] = command.full_payload or command.payload
            else:
                changes["wipeAt"] = utc_now()
                self.wakeups.notify(WIPING_TOPIC)
                changes |= {"downlinks.$[].data": b""} if command.downlinks else {}
                if command.error:
                    secrets = list_hidden_texts(command.payload, shown.payload)
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


class CommandMessageWiper:
    """Deletes messages of commands with write-only values from nats-server.

    The messages of a closed command are deleted again after `MAX_PUBLISH_DELAY`.
    """

    def __init__(self, commands: WriteOnlyCommands, bus: Bus) -> None:
        self._commands = commands
        self._bus = bus

    async def run(self) -> None:
        """Run until cancelled."""
        list_due_tenants = self._commands.list_tenants_with_due_wipes
        await take_turns(
            "wiping",
            CONCURRENT_TENANTS,
            list_due_tenants,
            self.steps,
            QUERY_INTERVAL_SECONDS,
            wake=self._commands.wakeups.create_event(WIPING_TOPIC),
            upcoming=list_due_tenants,
        )

    async def steps(self, tenant: str) -> TenantSteps:
        """Delete messages of a tenant's commands until none is due."""
        while await self.wipe(tenant, utc_now()):
            yield

    async def wipe(self, tenant: str, moment: datetime) -> int:
        """Delete messages of closed commands, and of open ones with offline devices.

        Return how many commands were due. An open command is sent again when its device connects.
        """
        commands = await self._commands.list_due_wipes(tenant, moment)
        for command in commands:
            try:
                await self._delete_messages(command)
            except (NatsError, APIError, TimeoutError) as error:
                log.warning(
                    "command %d: its stored messages could not be deleted: %r", command.id, error
                )
                await self._commands.mark_wiped(command, next_wipe=moment + RETRY_DELAY)
                continue
            last_wipe = (
                moment
                if command.status in OPEN_STATES
                else (command.finished_at or moment) + MAX_PUBLISH_DELAY
            )
            await self._commands.mark_wiped(
                command, next_wipe=None if moment >= last_wipe else last_wipe
            )
        return len(commands)

    async def _delete_messages(self, command: Command) -> None:
        await delete_messages(
            self._bus,
            MQTT,
            stored_command_subject(command.sn),
            lambda raw: _command_id(raw) == command.id,
        )


def _command_id(payload: bytes) -> Any:
    try:
        message = _decode_json(payload)
    except msgspec.DecodeError:
        return None
    return message.get("commandId") if isinstance(message, dict) else None


def _wipe_due_query(moment: datetime) -> Document:
    return {"wipeAt": {"$lte": moment}}
