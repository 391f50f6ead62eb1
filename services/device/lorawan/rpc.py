"""RPC operations for network servers: frames and link states of devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from libs.common.bus import Bus, OutgoingMessage, RpcServer
from libs.common.bus.hops import current_hops, hops_header
from libs.common.bus.subjects import uplink_subject
from libs.common.clock import now_ms
from libs.common.contracts.frames import (
    MAX_FRAMES,
    Frame,
    FramesAnswer,
    RefusedFrame,
    SendLinkState,
)
from libs.common.contracts.integrations import Acknowledged, IdentifierText, Tenant
from libs.common.decoding import JSON_ERRORS
from libs.common.errors import NotFound
from libs.common.telemetry.tracing import trace_header
from services.device.telemetry.presence_store import HttpPresence
from services.device.telemetry.uplink import choose_frame_time, sender_headers
from services.device.things.device_store import DeviceStore
from services.device.things.directory import ThingDirectory
from services.device.things.model import NetworkStatus, Thing

FRAME_CHANNEL = "frame"
MAX_UNCHANGED_FRAME_BYTES = 4096
"""Maximum bytes of a frame that is published unchanged; larger frames are encoded again."""
DEVICE_CACHE_SECONDS = 3600.0
"""Seconds for which the device of an SN is cached, unless an event invalidates it.

Ingest reads the device for each report, and rejects a frame whose device has changed its owner.
"""

_decode_frame = msgspec.json.Decoder(Frame).decode
_encode_json = msgspec.json.Encoder().encode


class RawDeviceFrame(msgspec.Struct, rename="camel", kw_only=True):
    """A `DeviceFrame` whose `frame` stays JSON, so that it can be published unchanged."""

    tenant: Tenant
    identifier: IdentifierText
    frame: msgspec.Raw

    def validated_payload(self, index: int) -> bytes:
        """Return the JSON of the frame; raise `ValidationError` for entry `index` of the call."""
        try:
            frame = _decode_frame(self.frame)
        except JSON_ERRORS as error:
            reason, _, path = str(error).partition(" - at `$")
            text = f"{reason} - at `$.frames[{index}].frame{path or '`'}"
            raise msgspec.ValidationError(text) from error
        return (
            bytes(self.frame)
            if len(self.frame) <= MAX_UNCHANGED_FRAME_BYTES
            else _encode_json(frame)
        )


class SendRawFrames(msgspec.Struct, kw_only=True):
    """`SendFrames`, whose frames are decoded only to check them."""

    frames: Annotated[list[RawDeviceFrame], msgspec.Meta(min_length=1, max_length=MAX_FRAMES)]


@dataclass(frozen=True, kw_only=True)
class FrameRpc:
    """Operations on frames and links for integrations with network servers."""

    bus: Bus
    directory: ThingDirectory
    presence: HttpPresence
    devices: DeviceStore

    def offer(self, rpc: RpcServer) -> None:
        """Register the handlers of `rpc.device.{frames|link}.{integration}`."""
        rpc.offer_each("frames", SendRawFrames, self.publish_frames)
        rpc.offer_each("link", SendLinkState, self.store_link_state)

    async def publish_frames(self, integration: str, sent: SendRawFrames) -> FramesAnswer:
        """Publish frames for ingest; reject frames of devices that the integration lacks."""
        payloads = [frame.validated_payload(index) for index, frame in enumerate(sent.frames)]
        things = await self._find_things(integration, sent.frames)
        trace = trace_header() | hops_header(current_hops())
        await self.bus.publish(
            [
                OutgoingMessage(
                    uplink_subject(thing.sn, FRAME_CHANNEL),
                    payload,
                    headers=trace | sender_headers(thing.tenant, integration),
                )
                for payload, thing in zip(payloads, things, strict=True)
                if thing is not None
            ]
        )
        await self.presence.record_contacts(thing for thing in things if thing)
        return FramesAnswer(
            [
                RefusedFrame(
                    index=index, reason=_unknown_device_text(integration, frame.identifier)
                )
                for index, (frame, thing) in enumerate(zip(sent.frames, things, strict=True))
                if thing is None
            ]
        )

    async def store_link_state(self, integration: str, report: SendLinkState) -> Acknowledged:
        """Store that a device has joined, or the state of its link."""
        (thing,) = await self._find_things(integration, [report])
        if thing is None:
            raise NotFound(_unknown_device_text(integration, report.identifier), field="identifier")
        now = now_ms()
        ts = choose_frame_time(report.ts, now, retention_ms=now)
        await self.devices.reported_state.write_fields([(thing.id, *_to_stored_fact(report, ts))])
        await self.presence.record_contact(thing)
        return Acknowledged()

    async def _find_things(
        self, integration: str, report: Sequence[RawDeviceFrame | SendLinkState]
    ) -> list[Thing | None]:
        """Return the integration's device of each entry, or None."""
        things_by_sn = await self.directory.find_by_sn(
            {frame.identifier for frame in report}, DEVICE_CACHE_SECONDS
        )
        return [
            thing
            if (thing := things_by_sn.get(frame.identifier)) is not None
            and thing.device
            and (thing.tenant, thing.integration) == (frame.tenant, integration)
            else None
            for frame in report
        ]


def _to_stored_fact(report: SendLinkState, ts: int) -> tuple[str, Any, int]:
    """Return field, value and time (ms) of a fact in the device's record."""
    if report.kind == "JOINED":
        return "joined", ts, ts
    link = NetworkStatus(
        at=ts, battery=report.battery, external=report.external_power, margin=report.margin
    )
    return "link", msgspec.to_builtins(link), ts


def _unknown_device_text(integration: str, identifier: str) -> str:
    return f"{integration} has no device {identifier}"
