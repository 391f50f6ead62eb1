"""Frames on the bus: what network servers hand over of devices that send bytes, and carry to them.

An integration tells many frames in one call; `device` puts each on `thing.{sn}.up.frame`, and
ingest reads it with the codec of the device's product.
"""

from typing import Annotated, Literal

import msgspec

from libs.common.contracts.integrations import DeviceRef, IdentifierText, Tenant

MOST_FRAMES = 500
"""Frames of one call."""
LARGEST_FRAME = 255
"""Bytes of a LoRaWAN payload."""
MOST_GATEWAYS = 16
"""Gateways that are kept of a frame, the strongest."""

Port = Annotated[int, msgspec.Meta(ge=1, le=223)]
Payload = Annotated[bytes, msgspec.Meta(max_length=LARGEST_FRAME)]
"""Base64 in JSON."""
Counter = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Name = Annotated[str, msgspec.Meta(max_length=128)]
DownlinkState = Literal["SENT", "ACKNOWLEDGED", "UNACKNOWLEDGED", "REFUSED"]


class Reception(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """How one gateway heard a frame: dBm and dB."""

    gateway: Name
    rssi: float | None = None
    snr: float | None = None


class Frame(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """An uplink of a device as its network server heard it.

    `session` and `counter` name it: what comes again with both is the same frame. A session
    begins with a join (the device's address, or the id of its session key).
    """

    port: Port
    data: Payload
    counter: Counter
    session: Name = ""
    ts: int | None = None
    """When it was received, by the network (ms); absent means when it is stored."""
    confirmed: bool = False
    data_rate: Name = ""
    """As `SF7BW125`."""
    frequency: int | None = None
    """Hz."""
    gateways: Annotated[list[Reception], msgspec.Meta(max_length=MOST_GATEWAYS)] = []


class ToldFrame(msgspec.Struct, rename="camel", kw_only=True):
    """A frame, and of which device of the integration it is."""

    tenant: Tenant
    identifier: IdentifierText
    frame: Frame


class TellFrames(msgspec.Struct, kw_only=True):
    """`rpc.device.frames.{integration}`: uplinks; accepted when this is answered."""

    frames: Annotated[list[ToldFrame], msgspec.Meta(min_length=1, max_length=MOST_FRAMES)]


class RefusedFrame(msgspec.Struct, kw_only=True):
    """A frame that was not accepted, by its place in the call, and why."""

    index: int
    reason: str


class FramesTold(msgspec.Struct):
    """Answer of `frames`: all but these are accepted."""

    refused: list[RefusedFrame] = []


class Downlink(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Bytes for a device; `id` is unique and comes back with what is told of it."""

    id: Name
    port: Port
    data: Payload
    confirmed: bool = False
    expires_at: int | None = None
    """When nobody waits for it any more (ms): a server that can forgets it then."""


MOST_DOWNLINKS = 32
"""Downlinks of one call."""


class CarryDownlinks(msgspec.Struct, rename="camel", kw_only=True):
    """`rpc.integration.{id}.downlink`: queue these for a device, in their order.

    It may come again until something is told of each; the integration tells copies by the ids.
    """

    device: DeviceRef
    downlinks: Annotated[list[Downlink], msgspec.Meta(min_length=1, max_length=MOST_DOWNLINKS)]


class TellDownlink(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`rpc.device.downlink.{integration}`: what became of a downlink."""

    tenant: Tenant
    identifier: IdentifierText
    downlink: Name
    state: DownlinkState
    ts: int | None = None
    error: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class TellLink(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`rpc.device.link.{integration}`: a join, or what a device answered about its state."""

    tenant: Tenant
    identifier: IdentifierText
    kind: Literal["JOINED", "STATUS"]
    ts: int | None = None
    battery: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    """Percent; None where it does not know, or is powered from outside."""
    external_power: bool = False
    margin: float | None = None
    """dB by which the last request was heard above the floor."""


LARGEST_HOOK = 64 * 1024
"""Bytes of what comes to a webhook: an uplink that many gateways heard has some 10,000.

It goes to the integration as it came: `rpc.integration.{integration}.hook` is a `RawRequest`,
answered by the replica that the integration works in when what it says is stored.
"""
