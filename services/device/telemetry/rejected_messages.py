"""Rejected messages of a device in the management API.

Messages that are rejected as a whole are in `DEAD`; events report those that are stored in part. A
page of `/device/{device_id}/refusals` contains both, and its key holds the position in each stream.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.bus import DEAD, EVENTS, Bus
from libs.common.bus.stored_messages import StoredMessage, read_newest, read_newest_events
from libs.common.bus.subjects import dead_uplink_subject, device_event
from libs.common.clock import to_ms
from libs.common.contracts.events import Dead, Fault, PropertiesRejected
from libs.common.decoding import copy_fields
from libs.common.http import RequestPrincipal
from libs.common.http.console import ResponseModel
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.identity import Principal
from services.device.telemetry.history import post_search
from services.device.things.directory import GrantedDevices
from services.device.things.model import Device

MAX_PAGE_SIZE = 100
RejectedPageKey = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,19}-[0-9]{1,19}$")]
"""Position of the next page, as in the previous answer."""


class FindRejectedMessages(msgspec.Struct, kw_only=True):
    """Body of `POST /device/{device_id}/refusals/search`."""

    page_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_SIZE)] = 20
    next_key: RejectedPageKey | None = None
    reason: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    """A part of the reason, in any case, or of the path of a rejected value."""


class RejectedMessage(ResponseModel, kw_only=True):
    """One message that was rejected as a whole or in part."""

    id: str
    received_at: int
    """Unix time in ms."""
    channel: str
    """`report`, `event`, `reply` or `frame`; the last part of the subject if it is unknown."""
    whole: bool
    """Whether the whole message was rejected; otherwise only the values in `faults`."""
    reason: str
    faults: list[Fault]
    payload: str | None = None
    """At most 64 KiB of the message; absent for messages that were stored in part."""
    base64: bool = False
    """Whether `payload` is Base64, because the message is not UTF-8 text."""
    truncated: bool = False
    """Whether `payload` is only the beginning of the message."""


class RejectedMessagePage(ResponseModel, kw_only=True):
    """A page of rejected messages, newest first."""

    content: list[RejectedMessage]
    next_key: str | None = None
    """Present if there may be older ones. With a `reason`, `content` may be empty nevertheless."""


MAX_SEARCHED_MESSAGES = 200
"""Maximum messages of each stream that one request reads to find a reason."""

_decode_dead = msgspec.json.Decoder(Dead).decode
_decode_rejected = msgspec.json.Decoder(PropertiesRejected).decode


class RejectedMessageReader:
    """Reads the rejected messages of devices."""

    def __init__(self, bus: Bus, devices: GrantedDevices) -> None:
        self._bus = bus
        self._devices = devices

    async def page(
        self, principal: Principal, device_id: int, request: FindRejectedMessages
    ) -> RejectedMessagePage:
        """Return a page of rejected messages of a device that the user may see.

        Messages of earlier owners are not included. Raises `Unavailable` when the bus does not
        answer.
        """
        device = await self._devices.find(principal, device_id)
        dead_before, event_before = _parse_page_key(request.next_key)
        maximum = MAX_SEARCHED_MESSAGES if request.reason else request.page_size + 1
        subject = device_event(device.tenant, device.id, "rejected")
        dead, events = await asyncio.gather(
            read_newest(self._bus, DEAD, [dead_uplink_subject(device.sn)], maximum, dead_before),
            read_newest_events(self._bus, [subject], maximum, event_before),
        )
        return _merge_streams(device, request, dead, events, maximum)


def _merge_streams(
    device: Device,
    request: FindRejectedMessages,
    dead: Sequence[StoredMessage],
    events: Sequence[StoredMessage],
    maximum: int,
) -> RejectedMessagePage:
    """Merge both streams by time, up to the end of the page.

    If a stream has more messages than were read, older messages of the other stream may not be the
    next ones. The page therefore ends where the first incomplete stream ends.
    """
    found = [(message.at, DEAD, message) for message in dead]
    found += [(message.at, EVENTS, message) for message in events]
    found.sort(key=lambda entry: entry[0], reverse=True)
    full = [messages[-1].at for messages in (dead, events) if len(messages) >= maximum]
    has_more = {DEAD: maximum <= len(dead), EVENTS: maximum <= len(events)}
    reached = {DEAD: 0, EVENTS: 0}
    content: list[RejectedMessage] = []
    for at, stream, message in found:
        if len(content) == request.page_size or (full and at < max(full)):
            has_more[stream] = True
            break
        reached[stream] = message.sequence
        rejection = _from_dead(message) if stream == DEAD else _from_event(message)
        if rejection is not None and _is_listed(rejection, device, request.reason):
            content.append(rejection)
    if not any(has_more.values()):
        return RejectedMessagePage(content=content)
    ends = _parse_page_key(request.next_key)
    key = "-".join(
        str(reached[stream] or (end or _END_SEQUENCE))
        for stream, end in zip(reached, ends, strict=True)
    )
    return RejectedMessagePage(content=content, next_key=key)


_END_SEQUENCE = 2**63 - 1


def _parse_page_key(key: str | None) -> tuple[int | None, int | None]:
    if key is None:
        return None, None
    dead, _, events = key.partition("-")
    return int(dead), int(events)


def _from_dead(stored: StoredMessage) -> RejectedMessage:
    body = _decode_dead(stored.message.data)
    channel = body.subject.rpartition(".")[2]
    return copy_fields(RejectedMessage, body, id=f"d{stored.sequence}", channel=channel, whole=True)


def _from_event(stored: StoredMessage) -> RejectedMessage | None:
    """Return the rejected message of an event; None if `DEAD` has the message, too."""
    body = _decode_rejected(stored.message.data)
    if body.whole:
        return None
    return RejectedMessage(
        id=f"e{stored.sequence}",
        received_at=to_ms(stored.at),
        channel="report",
        whole=False,
        reason="; ".join(f"{fault.path}: {fault.reason}" for fault in body.faults),
        faults=body.faults,
    )


def _is_listed(rejection: RejectedMessage, device: Device, reason: str | None) -> bool:
    if rejection.received_at < device.owned_since:
        return False
    return not reason or reason.lower() in rejection.reason.lower()


@post_search("/{device_id:str}/refusals/search")
async def find_device_refusals(
    principal: RequestPrincipal,
    rejections: NamedDependency[RejectedMessageReader],
    device_id: PathId,
    data: JSONBody[FindRejectedMessages | None] = None,
) -> RejectedMessagePage:
    """List rejected messages and values of the device with reasons, newest first.

    A message that was rejected as a whole is kept for 30 days, a rejected value for 7.
    """
    return await rejections.page(principal, device_id, data or FindRejectedMessages())


ROUTER = route_operations(globals(), "/device", tags=["Devices"])
