"""What network servers tell: frames of devices that send bytes, and how their links are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.bus import Bus, Outgoing, RpcServer
from libs.common.bus.hops import current_hops, hops_header
from libs.common.bus.subjects import up
from libs.common.clock import now_ms
from libs.common.contracts.frames import (
    FramesTold,
    RefusedFrame,
    TellFrames,
    TellLink,
    ToldFrame,
)
from libs.common.contracts.integrations import Acknowledged
from libs.common.errors import NotFound
from libs.common.telemetry.tracing import trace_header
from services.device.reports.checking import frame_time
from services.device.reports.presence.http import HttpPresence
from services.device.things import Thing, ThingDirectory
from services.device.things.model import Link
from services.device.things.store import DeviceStore

CHANNEL = "frame"


@dataclass(frozen=True, kw_only=True)
class FrameRpc:
    """The operations that `device` offers to integrations of network servers."""

    bus: Bus
    directory: ThingDirectory
    presence: HttpPresence
    devices: DeviceStore

    def offer(self, rpc: RpcServer) -> None:
        """Answer `rpc.device.{frames|link}.{integration}`."""
        rpc.offer_each("frames", TellFrames, self.frames)
        rpc.offer_each("link", TellLink, self.link)

    async def frames(self, integration: str, told: TellFrames) -> FramesTold:
        """Take frames; those of devices that the integration does not have are refused."""
        things = await self._things(integration, told.frames)
        trace = trace_header() | hops_header(current_hops())
        encode = msgspec.json.Encoder().encode
        await self.bus.publish(
            [
                Outgoing(up(thing.sn, CHANNEL), encode(one.frame), headers=trace)
                for one, thing in zip(told.frames, things, strict=True)
                if thing is not None
            ]
        )
        await self.presence.heard_all(one for one in things if one)
        return FramesTold(
            [
                RefusedFrame(index=index, reason=_unknown(integration, one.identifier))
                for index, (one, thing) in enumerate(zip(told.frames, things, strict=True))
                if thing is None
            ]
        )

    async def link(self, integration: str, told: TellLink) -> Acknowledged:
        """A device has joined, or said how it is."""
        (thing,) = await self._things(integration, [told])
        if thing is None:
            raise NotFound(_unknown(integration, told.identifier), field="identifier")
        now = now_ms()
        ts = frame_time(told.ts, now, retention_ms=now)
        await self.devices.notes.facts([(thing.id, *_fact(told, ts))])
        await self.presence.heard(thing)
        return Acknowledged()

    async def _things(
        self, integration: str, told: Sequence[ToldFrame | TellLink]
    ) -> list[Thing | None]:
        """The device of each, which its integration calls by its SN; None for what it has not."""
        found = await self.directory.by_sn({one.identifier for one in told})
        return [
            thing
            if (thing := found.get(one.identifier)) is not None
            and thing.device
            and (thing.tenant, thing.integration) == (one.tenant, integration)
            else None
            for one in told
        ]


def _fact(told: TellLink, ts: int) -> tuple[str, Any, int]:
    """What the record of the device has of it: the field, its value, and of when (ms) it is."""
    if told.kind == "JOINED":
        return "joined", ts, ts
    link = Link(at=ts, battery=told.battery, external=told.external_power, margin=told.margin)
    return "link", msgspec.to_builtins(link), ts


def _unknown(integration: str, identifier: str) -> str:
    return f"{integration} has no device {identifier}"
