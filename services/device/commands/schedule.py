"""Due times of open commands, and their retrieval when they are due or their device polls."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from pymongo import UpdateOne

from libs.common.bus import Wakeups
from libs.common.store.mongo import Collection, Document, list_distinct_values
from services.device.commands.coded_commands import OLDEST_FIRST
from services.device.commands.model import OPEN_STATES, Command, utc_now
from services.device.commands.write_only import WIPING_TOPIC
from services.device.telemetry.ports import ReconnectListener

RESEND_SECONDS = (1, 2, 5, 10, 20, 40, 60)
"""Seconds until an unanswered command is sent again to a connected device, by the `pause_index` of
the command; the last pause repeats."""
CODED_RESEND_SECONDS = (5, 10, 30, 120, 600)
"""Seconds until an unanswered coded command is sent again, unless the network server has reported a
state for each downlink."""
POLL_REPEAT_DELAY = timedelta(seconds=30)
"""Time after which an unanswered command is returned to a polling device again."""
FIRST_RESEND_INDEX = 2
"""Index in `RESEND_SECONDS` of the first pause of a new command. After a reconnect of the device,
the first pause of each command has index 0."""
DELIVERY_TOPIC = "delivery"
"""Topic of `Wakeups`: commands are due, or will be."""
DUE_INDEX = "due"
"""Name of the index of open commands by tenant and due time."""


class CommandSchedule(ReconnectListener):
    """Reads due commands and decides when they are sent again."""

    def __init__(self, commands: Collection, wakeups: Wakeups) -> None:
        self._commands = commands
        self._wakeups = wakeups

    async def list_due_tenants(self, within: float = 0) -> list[str]:
        """Return the tenants with open commands that are due now or in `within` seconds."""
        due = _due_query(utc_now() + timedelta(seconds=within))
        return await list_distinct_values(self._commands, "tenant", due, DUE_INDEX)

    async def list_due(self, tenant: str, moment: datetime, limit: int) -> list[Command]:
        """Return open commands of a tenant that must be sent again or have expired."""
        query = {"tenant": tenant, **_due_query(moment)}
        cursor = self._commands.find(query, sort=[("nextSendAt", 1)], limit=limit, hint=DUE_INDEX)
        return msgspec.convert(await cursor.to_list(), list[Command])

    async def mark_sent(self, commands: Sequence[Command], now: datetime) -> None:
        """Record that commands were sent and schedule the next attempt.

        A coded command becomes SENT when its network server reports so.
        """

        def next_send_at(command: Command) -> datetime:
            return now + timedelta(seconds=_resend_seconds(command))

        plain = [command for command in commands if not command.coded]
        await self._reschedule(plain, next_send_at, {"status": "SENT"})
        await self._reschedule([command for command in commands if command.coded], next_send_at, {})

    async def fetch_for_poll(self, thing_id: int, now: datetime) -> list[Command]:
        """Return up to 100 open commands for a polling device, oldest first.

        They become SENT and are not returned again for `POLL_REPEAT_DELAY`.
        """
        ready = {"$not": {"$gt": now - POLL_REPEAT_DELAY}}
        query = {"thingId": thing_id, "status": {"$in": OPEN_STATES}, "expiresAt": {"$gt": now}}
        cursor = self._commands.find({**query, "polledAt": ready}).sort(OLDEST_FIRST).limit(100)
        fetched = msgspec.convert(await cursor.to_list(), list[Command])
        if fetched:
            await self._commands.update_many(
                {
                    "_id": {"$in": [command.id for command in fetched]},
                    "status": {"$in": OPEN_STATES},
                },
                {"$set": {"polledAt": now, "status": "SENT"}},
            )
        return fetched

    async def suspend_deliveries(self, commands: Sequence[Command]) -> None:
        """Stop sending unanswered commands until their devices connect.

        The messages of commands with write-only values become due for deletion from nats-server.
        """
        plain = [command for command in commands if not command.write_only]
        secret = [command for command in commands if command.write_only]
        await self._reschedule(plain, lambda command: command.expires_at, {})
        await self._reschedule(secret, lambda command: command.expires_at, {"wipeAt": utc_now()})
        if secret:
            self._wakeups.notify(WIPING_TOPIC)

    async def _reschedule(
        self,
        commands: Sequence[Command],
        next_send_at: Callable[[Command], datetime],
        changes: Mapping[str, Any],
    ) -> None:
        if commands:
            await self._commands.bulk_write(
                [
                    UpdateOne(
                        {"_id": command.id, "status": {"$in": OPEN_STATES}},
                        {
                            "$set": {
                                **changes,
                                "nextSendAt": min(next_send_at(command), command.expires_at),
                            },
                            "$inc": {"attempts": 1},
                            "$unset": {"unpublished": ""},
                        },
                    )
                    for command in commands
                ],
                ordered=False,
            )

    async def resume_deliveries(self, thing_ids: Sequence[int], at: datetime) -> None:
        """Send the open commands of connected things again from `at` on."""
        self._wakeups.notify(DELIVERY_TOPIC)
        await self._commands.update_many(
            {"thingId": {"$in": list(thing_ids)}, "status": {"$in": OPEN_STATES}},
            [{"$set": {"nextSendAt": {"$min": [at, "$expiresAt"]}, "attempts": 0}}],
        )


def _due_query(moment: datetime) -> Document:
    return {"status": {"$in": OPEN_STATES}, "nextSendAt": {"$lte": moment}}


def _resend_seconds(command: Command) -> int:
    pauses = CODED_RESEND_SECONDS if command.coded else RESEND_SECONDS
    return pauses[min(command.pause_index, len(pauses) - 1)]
