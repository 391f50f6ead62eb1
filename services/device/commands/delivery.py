"""Delivery: unanswered commands are sent again while their device is connected, and expire.

Runs in one replica (a lease), where tenants take turns. What it sends may arrive twice; devices
tell by `commandId`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.bus import Bus, Outgoing
from libs.common.scheduling.turns import Steps, take_turns
from services.device.commands.carrying import CommandCarrier
from services.device.commands.messages import to_device
from services.device.commands.model import (
    DELETED,
    NOT_RESTORED,
    OPEN,
    REMOVED,
    Command,
    now,
)
from services.device.commands.store import CommandStore
from services.device.things.device_store import DeviceStore

WORKERS, CHUNK = 4, 500
"""Tenants that have a turn at a time, and commands of one."""
PERIOD = 0.3
"""Seconds between looks at what is due."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Sends due commands, and ends those whose time is over."""

    devices: DeviceStore
    bus: Bus
    commands: CommandStore
    carrier: CommandCarrier

    async def run(self) -> None:
        """Work for ever."""
        await take_turns("delivery", WORKERS, self.commands.tenants_due, self.steps, PERIOD)

    async def steps(self, tenant: str) -> Steps:
        """Deal with the commands of a tenant until none is due."""
        while await self.deliver(tenant) == CHUNK:
            yield

    async def deliver(self, tenant: str) -> int:
        """Deal with commands that are due now, those due first at first; return their number.

        Those that their device will not answer any more end.
        """
        moment = now()
        due = await self.commands.due(tenant, moment, CHUNK)
        expired = [command for command in due if command.expires_at <= moment]
        for command in expired:
            await self.commands.end(command, "TIMEOUT", "the device did not answer in time")
        waiting = sorted(
            (command for command in due if command.expires_at > moment),
            key=lambda command: (command.created_at, command.id),
        )
        if not waiting:
            return len(due)
        devices = await self.devices.presence.standing({command.thing_id for command in waiting})
        for command in waiting:
            if command.thing_id not in devices:
                await self.commands.end(command, "FAILED", DELETED.text, DELETED.code)
            elif not command.is_deliverable:
                await self.commands.end(command, "FAILED", NOT_RESTORED.text, NOT_RESTORED.code)
            elif command.application_id not in {None, devices[command.thing_id].application_id}:
                await self.commands.end(command, "FAILED", REMOVED.text, REMOVED.code)
        waiting = [command for command in waiting if command.status in OPEN]
        online = {one for one, device in devices.items() if device.connect_status == "ONLINE"}
        here = [one for one in waiting if one.carrier or one.thing_id in online]
        away = [one for one in waiting if not one.carrier and one.thing_id not in online]
        await self.commands.sent(here, moment)
        await self.commands.rest(away)
        self.carrier.send(here)
        await self._send([one for one in here if not one.carrier])
        return len(due)

    async def _send(self, commands: Sequence[Command]) -> None:
        entries = [entry for command in commands for entry in to_device(command)]
        await self.bus.publish(
            [
                Outgoing(entry.subject, entry.payload, headers=entry.headers)
                for entry in entries
                if entry.stream
            ]
        )
        for entry in entries:
            if not entry.stream:
                await self.bus.publish_core(entry.subject, entry.payload, entry.headers)
