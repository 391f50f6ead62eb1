"""Refusals of one device, the newest first.

What is refused whole is in `DEAD`, with what was said. Of what is stored in part an event tells.
A page is read from both, and its key says how far each has been read.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from libs.common.bus import DEAD, EVENTS, Bus
from libs.common.bus.retained_messages import Kept, newest
from libs.common.bus.subjects import dead_uplink, device_event
from libs.common.clock import to_ms
from libs.common.contracts.events import Dead, PropertiesRejected
from libs.common.identity import Principal
from services.device.reports.refusals.schemas import FindRefusals, Refusal, RefusalPage
from services.device.things.directory import GrantedDevices
from services.device.things.model import Device

LOOKED_THROUGH = 200
"""Messages of each stream that one request reads at most, when it looks for a reason."""

_dead = msgspec.json.Decoder(Dead).decode
_rejected = msgspec.json.Decoder(PropertiesRejected).decode


class Refusals:
    """Reads what was refused."""

    def __init__(self, bus: Bus, devices: GrantedDevices) -> None:
        self._bus = bus
        self._devices = devices

    async def page(self, principal: Principal, device_id: int, wanted: FindRefusals) -> RefusalPage:
        """A page of what a device that the user sees had refused; of earlier owners nothing.

        Raises `Unavailable` when the bus does not answer.
        """
        device = await self._devices.find(principal, device_id)
        dead_before, event_before = _read_key(wanted.next_key)
        most = LOOKED_THROUGH if wanted.reason else wanted.page_size + 1
        subject = device_event(device.tenant, device.id, "rejected")
        dead, events = await asyncio.gather(
            newest(self._bus, DEAD, [dead_uplink(device.sn)], most, dead_before),
            newest(self._bus, EVENTS, [subject], most, event_before),
        )
        return _page(device, wanted, dead, events, most)


def _page(
    device: Device, wanted: FindRefusals, dead: Sequence[Kept], events: Sequence[Kept], most: int
) -> RefusalPage:
    """Both, in the order of time, up to the end of the page.

    What a full reading did not reach may be newer than the older end of the other: the page ends
    where the first of the full ones ends.
    """
    found = [(one.at, DEAD, one) for one in dead]
    found += [(one.at, EVENTS, one) for one in events]
    found.sort(key=lambda entry: entry[0], reverse=True)
    full = [some[-1].at for some in (dead, events) if len(some) >= most]
    left = {DEAD: most <= len(dead), EVENTS: most <= len(events)}
    reached = {DEAD: 0, EVENTS: 0}
    content: list[Refusal] = []
    for at, stream, one in found:
        if len(content) == wanted.page_size or (full and at < max(full)):
            left[stream] = True
            break
        reached[stream] = one.sequence
        refusal = _of_dead(one) if stream == DEAD else _of_event(one)
        if refusal is not None and _fits(refusal, device, wanted.reason):
            content.append(refusal)
    if not any(left.values()):
        return RefusalPage(content=content)
    ends = _read_key(wanted.next_key)
    key = "-".join(
        str(reached[stream] or (end or _END)) for stream, end in zip(reached, ends, strict=True)
    )
    return RefusalPage(content=content, next_key=key)


_END = 2**63 - 1


def _read_key(key: str | None) -> tuple[int | None, int | None]:
    if key is None:
        return None, None
    dead, _, events = key.partition("-")
    return int(dead), int(events)


def _of_dead(one: Kept) -> Refusal:
    body = _dead(one.message.data)
    return Refusal(
        id=f"d{one.sequence}",
        received_at=body.received_at,
        channel=body.subject.rpartition(".")[2],
        whole=True,
        reason=body.reason,
        faults=body.faults,
        payload=body.payload,
        base64=body.base64,
        truncated=body.truncated,
    )


def _of_event(one: Kept) -> Refusal | None:
    """None for the event of what is in `DEAD`, too."""
    body = _rejected(one.message.data)
    if body.whole:
        return None
    return Refusal(
        id=f"e{one.sequence}",
        received_at=to_ms(one.at),
        channel="report",
        whole=False,
        reason="; ".join(f"{fault.path}: {fault.reason}" for fault in body.faults),
        faults=body.faults,
    )


def _fits(refusal: Refusal, device: Device, reason: str | None) -> bool:
    if refusal.received_at < device.owned_since:
        return False
    return not reason or reason.lower() in refusal.reason.lower()
