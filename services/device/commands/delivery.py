"""Delivery: unanswered commands are sent again while their device is connected, and expire.

Runs in one replica (a lease). What it sends may arrive twice; devices tell by `commandId`.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.bus import Bus, Outgoing
from libs.common.errors import Unavailable
from libs.common.store.mongo import StoreError
from services.device.commands.carrying import CommandCarrier
from services.device.commands.messages import to_device
from services.device.commands.model import OPEN, Command, now
from services.device.commands.store import CommandStore
from services.device.devices.leaving import DELETED, NOT_RESTORED, REMOVED
from services.device.things.store import DeviceStore

log = logging.getLogger(__name__)

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
        """Work for ever; a store or bus that is away is waited for."""
        while True:
            try:
                await self.once()
            except (Unavailable, StoreError) as error:
                log.warning("delivery of commands waits: %s", error)
            await asyncio.sleep(PERIOD)

    async def once(self) -> None:
        """Deal with all that is due now; what its device will not answer any more ends."""
        moment = now()
        due = await self.commands.due(moment)
        expired = [command for command in due if command.expires_at <= moment]
        for command in expired:
            await self.commands.end(command, "TIMEOUT", "the device did not answer in time")
        waiting = sorted(
            (command for command in due if command.expires_at > moment),
            key=lambda command: (command.created_at, command.id),
        )
        if not waiting:
            return
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
