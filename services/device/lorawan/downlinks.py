"""Downlinks: bytes of commands, and what network servers tell of them.

What is longer than the device's data rate carries is split: each property by itself.

What network servers tell of downlinks: `rpc.device.downlink.{integration}`.

The end of a command is said on `UPLINK` as a reply of its device, so it is stored as one, once.
"""

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.bus import RpcServer
from libs.common.clock import to_ms
from libs.common.contracts.frames import MOST_DOWNLINKS, TellDownlink
from libs.common.contracts.integrations import Acknowledged
from libs.common.errors import NotFound
from services.device.commands.model import (
    OPEN,
    Command,
    DownlinkEncoder,
    SentDownlink,
    read_downlink_id,
)
from services.device.commands.store import CommandStore
from services.device.lorawan.codec_cache import Encoder
from services.device.lorawan.codec_scripts import Encoded
from services.device.lorawan.frame_store import FrameStore
from services.device.telemetry.reporter import Reporter
from services.device.things.codec_model import CodecFailed
from services.device.things.device_store import DeviceStore
from services.device.things.directory import ThingDirectory

LEAST = 51
"""Bytes that every data rate of a downlink carries, but for regions with dwell times."""
CARRIED = {7: 222, 8: 222, 9: 115}
"""Bytes by spreading factor at 125 kHz; slower ones carry `LEAST`."""
MIRRORED = range(902_000_000)
"""Hz of regions whose downlinks have the rate of the uplink before; others have their own."""

_RATE = re.compile(r"SF(\d{1,2})BW125$")


def largest_payload(data_rate: str, frequency: int | None) -> int:
    """Bytes that surely fit into the answer to an uplink of this rate (`SF7BW125`) and Hz.

    Of what is not known the least is taken.
    """
    found = _RATE.match(data_rate)
    if found is None or frequency is None or frequency not in MIRRORED:
        return LEAST
    return CARRIED.get(int(found[1]), LEAST)


PORT = 85
"""Where bytes go when neither the codec nor an uplink of the device names a port."""


@dataclass(frozen=True, kw_only=True)
class CodecDownlinkEncoder(DownlinkEncoder):
    """Encodes commands with the codecs of their products."""

    encoder: Encoder
    frames: FrameStore

    async def check(self, tenant: str, model: str) -> None:
        """Raise `CodecFailed` for a product without a codec that encodes."""
        await self.encoder.codec(tenant, model)

    async def encode(self, command: Command, model: str) -> list[SentDownlink]:
        """Return the bytes of a command for its device; raise `CodecFailed`."""
        values = command.encoder_input()
        parts = [{key: value} for key, value in values.items()] if len(values) > 1 else []
        last = await self.frames.newest(command.thing_id)
        largest = (
            largest_payload(last.data_rate, last.frequency) if last else largest_payload("", None)
        )
        whole, *alone = await self.encoder.encode(
            command.tenant,
            model,
            [values, *parts],
            last.port if last else PORT,
            to_ms(command.created_at),
        )
        return fitting(whole, dict(zip(values, alone or [whole], strict=True)), largest)


def fitting(
    whole: Encoded | CodecFailed, alone: dict[str, Encoded | CodecFailed], largest: int
) -> list[SentDownlink]:
    """What is sent of a command that was encoded as a `whole` and each of its values `alone`.

    Raises `CodecFailed` for what cannot be encoded, or does not fit into `largest` bytes.
    """
    if isinstance(whole, CodecFailed):
        raise whole
    for key, one in alone.items():
        if isinstance(one, Encoded) and not one.content:
            raise CodecFailed(f"gives no bytes for {key}")
    if len(whole.content) <= largest:
        return [SentDownlink(port=whole.port, data=whole.content)]
    if len(alone) > MOST_DOWNLINKS:
        raise CodecFailed(f"gives more than {largest} bytes for more than {MOST_DOWNLINKS} values")
    return [_part(key, one, largest) for key, one in alone.items()]


def _part(key: str, one: Encoded | CodecFailed, largest: int) -> SentDownlink:
    if isinstance(one, CodecFailed):
        raise CodecFailed(f"{one} for {key} alone")
    size = len(one.content)
    if size > largest:
        raise CodecFailed(f"gives {size} bytes for {key}, and the data rate carries {largest}")
    return SentDownlink(port=one.port, data=one.content, keys=[key])


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
        command = await self.commands.update_downlink_state(read[0], device.id, read[1], told.state)
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
