"""Ends what is open of devices that leave their owner (docs/ownership.md)."""

import logging

from nats.errors import Error as NatsError
from nats.js.errors import APIError

from libs.common.bus import Bus
from libs.common.bus.streams import MQTT
from libs.common.bus.subjects import down_command
from services.device.commands.model import Reason
from services.device.commands.store import CommandStore
from services.device.things.model import Device

log = logging.getLogger(__name__)


class CommandEnding:
    """Ends commands, and takes back those that nats-server keeps for the device's return."""

    def __init__(self, commands: CommandStore, bus: Bus) -> None:
        self._commands = commands
        self._bus = bus

    async def end(self, device: Device, reason: Reason) -> None:
        """End the open commands of a device as FAILED."""
        await self._commands.fail_all(device.id, reason)
        subject = f"$MQTT.msgs.{down_command(device.sn)}"
        try:
            await self._bus.js.purge_stream(MQTT, subject=subject)
        except (NatsError, APIError, TimeoutError) as error:
            log.warning("device %d: commands wait for its MQTT session: %r", device.id, error)
