"""RejectedEntry messages of a device: `/device/{device_id}/refusals` on the console.

What is refused whole is in `DEAD`, with what was said. Of what is stored in part an event tells.
A page is read from both, and its key says how far each has been read.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.bus import DEAD, EVENTS, Bus
from libs.common.bus.retained_messages import RetainedMessage, read_newest
from libs.common.bus.subjects import dead_uplink, device_event
from libs.common.clock import to_ms
from libs.common.contracts.events import Dead, Fault, PropertiesRejected
from libs.common.decoding import copy_fields
from libs.common.http import RequestPrincipal
from libs.common.http.console import ResponseModel
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.identity import Principal
from services.device.telemetry.history import post_search
from services.device.things.directory import GrantedDevices
from services.device.things.model import Device

LARGEST_PAGE = 100
Key = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,19}-[0-9]{1,19}$")]
"""Where the next page begins, as an answer has given it."""


class FindRefusals(msgspec.Struct, kw_only=True):
    """Body of `POST /device/{device_id}/refusals/search`."""

    page_size: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_PAGE)] = 20
    next_key: Key | None = None
    reason: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    """A part of the reason, in any case, or of the path of a value that was refused."""


class Refusal(ResponseModel, kw_only=True):
    """One message of which something was refused."""

    id: str
    received_at: int
    """ms."""
    channel: str
    """`report`, `event` or `reply`."""
    whole: bool
    """Whether nothing of it was stored; else only the values of `faults` were left out."""
    reason: str
    faults: list[Fault]
    payload: str | None = None
    """What was said, at most 64 KiB of it; of what was stored in part it is not kept."""
    base64: bool = False
    truncated: bool = False


class RefusalPage(ResponseModel, kw_only=True):
    """Refusals, the newest first."""

    content: list[Refusal]
    next_key: str | None = None
    """Given when there may be older ones; `content` may be empty all the same where a reason was
    asked for."""


LOOKED_THROUGH = 200
"""Messages of each stream that one request reads at most, when it looks for a reason."""

_dead = msgspec.json.Decoder(Dead).decode
_rejected = msgspec.json.Decoder(PropertiesRejected).decode


class RefusalReader:
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
            read_newest(self._bus, DEAD, [dead_uplink(device.sn)], most, dead_before),
            read_newest(self._bus, EVENTS, [subject], most, event_before),
        )
        return _page(device, wanted, dead, events, most)


def _page(
    device: Device,
    wanted: FindRefusals,
    dead: Sequence[RetainedMessage],
    events: Sequence[RetainedMessage],
    most: int,
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


def _of_dead(one: RetainedMessage) -> Refusal:
    body = _dead(one.message.data)
    channel = body.subject.rpartition(".")[2]
    return copy_fields(Refusal, body, id=f"d{one.sequence}", channel=channel, whole=True)


def _of_event(one: RetainedMessage) -> Refusal | None:
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


@post_search("/{device_id:str}/refusals/search")
async def find_device_refusals(
    principal: RequestPrincipal,
    refusals: NamedDependency[RefusalReader],
    device_id: PathId,
    data: JSONBody[FindRefusals | None] = None,
) -> RefusalPage:
    """What of the device's messages was refused and why, the newest first.

    Messages refused whole are kept for 30 days, values left out of others for 7.
    """
    return await refusals.page(principal, device_id, data or FindRefusals())


ROUTER = Router("/device", route_handlers=operations_of(globals()), tags=["Devices"])
