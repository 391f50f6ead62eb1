"""Ingest: batch by batch from `UPLINK` to stored, said and acknowledged, in this order.

A crash between any two steps repeats the batch, and natural keys make the repetition
harmless: documents exist already, event ids are those of before.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Protocol

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from opentelemetry import metrics, trace

from libs.common.bus import Bus, Outgoing, acknowledge, publish_all
from libs.common.errors import ThingwayError
from libs.common.store.mongo import StoreError
from libs.common.telemetry import extract_context, tracer
from services.device.entities.keeper import ShapeKeeper
from services.device.reports.batch import Batch, Refused, sort_batch
from services.device.reports.facts import Facts
from services.device.reports.latest import LatestValues
from services.device.reports.messages import batch_messages
from services.device.reports.notify import notify
from services.device.reports.store import ReportStore
from services.device.reports.uplink import Uplink, is_second_copy, read_uplink
from services.device.things import Thing, ThingDirectory

log = logging.getLogger(__name__)

REPLIES = 16
"""Things of a batch whose replies are dealt with at the same time."""

_meter = metrics.get_meter("thingway")
_duration = _meter.create_histogram(
    "thingway_ingest_batch_seconds",
    unit="s",
    description="From a batch in hand to acknowledged",
    explicit_bucket_boundaries_advisory=[0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
)
_size = _meter.create_histogram(
    "thingway_ingest_batch_size",
    description="Messages of a batch",
    explicit_bucket_boundaries_advisory=[1, 10, 100, 1000, 2000, 4000, 8000],
)


TRIES = 3
"""Deliveries after which a message that fails alone is given up."""


class Replies(Protocol):
    """Closes commands (`services.device.commands`)."""

    async def handle(self, uplink: Uplink, thing: Thing) -> str | None:
        """Close the command that a reply answers; return why not, when it is refused."""


class Ingest:
    """Deals with batches of `UPLINK`."""

    def __init__(
        self,
        *,
        bus: Bus,
        things: ThingDirectory,
        store: ReportStore,
        latest: LatestValues,
        facts: Facts,
        shapes: ShapeKeeper,
        replies: Replies,
        retention_ms: int,
    ) -> None:
        self._bus = bus
        self._things = things
        self._store = store
        self._latest = latest
        self._facts = facts
        self._shapes = shapes
        self._replies = replies
        self._retention_ms = retention_ms

    async def handle(self, messages: list[Msg]) -> None:
        """Store, announce and acknowledge one batch.

        A message that no code of ours can deal with must not hold up its neighbours: a
        batch that fails by itself, not by a store or bus that is away, is halved until
        the message stands alone, and that one goes to `DEAD` at its third failure.
        """
        try:
            await self._deal_with(messages)
        except (StoreError, ThingwayError, NatsError, OSError, TimeoutError):
            raise
        except Exception as error:
            if len(messages) > 1:
                middle = len(messages) // 2
                try:
                    await self.handle(messages[:middle])
                finally:
                    await self.handle(messages[middle:])
                return
            uplink = read_uplink(messages[0])
            if uplink.delivered < TRIES:
                raise
            log.exception("message %d of %s is given up", uplink.sequence, uplink.sn)
            reason = f"could not be dealt with: {type(error).__name__}: {error}"
            await self._finish([uplink], Batch(refused=[Refused(uplink, reason)]), messages)

    async def _deal_with(self, messages: list[Msg]) -> None:
        started = time.perf_counter()
        uplinks = [read_uplink(message) for message in messages if not is_second_copy(message)]
        things = await self._things.by_sn({uplink.sn for uplink in uplinks})
        batch = sort_batch(uplinks, things, self._retention_ms)
        spans = _start_spans(uplinks)
        await self._close_commands(batch)
        await self._finish(uplinks, batch, messages)
        for span in spans:
            span.end()
        _duration.record(time.perf_counter() - started)
        _size.record(len(messages))

    async def _finish(self, uplinks: list[Uplink], batch: Batch, messages: list[Msg]) -> None:
        await asyncio.gather(
            self._store.store(batch),
            self._latest.apply(
                (report.thing.id, report.ts, report.properties) for report in batch.reports
            ),
            self._facts.note([report for report in batch.reports if report.thing.device]),
            self._shapes.note(batch.reports),
        )
        await self._announce(batch)
        await acknowledge(self._bus.client, messages)
        await notify(self._bus, uplinks, batch)

    async def _close_commands(self, batch: Batch) -> None:
        """Deal with the replies: those of one thing in order, those of several together.

        What came later is what the thing has, also where the ms of arrival is the same.
        """
        by_thing: dict[int, list[tuple[Uplink, Thing]]] = {}
        for uplink, thing in batch.replies:
            by_thing.setdefault(thing.id, []).append((uplink, thing))
        answers = list(by_thing.values())
        for first in range(0, len(answers), REPLIES):
            refused = await asyncio.gather(*map(self._close, answers[first : first + REPLIES]))
            batch.refused += [one for some in refused for one in some]

    async def _close(self, replies: list[tuple[Uplink, Thing]]) -> list[Refused]:
        """Deal with replies one after another; return those that are refused."""
        refused = []
        for uplink, thing in replies:
            reason = await self._replies.handle(uplink, thing)
            if reason is not None:
                refused.append(Refused(uplink, reason, thing))
        return refused

    async def _announce(self, batch: Batch) -> None:
        events: list[Outgoing] = []
        refused: list[Outgoing] = []
        for message in batch_messages(batch):
            (refused if message.subject.startswith("dead.") else events).append(message)
        await publish_all(self._bus, events)
        await publish_all(self._bus, refused)


def _start_spans(uplinks: Iterable[Uplink]) -> list[trace.Span]:
    """A span for each uplink that came with a trace, until the batch is acknowledged."""
    return [
        tracer().start_span(
            "store report",
            context=extract_context(uplink.message.headers),
            kind=trace.SpanKind.CONSUMER,
            attributes={"thingway.sn": uplink.sn, "db.system": "mongodb"},
        )
        for uplink in uplinks
        if uplink.message.headers and "traceparent" in uplink.message.headers
    ]
