"""Frames on the bus: payloads from network servers, and downlinks to them.

An integration sends many frames in one call. `device` publishes each on `thing.{sn}.up.frame`, and
ingest decodes it with the codec of the device's product.
"""

from typing import Annotated, Literal

import msgspec

from libs.common.contracts.integrations import DeviceRef, IdentifierText, Tenant

MAX_FRAMES = 500
"""Maximum frames of one call."""
MAX_FRAME_BYTES = 255
"""Maximum bytes of a LoRaWAN payload."""
MAX_GATEWAYS = 16
"""Maximum gateways that are stored per frame, those with the strongest reception."""

Port = Annotated[int, msgspec.Meta(ge=1, le=223)]
Payload = Annotated[bytes, msgspec.Meta(max_length=MAX_FRAME_BYTES)]
"""Base64 in JSON."""
Counter = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Name = Annotated[str, msgspec.Meta(max_length=128)]
DownlinkState = Literal["SENT", "ACKNOWLEDGED", "UNACKNOWLEDGED", "REFUSED"]


class Reception(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The reception of a frame by one gateway, in dBm and dB."""

    gateway: Name
    """Extended unique identifier (EUI) of the gateway."""
    rssi: float | None = None
    """Received signal strength indication (RSSI) in dBm, for example -97."""
    snr: float | None = None
    """Signal-to-noise ratio (SNR) in dB, for example 7.5."""


class Frame(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """An uplink of a device, as its network server received it.

    `session` and `counter` identify a frame of a device: another frame with equal values is a
    duplicate. A session begins with a join; `session` is the device's address, or the id of the
    session key.
    """

    port: Port
    data: Payload
    counter: Counter
    session: Name = ""
    ts: int | None = None
    """When the network received it, ms; absent: when it is stored."""
    confirmed: bool = False
    data_rate: Name = ""
    """For example `SF7BW125`."""
    frequency: int | None = None
    """Radio frequency in Hz."""
    gateways: Annotated[list[Reception], msgspec.Meta(max_length=MAX_GATEWAYS)] = []


class DeviceFrame(msgspec.Struct, rename="camel", kw_only=True):
    """A frame and its device, which belongs to the integration."""

    tenant: Tenant
    identifier: IdentifierText
    frame: Frame


class SendFrames(msgspec.Struct, kw_only=True):
    """`rpc.device.frames.{integration}`: uplinks; an answer means that they are accepted."""

    frames: Annotated[list[DeviceFrame], msgspec.Meta(min_length=1, max_length=MAX_FRAMES)]


class RefusedFrame(msgspec.Struct, kw_only=True):
    """A frame that was rejected, by its index in the call, and the reason."""

    index: int
    reason: str


class FramesAnswer(msgspec.Struct):
    """Answer of `frames`: all other frames are accepted."""

    refused: list[RefusedFrame] = []


class Downlink(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Bytes for a device; later states of the downlink refer to its unique `id`."""

    id: Name
    port: Port
    data: Payload
    confirmed: bool = False
    expires_at: int | None = None
    """Expiry, ms: a network server that supports it then deletes the downlink."""


MAX_DOWNLINKS = 32
"""Maximum downlinks of one call."""


class QueueDownlinks(msgspec.Struct, rename="camel", kw_only=True):
    """`rpc.integration.{id}.downlink`: queue downlinks for a device, in order.

    The service `device` repeats the call until it knows the state of each downlink. The integration
    recognizes duplicates by the ids of the downlinks.
    """

    device: DeviceRef
    downlinks: Annotated[list[Downlink], msgspec.Meta(min_length=1, max_length=MAX_DOWNLINKS)]


class SendDownlinkState(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`rpc.device.downlink.{integration}`: the state of a downlink."""

    tenant: Tenant
    identifier: IdentifierText
    downlink: Name
    state: DownlinkState
    ts: int | None = None
    error: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class SendLinkState(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`rpc.device.link.{integration}`: a join, or the device's answer to a status request."""

    tenant: Tenant
    identifier: IdentifierText
    kind: Literal["JOINED", "STATUS"]
    ts: int | None = None
    battery: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    """Percent; None if unknown or powered externally."""
    external_power: bool = False
    margin: float | None = None
    """dB by which the last request exceeded the demodulation floor."""


MAX_HOOK_BYTES = 64 * 1024
"""Maximum bytes of a webhook request: an uplink that many gateways received has about 10,000.

The integration gets the request unchanged: `rpc.integration.{integration}.hook` is a `RawRequest`.
The replica that serves the integration answers when the content is stored.
"""
