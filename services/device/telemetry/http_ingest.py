"""HTTP ingest: `/ingest/v1/{sn}/…`."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from libs.common.bus import Bus, OutgoingMessage, publish_all
from libs.common.bus.subjects import uplink_subject
from libs.common.clock import now_ms
from libs.common.decoding import JSON_ERRORS
from libs.common.errors import InvalidInput, MalformedRequest, TooLarge, TooManyRequests
from libs.common.http import HttpRequest, RequestPrincipal
from libs.common.http.guards import devices
from libs.common.http.ids import Id
from libs.common.http.open_api import post
from libs.common.http.operations import route_operations
from libs.common.identity import Principal
from libs.common.limits.meter import MessageMeter
from libs.common.limits.tenants import count_rejection
from libs.common.telemetry.tracing import trace_header
from libs.common.tsl.limits import MAX_TIME_MS
from services.device.telemetry.dead_messages import DeadMessagePublisher, RejectedHttpMessage
from services.device.telemetry.partitions import DAY_MS
from services.device.telemetry.presence_store import HttpPresence
from services.device.telemetry.reporter import NOTIFY_HEADER, StorageWaiter
from services.device.telemetry.uplink import MAX_PAYLOAD_BYTES, check_message
from services.device.things.directory import ThingDirectory
from services.device.things.model import Thing

MAX_ENTRIES = 1000
"""Maximum entries of one request."""


class RejectedItem(msgspec.Struct, omit_defaults=True):
    """A rejected message of the request, or a rejected value of a message."""

    index: int
    """Position of the message in the request, from 0. -1: it was rejected while it was stored."""
    field: str
    reason: str


class IngestResult(msgspec.Struct):
    """The number of accepted messages, and the rejected messages and values."""

    accepted: int
    """Number of accepted messages."""
    refused: list[RejectedItem]
    """Rejected messages and values."""


@dataclass(frozen=True, kw_only=True)
class HttpIngestService:
    """Accepts the messages over HTTP that MQTT devices publish on their subjects."""

    bus: Bus
    things: ThingDirectory
    presence: HttpPresence
    meter: MessageMeter
    keeper: DeadMessagePublisher
    retention_days: int

    async def accept(
        self, principal: Principal, sn: str, channel: str, body: bytes, *, wait_until_stored: bool
    ) -> IngestResult:
        """Publish the entries of `body` on `UPLINK`; if requested, wait until they are stored.

        Raises `InvalidInput` or `TooLarge` for a single entry that is rejected as a whole; of an
        array each rejected entry is listed. All accepted entries of a request are published, or
        none. Entries that are rejected as a whole are kept in `DEAD` for users. Raises
        `TooManyRequests` when the entries together exceed the limit of the device or its tenant.
        """
        thing = await self.things.find_sender(principal, sn)
        try:
            entries, is_array = split_entries(body)
        except InvalidInput as error:
            self._count_or_reject(thing, [body])
            await self.keeper.publish(thing, channel, [RejectedHttpMessage.from_error(body, error)])
            raise
        self._count_or_reject(thing, entries)
        accepted, rejected, whole = validate_entries(
            channel, thing, entries, now_ms(), self.retention_days * DAY_MS
        )
        if whole:
            await self.keeper.publish(thing, channel, whole)
        if not is_array and not accepted:
            raise _single_rejection(rejected)
        if not accepted:
            await self.presence.record_contact(thing)
            return IngestResult(0, rejected)
        headers = trace_header()
        async with AsyncExitStack() as stack:
            waiter = None
            if wait_until_stored:
                waiter = await stack.enter_async_context(StorageWaiter(self.bus, len(accepted)))
                headers[NOTIFY_HEADER] = waiter.subject
            subject = uplink_subject(thing.sn, channel)
            await publish_all(
                self.bus, [OutgoingMessage(subject, raw, None, headers) for raw in accepted]
            )
            await self.presence.record_contact(thing)
            if waiter is None:
                return IngestResult(len(accepted), rejected)
            outcomes = await waiter.wait()
        rejected_late = [
            RejectedItem(-1, channel, outcome.refused) for outcome in outcomes if outcome.refused
        ]
        return IngestResult(len(accepted) - len(rejected_late), rejected + rejected_late)

    def _count_or_reject(self, thing: Thing, entries: list[bytes]) -> None:
        size = sum(map(len, entries))
        excess = self.meter.count(thing.tenant, thing.id, len(entries), size, now_ms() / 1000)
        if excess is not None:
            count_rejection(excess.limit, thing.tenant)
            raise TooManyRequests(excess.reason, retry_after=excess.wait)


def split_entries(body: bytes) -> tuple[list[bytes], bool]:
    """Split a body into raw entries; the flag is True for an array. Raises `InvalidInput`."""
    try:
        if body.lstrip()[:1] == b"[":
            entries = [bytes(raw) for raw in msgspec.json.decode(body, type=list[msgspec.Raw])]
        else:
            msgspec.json.decode(body, type=msgspec.Raw)
            return [body], False
    except JSON_ERRORS as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from error
    if not 1 <= len(entries) <= MAX_ENTRIES:
        raise InvalidInput(f"must contain 1 to {MAX_ENTRIES} messages", field="body")
    return entries, True


def validate_entries(
    channel: str, thing: Thing, entries: list[bytes], now: int, retention_ms: int
) -> tuple[list[bytes], list[RejectedItem], list[RejectedHttpMessage]]:
    """Return accepted entries, all rejections to report, and entries rejected as a whole.

    `now` is in ms.
    """
    accepted: list[bytes] = []
    rejected: list[RejectedItem] = []
    whole: list[RejectedHttpMessage] = []
    for index, raw in enumerate(entries):
        try:
            if len(raw) > MAX_PAYLOAD_BYTES:
                raise InvalidInput(f"is larger than {MAX_PAYLOAD_BYTES} bytes", field="entry")  # noqa: TRY301
            faults = check_message(channel, thing, raw, now, retention_ms)
        except InvalidInput as error:
            rejected.append(RejectedItem(index, error.field or "", error.message))
            whole.append(RejectedHttpMessage.from_error(raw, error))
        else:
            accepted.append(raw)
            rejected += [RejectedItem(index, fault.path, fault.reason) for fault in faults]
    return accepted, rejected, whole


def _single_rejection(rejected: list[RejectedItem]) -> InvalidInput | TooLarge:
    first = rejected[0]
    if first.field == "entry":
        return TooLarge(f"a message may have at most {MAX_PAYLOAD_BYTES} bytes")
    return InvalidInput(first.reason, field=first.field)


ReportTime = Annotated[
    int, msgspec.Meta(ge=0, le=MAX_TIME_MS, description="Time in ms since 1970; defaults to now")
]


class ReportMessage(msgspec.Struct):
    """Values of properties by property key."""

    properties: dict[str, Any]
    ts: ReportTime | None = None


class EventMessage(msgspec.Struct, rename="camel"):
    """An event of the TSL, with its outputs by name, without the id of the event."""

    event_id: str
    ts: ReportTime | None = None
    outputs: dict[str, Any] | None = None


class ReplyMessage(msgspec.Struct, rename="camel"):
    """The result of a command; `error` is the reason of a failure."""

    command_id: Id
    """Id of the command, which the device received with it."""
    status: Literal["SUCCESS", "FAILED"]
    """Result of the command."""
    outputs: dict[str, Any] | None = None
    error: str | None = None
    """Reason of the failure."""


HttpIngest = NamedDependency[HttpIngestService]
Wait = Annotated[
    Literal["stored"] | None,
    QueryParameter(
        description="`stored`: answer when the messages are stored. Default: when accepted."
    ),
]


@post(
    "/report",
    status_code=202,
    body=ReportMessage | list[ReportMessage],
    example={"properties": {"temperature": 21.5}},
    waits=True,
)
async def report_properties(
    request: HttpRequest,
    principal: RequestPrincipal,
    edge: HttpIngest,
    sn: FromPath[str],
    wait: Wait = None,
) -> IngestResult:
    """Report measured values: one report, or an array of up to 1000."""
    return await edge.accept(
        principal, sn, "report", await request.body(), wait_until_stored=wait is not None
    )


@post(
    "/event",
    status_code=202,
    body=EventMessage | list[EventMessage],
    example={"eventId": "alarm", "outputs": {"level": 2}},
    waits=True,
)
async def report_event(
    request: HttpRequest,
    principal: RequestPrincipal,
    edge: HttpIngest,
    sn: FromPath[str],
    wait: Wait = None,
) -> IngestResult:
    """Report events of the TSL: one event, or an array of up to 1000."""
    return await edge.accept(
        principal, sn, "event", await request.body(), wait_until_stored=wait is not None
    )


@post(
    "/reply",
    status_code=202,
    body=ReplyMessage | list[ReplyMessage],
    example={"commandId": 1000017, "status": "SUCCESS", "outputs": {}},
    waits=True,
)
async def answer_command(
    request: HttpRequest,
    principal: RequestPrincipal,
    edge: HttpIngest,
    sn: FromPath[str],
    wait: Wait = None,
) -> IngestResult:
    """Answer commands: one reply, or an array of up to 1000."""
    return await edge.accept(
        principal, sn, "reply", await request.body(), wait_until_stored=wait is not None
    )


ROUTER = route_operations(globals(), "/ingest/v1/{sn:str}", guards=[devices], tags=["Device edge"])
