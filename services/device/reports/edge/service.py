"""Takes reports, events and replies over HTTP."""

from contextlib import AsyncExitStack

import msgspec

from libs.common.bus import Bus, Outgoing, publish_all
from libs.common.bus.subjects import up
from libs.common.clock import now_ms
from libs.common.decoding import INVALID_JSON
from libs.common.errors import InvalidInput, MalformedRequest, TooLarge, TooManyRequests
from libs.common.identity import Principal
from libs.common.limits.meter import MessageMeter
from libs.common.limits.tenants import count_limited
from libs.common.telemetry.tracing import trace_header
from services.device.reports.checking import check
from services.device.reports.edge.keeping import RefusalKeeper, Rejected
from services.device.reports.history.partitions import DAY_MS
from services.device.reports.notify import HEADER, StoredWaiter
from services.device.reports.presence.http import HttpPresence
from services.device.reports.uplink import MAX_PAYLOAD
from services.device.things.directory import ThingDirectory
from services.device.things.model import Thing

MOST_ENTRIES = 1000
"""Entries of one request."""


class RefusedEntry(msgspec.Struct, omit_defaults=True):
    """An entry of the request, or a value in one, that was refused."""

    index: int
    field: str
    reason: str


class Accepted(msgspec.Struct):
    """How many entries were taken, and what was refused."""

    accepted: int
    refused: list[RefusedEntry]


class EdgeService:
    """The HTTP side of what MQTT devices do on their subjects."""

    def __init__(
        self,
        *,
        bus: Bus,
        things: ThingDirectory,
        presence: HttpPresence,
        meter: MessageMeter,
        keeper: RefusalKeeper,
        retention_days: int,
    ) -> None:
        self._bus = bus
        self._things = things
        self._presence = presence
        self._meter = meter
        self._keeper = keeper
        self._retention_ms = retention_days * DAY_MS

    async def accept(
        self, principal: Principal, sn: str, channel: str, body: bytes, *, stored: bool
    ) -> Accepted:
        """Put what `body` holds on `UPLINK`; with `stored`, wait until it is in MongoDB.

        A single entry that is refused whole is a 400; of an array each refused entry is
        listed. Accepted entries of one request are on the stream all or not at all, those that are
        refused whole are kept for people. Raises `TooManyRequests` when all of them together are
        more than the device or its tenant may send.
        """
        thing = await self._things.speaking(principal, sn)
        try:
            entries, is_array = read_entries(body)
        except InvalidInput as error:
            self._count(thing, [body])
            await self._keeper.keep(thing, channel, [Rejected.by(body, error)])
            raise
        self._count(thing, entries)
        accepted, refused, whole = sort_entries(
            channel, thing, entries, now_ms(), self._retention_ms
        )
        if whole:
            await self._keeper.keep(thing, channel, whole)
        if not is_array and not accepted:
            raise _single_refusal(refused)
        if not accepted:
            await self._presence.heard(thing)
            return Accepted(0, refused)
        headers = trace_header()
        async with AsyncExitStack() as stack:
            waiter = None
            if stored:
                waiter = await stack.enter_async_context(StoredWaiter(self._bus, len(accepted)))
                headers[HEADER] = waiter.subject
            subject = up(thing.sn, channel)
            await publish_all(
                self._bus, [Outgoing(subject, raw, None, headers) for raw in accepted]
            )
            await self._presence.heard(thing)
            if waiter is None:
                return Accepted(len(accepted), refused)
            outcomes = await waiter.wait()
        late = [RefusedEntry(-1, channel, one.refused) for one in outcomes if one.refused]
        return Accepted(len(accepted) - len(late), refused + late)

    def _count(self, thing: Thing, entries: list[bytes]) -> None:
        size = sum(map(len, entries))
        excess = self._meter.take(thing.tenant, thing.id, len(entries), size, now_ms() / 1000)
        if excess is not None:
            count_limited(excess.limit, thing.tenant)
            raise TooManyRequests(excess.reason, retry_after=excess.wait)


def read_entries(body: bytes) -> tuple[list[bytes], bool]:
    """Split a body into raw entries; the flag tells whether it was an array."""
    try:
        if body.lstrip()[:1] == b"[":
            entries = [bytes(raw) for raw in msgspec.json.decode(body, type=list[msgspec.Raw])]
        else:
            msgspec.json.decode(body, type=msgspec.Raw)
            return [body], False
    except INVALID_JSON as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from error
    if not 1 <= len(entries) <= MOST_ENTRIES:
        raise InvalidInput(f"must hold 1 to {MOST_ENTRIES} entries", field="body")
    return entries, True


def sort_entries(
    channel: str, thing: Thing, entries: list[bytes], now: int, retention_ms: int
) -> tuple[list[bytes], list[RefusedEntry], list[Rejected]]:
    """The entries to accept, what is refused of all, and the entries refused whole; `now` in ms."""
    accepted: list[bytes] = []
    refused: list[RefusedEntry] = []
    whole: list[Rejected] = []
    for index, raw in enumerate(entries):
        try:
            if len(raw) > MAX_PAYLOAD:
                raise InvalidInput(f"is larger than {MAX_PAYLOAD} bytes", field="entry")  # noqa: TRY301
            faults = check(channel, thing, raw, now, retention_ms)
        except InvalidInput as error:
            refused.append(RefusedEntry(index, error.field or "", error.message))
            whole.append(Rejected.by(raw, error))
        else:
            accepted.append(raw)
            refused += [RefusedEntry(index, fault.path, fault.reason) for fault in faults]
    return accepted, refused, whole


def _single_refusal(refused: list[RefusedEntry]) -> InvalidInput | TooLarge:
    first = refused[0]
    if first.field == "entry":
        return TooLarge(f"a message may have {MAX_PAYLOAD} bytes")
    return InvalidInput(first.reason, field=first.field)
