"""Commands as bytes, which the codec of the product makes.

What is longer than the device's data rate carries is split: each property by itself.
"""

from dataclasses import dataclass

from libs.common.clock import to_ms
from libs.common.contracts.frames import MOST_DOWNLINKS
from services.device.codecs.rates import largest_payload
from services.device.codecs.scripts import Encoded
from services.device.commands.model import Command, SentDownlink
from services.device.commands.ports import DownlinkEncoder
from services.device.products.codec.encoding import Encoder
from services.device.reports.frames.store import FrameStore
from services.device.things.codec_model import CodecFailed

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
        values = command.values()
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
