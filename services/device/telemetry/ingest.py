"""Ingest of batches of messages, with trace spans of their reports.

A crash between any two steps repeats the batch. The keys of documents and the ids of events derive
from the messages, so the repetition changes nothing.
"""

import asyncio
import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import APIError
from opentelemetry import metrics
from opentelemetry.trace import Span, SpanKind

from libs.common.bus import DEAD, EVENTS, Bus, acknowledge, publish_each
from libs.common.limits.meter import RateExcess
from libs.common.store.mongo import StoreError
from libs.common.telemetry.tracing import (
    is_sampled,
    mark_failed,
    read_trace,
    span_header,
    start_span,
    trace_batch,
    trace_step,
)
from libs.common.things import GENERIC_MODEL
from libs.common.tsl import MASK
from services.device.members.shapes import Shape, ShapeUpdater, filter_by_shape
from services.device.telemetry.batch import (
    Batch,
    RejectedUplink,
    ValidReport,
    build_batch,
    past_reports,
)
from services.device.telemetry.batch_store import BatchStore
from services.device.telemetry.dead_messages import DeadMessageBuilder
from services.device.telemetry.device_fields import DeviceFieldUpdater
from services.device.telemetry.events import build_events
from services.device.telemetry.folded_values import TOO_LARGE_REASON
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.ports import AlarmTrigger, CommandCloser, FrameDecoder
from services.device.telemetry.quota import MessageQuota, SlowCodecQueue
from services.device.telemetry.reporter import notify_waiting_senders
from services.device.telemetry.uplink import Uplink, is_second_copy, read_uplink
from services.device.things.directory import ThingDirectory
from services.device.things.model import Thing

log = logging.getLogger(__name__)

SPAN_NAME = "ingest message"


class UplinkSpans:
    """The trace spans of the messages of a batch.

    `uplinks` are these messages; `Uplink.trace` refers to the span of each, if it has one.
    """

    def __init__(self, uplinks: Iterable[Uplink]) -> None:
        self._spans: dict[int, Span] = {}
        self.uplinks = [self._begin_span(uplink) for uplink in uplinks]

    def _begin_span(self, uplink: Uplink) -> Uplink:
        """Begin a span if the uplink continues a trace or is sampled; return it with `trace`."""
        parent = read_trace(uplink.message.headers)
        if not parent and not is_sampled():
            return uplink
        span = start_span(
            SPAN_NAME,
            SpanKind.CONSUMER,
            parent,
            start=uplink.received * 1_000_000,
            attributes={
                "messaging.system": "nats",
                "messaging.destination.name": uplink.channel,
                "messaging.message.id": uplink.key,
                "thingway.sn": uplink.sn,
            },
        )
        self._spans[uplink.sequence] = span
        return msgspec.structs.replace(uplink, trace=span_header(span))

    @contextmanager
    def batch_span(self) -> Iterator[None]:
        """Run the processing in one span; the spans of uplinks end with it."""
        with trace_batch("ingest batch", [uplink.trace for uplink in self.uplinks]) as span:
            try:
                yield
            except BaseException as error:
                for uplink_span in self._spans.values():
                    mark_failed(uplink_span, type(error).__name__)
                raise
            finally:
                for uplink_span in self._spans.values():
                    uplink_span.add_link(span.get_span_context())
                    uplink_span.end()

    def mark_rejected(self, uplinks: Sequence[Uplink]) -> None:
        """Mark the spans of rejected uplinks as failed."""
        for uplink in uplinks:
            if uplink.trace:
                mark_failed(self._spans[uplink.sequence], "refused")


REPLY_TRANSACTIONS, REPLIES = 16, 8
"""Maximum concurrent transactions for the replies of a batch, and replies per transaction while
fewer transactions suffice."""

_meter = metrics.get_meter("thingway")
_duration_histogram = _meter.create_histogram(
    "thingway_ingest_batch_seconds",
    unit="s",
    description="Time to process and acknowledge a batch",
    explicit_bucket_boundaries_advisory=[0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
)
_size_histogram = _meter.create_histogram(
    "thingway_ingest_batch_size",
    description="Messages of a batch",
    explicit_bucket_boundaries_advisory=[1, 10, 100, 1000, 2000, 4000, 8000],
)


MAX_FAILURES = 3
"""Failures after which a message that fails alone is moved to `DEAD`."""
FAILURE_CACHE_SIZE = 10_000
"""Maximum messages that failed alone and whose failures are counted."""
HEALTH_TIMEOUT_SECONDS = 5.0
"""Seconds within which store and bus must answer."""


@dataclass(kw_only=True)
class Ingest:
    """Processes batches of `UPLINK`."""

    bus: Bus
    things: ThingDirectory
    store: BatchStore
    latest: LatestValues
    device_fields: DeviceFieldUpdater
    shapes: ShapeUpdater
    commands: CommandCloser
    alarms: AlarmTrigger
    quota: MessageQuota
    dead_messages: DeadMessageBuilder
    frames: FrameDecoder
    retention_ms: int
    _failures: OrderedDict[str, int] = field(default_factory=OrderedDict, init=False)

    def __post_init__(self) -> None:
        self.slow = SlowCodecQueue(self.bus, self._handle_slow)

    async def handle(self, messages: list[Msg], *, slow: bool = False) -> None:
        """Store, announce and acknowledge one batch, except messages for slow codecs.

        With `slow`, all messages are of one tenant with slow codecs, and the batch waits for them.

        One message must not block the others. If a batch fails while store and bus work, it is
        halved until the failing message is alone; that message goes to `DEAD` after `MAX_FAILURES`
        failures. If the store or the bus is unavailable, the whole batch is delivered again.
        """
        try:
            await self._process(messages, slow=slow)
        except Exception as error:
            if not await self._is_healthy():
                raise
            if len(messages) == 1:
                await self._move_to_dead_or_raise(messages[0], error)
                return
            middle = len(messages) // 2
            try:
                await self.handle(messages[:middle], slow=slow)
            finally:
                await self.handle(messages[middle:], slow=slow)

    async def _handle_slow(self, messages: list[Msg]) -> bool:
        """Process messages that waited for codecs; return whether it succeeded."""
        try:
            await self.handle(messages, slow=True)
        except Exception:
            log.exception("a batch of %d messages failed after waiting for codecs", len(messages))
            return False
        return True

    async def _is_healthy(self) -> bool:
        """Return whether store and bus answer."""
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_SECONDS):
                await self.store.check_writable()
                for stream in (EVENTS, DEAD):
                    await self.bus.js.stream_info(stream)
        except (StoreError, NatsError, APIError, OSError, TimeoutError):
            return False
        return True

    async def _move_to_dead_or_raise(self, message: Msg, error: Exception) -> None:
        """Move a message that failed `MAX_FAILURES` times alone to `DEAD`, else raise `error`."""
        uplink = read_uplink(message)
        failures = self._failures.pop(uplink.key, 0) + 1
        if failures < MAX_FAILURES:
            self._failures[uplink.key] = failures
            if len(self._failures) > FAILURE_CACHE_SIZE:
                self._failures.popitem(last=False)
            raise error
        log.error("message %d of %s is moved to DEAD", uplink.sequence, uplink.sn, exc_info=error)
        thing = (await self.things.find_by_sn([uplink.sn])).get(uplink.sn)
        text = MASK if thing is not None and thing.tsl.conceals else str(error)
        reason = f"could not be processed: {type(error).__name__}: {text}"
        rejected = RejectedUplink(uplink, reason, thing, is_announced=False)
        await self._store_and_announce([uplink], Batch(rejected=[rejected]), [message])

    async def _process(self, messages: list[Msg], *, slow: bool) -> None:
        started = time.perf_counter()
        spans = UplinkSpans(
            read_uplink(message) for message in messages if not is_second_copy(message)
        )
        if not spans.uplinks:
            await acknowledge(self.bus.client, messages)
            return
        with spans.batch_span():
            batch, uplinks = await self._build_batch(spans.uplinks, slow=slow)
            if len(uplinks) < len(spans.uplinks):
                replies = {uplink.message.reply for uplink in uplinks}
                messages = [
                    message
                    for message in messages
                    if message.reply in replies or is_second_copy(message)
                ]
            await self._close_commands(batch)
            await self._store_and_announce(uplinks, batch, messages)
            spans.mark_rejected([rejected.uplink for rejected in batch.rejected])
        _duration_histogram.record(time.perf_counter() - started)
        _size_histogram.record(len(messages))

    async def _build_batch(
        self, uplinks: list[Uplink], *, slow: bool
    ) -> tuple[Batch, list[Uplink]]:
        """Return the batch of all uplinks except those for slow codecs, and its uplinks."""
        things = await self.things.find_by_sn({uplink.sn for uplink in uplinks})
        excesses: Mapping[int, RateExcess] = {}
        if not slow:
            excesses = self.quota.find_excess_and_block(uplinks, things)
            uplinks = await self.slow.queue_slow(uplinks, things, excesses)
        batch = build_batch(uplinks, things, self.retention_ms, excesses)
        if batch.undecoded:
            with trace_step("read frames", SpanKind.INTERNAL):
                late = await self.frames.decode(batch, wait=slow)
            if late:
                uplinks = await self.slow.queue_slow(uplinks, things, excesses, late)
                batch.keep_only(uplinks)
        await self._reject_properties_beyond_limit(batch)
        return batch, uplinks

    async def _reject_properties_beyond_limit(self, batch: Batch) -> None:
        """Reject properties that would make the latest values of a thing too large."""
        reports = [
            (report.thing.id, report.effective_time, report.properties)
            for report in (*batch.reports, *past_reports(batch.frames))
            if self.latest.may_exceed_limit(report.thing.id, len(report.uplink.payload))
            or report.uplink.channel == "frame"
        ]
        if reports and (names := await self.latest.find_properties_beyond_limit(reports)):
            batch.reject_properties(names, TOO_LARGE_REASON)

    async def _store_and_announce(
        self, uplinks: list[Uplink], batch: Batch, messages: list[Msg]
    ) -> None:
        with trace_step("store batch", SpanKind.CLIENT):
            await asyncio.gather(self._store(batch), self.alarms.refresh_rules())
        with trace_step("announce batch", SpanKind.PRODUCER):
            await self._publish_events(batch)
        if batch.frames:
            await self.commands.confirm_by_reports(batch.reports)
        await acknowledge(self.bus.client, messages)
        await notify_waiting_senders(self.bus, uplinks, batch)

    async def _store(self, batch: Batch) -> None:
        if batch.frames:  # the store finds those that are stored already
            await self.store.store(batch)
            await self._update_values_and_fields(batch)
        else:
            await asyncio.gather(self.store.store(batch), self._update_values_and_fields(batch))

    async def _update_values_and_fields(self, batch: Batch) -> None:
        """Update shapes and latest values, then the fields that are read from these.

        Devices of `generic` have latest values only of properties with an entity; history has all.
        """
        reports = [*batch.reports, *past_reports(batch.frames)]
        shapes = await self.shapes.update((report.thing, report.properties) for report in reports)
        current = [report for report in reports if report.ts >= report.thing.owned_since]
        arrivals: dict[int, int] = {}
        for report in current:
            arrivals[report.thing.id] = max(
                report.uplink.received, arrivals.get(report.thing.id, 0)
            )
        latest = (
            (report.thing.id, report.effective_time, _select_entity_properties(report, shapes))
            for report in current
        )
        of_devices = [report for report in current if report.thing.device]
        await asyncio.gather(
            self.latest.apply(latest, arrivals), self.device_fields.update_report_times(of_devices)
        )
        await self.device_fields.update(of_devices)

    async def _close_commands(self, batch: Batch) -> None:
        """Process the replies: those of one thing in order, those of different things concurrently.
        The order decides which value is the latest if replies arrive in the same ms.
        """
        number = min(1 + len(batch.replies) // REPLIES, REPLY_TRANSACTIONS)
        groups: dict[int, list[tuple[Uplink, Thing]]] = defaultdict(list)
        for uplink, thing in batch.replies:
            groups[thing.id % number].append((uplink, thing))
        await asyncio.gather(
            *(self.commands.close_by_replies(each, batch) for each in groups.values())
        )

    async def _publish_events(self, batch: Batch) -> None:
        pointers = await self.alarms.messages_for_batch(batch)
        await publish_each(self.bus, [*build_events(batch), *batch.closing_events, *pointers])
        await publish_each(self.bus, self.dead_messages.build(batch))


def _select_entity_properties(report: ValidReport, shapes: Mapping[int, Shape]) -> dict[str, Any]:
    if report.thing.model != GENERIC_MODEL:
        return report.properties
    return filter_by_shape(shapes.get(report.thing.id, {}), report.properties)
