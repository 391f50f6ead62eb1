"""Commands as bytes: the codec of the product makes them, an integration queues them.

Bytes are made once and kept with the command, so that it is the same ones that are handed over
again. What is longer than the device's data rate carries is split: each property by itself.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from libs.common.clock import to_ms
from libs.common.contracts.frames import MOST_DOWNLINKS, Downlink, Frame
from libs.common.contracts.integrations import DeviceRef
from services.device.codecs.model import CodecFailed
from services.device.codecs.rates import largest_payload
from services.device.codecs.scripts import Encoded
from services.device.commands.model import Command, SentDownlink
from services.device.commands.store import CommandStore
from services.device.products.codec.encoding import Encoder
from services.device.things.integrations import IntegrationClient

PORT = 85
"""Where bytes go when neither the codec nor an uplink of the device names a port."""

LONGEST_ID = 24
"""Characters of the id of a downlink that may be one of ours."""

Heard = Callable[[int], Awaitable[Frame | None]]
"""The newest frame of a device that is known."""


@dataclass(frozen=True, kw_only=True)
class Downlinks:
    """Makes bytes of commands and hands them over."""

    commands: CommandStore
    encoder: Encoder
    client: IntegrationClient
    heard: Heard

    async def carry(self, command: Command, carrier: str, device: DeviceRef) -> None:
        """Let an integration queue what nothing was told of yet.

        Raises `CodecFailed` with what keeps the codec from it, and what the integration says.
        """
        if command.downlinks is None:
            made = await self._made(command, device.model)
            command.downlinks = await self.commands.keep_downlinks(command, made)
        waiting = [
            Downlink(
                id=downlink_id(command.id, number),
                port=one.port,
                data=one.data,
                confirmed=True,
                expires_at=to_ms(command.expires_at),
            )
            for number, one in enumerate(command.downlinks, 1)
            if one.state is None
        ]
        if waiting:
            await self.client.carry(carrier, device, waiting)

    async def _made(self, command: Command, model: str) -> list[SentDownlink]:
        values = command.values()
        parts = [{key: value} for key, value in values.items()] if len(values) > 1 else []
        last = await self.heard(command.thing_id)
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


def downlink_id(command_id: int, number: int) -> str:
    """How integrations know the `number`th downlink of a command."""
    return f"{command_id}-{number}"


def read_downlink_id(text: str) -> tuple[int, int] | None:
    """The command and the number; None when it names no command's."""
    command, dash, number = text.partition("-")
    if not dash or not (command.isdecimal() and number.isdecimal() and text.isascii()):
        return None
    return (int(command), int(number)) if len(text) <= LONGEST_ID else None
