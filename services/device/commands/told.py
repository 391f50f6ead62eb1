"""What network servers tell of downlinks: `rpc.device.downlink.{integration}`.

The end of a command is said on `UPLINK` as a reply of its device, so it is stored as one, once.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.bus import RpcServer
from libs.common.contracts.frames import TellDownlink
from libs.common.contracts.integrations import Acknowledged
from libs.common.errors import NotFound
from services.device.commands.model import OPEN, Command, read_downlink_id
from services.device.commands.store import CommandStore
from services.device.telemetry.reporter import Reporter
from services.device.things.device_store import DeviceStore
from services.device.things.directory import ThingDirectory

ENDS = {"UNACKNOWLEDGED": "the device did not acknowledge it", "REFUSED": "refused"}


@dataclass(frozen=True, kw_only=True)
class DownlinksTold:
    """Hears what became of downlinks."""

    devices: DeviceStore
    things: ThingDirectory
    commands: CommandStore
    reporter: Reporter

    def offer(self, rpc: RpcServer) -> None:
        """Answer `rpc.device.downlink.{integration}`."""
        rpc.offer_each("downlink", TellDownlink, self.told)

    async def told(self, integration: str, told: TellDownlink) -> Acknowledged:
        """Note it, and end the command when that follows; raise `NotFound`."""
        device = await self.devices.with_identifier(told.tenant, integration, told.identifier)
        if device is None:
            raise NotFound(
                f"{integration} has no device {told.identifier[:64]}", field="identifier"
            )
        read = read_downlink_id(told.downlink)
        if read is None:
            raise _unknown(told)
        command = await self.commands.downlink_told(read[0], device.id, read[1], told.state)
        if command is None or not 1 <= read[1] <= len(command.downlinks or []):
            raise _unknown(told)
        end = _end(command, told)
        if end is not None and command.status in OPEN:
            thing = await self.things.thing(device)
            await self.reporter.say(thing, "reply", msgspec.json.encode(end), told.downlink)
        return Acknowledged()


def _unknown(told: TellDownlink) -> NotFound:
    return NotFound(f"there is no downlink {told.downlink}", field="downlink")


def _end(command: Command, told: TellDownlink) -> dict[str, Any] | None:
    """The reply that what was told amounts to; None while the command goes on."""
    downlinks = command.downlinks or []
    reply = {"commandId": command.id}
    for one in downlinks:
        if one.state in ENDS:
            reason = told.error or ENDS[one.state]
            about = f" ({', '.join(one.keys)})" if one.keys else ""
            return reply | {"status": "FAILED", "error": reason + about}
    if all(one.state == "ACKNOWLEDGED" for one in downlinks):
        return reply | {"status": "SUCCESS"}
    return None
