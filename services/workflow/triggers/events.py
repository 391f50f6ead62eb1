"""Starts runs for events: one run of each flow that listens to its values.

While the tenant has no room for runs, its events are delayed: the bus redelivers them later. The
bus limits pending events of the whole consumer. Tenants therefore share `MAX_DELAYED_EVENTS`: a
single tenant delays at most half of them, two tenants a third each, and so on.
"""

import asyncio
import heapq
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from nats.aio.client import Client
from nats.aio.msg import Msg

from libs.common.bus import BatchConsumer, Bus, event_tenant
from libs.common.bus.hops import read_hops
from libs.common.bus.publishing import acknowledge, extend_ack_timeouts, redeliver_later
from libs.common.changes import (
    ALARM_SUBJECTS,
    REPORT_SUBJECTS,
    parse_arrival_time,
    read_alarm_change,
    read_reported_change,
)
from libs.common.clock import now_ms
from libs.common.decoding import JSON_ERRORS
from libs.common.store.mongo import StoreError
from libs.common.telemetry.tracing import read_trace, trace_batch
from services.workflow.engine.runner import RUNS_PER_WRITE, Engine, FlowStart, record_and_execute
from services.workflow.runs.model import Run
from services.workflow.triggers.deployed_flows import DeployedFlowIndex
from services.workflow.triggers.listener_index import build_event_starts

MAX_DELAYED_EVENTS = 50_000
"""Maximum delayed events of a process. The bus allows 200,000 pending events in total."""
MIN_DELAY_SECONDS, MAX_DELAY_SECONDS = 1.0, 5.0
"""Minimum and maximum delay in seconds. Between them, an event is delayed by its age."""
MAX_EVENT_AGE_SECONDS = 300.0
"""Age in seconds after which an event is dropped. Runs are stored for at least ten minutes
(`runs.log`), so a redelivered event does not repeat its existing runs."""
log = logging.getLogger(__name__)

EVENTS_PER_BATCH = 200
"""Maximum events per batch; a batch has events of one tenant."""
MAX_CONCURRENT_TENANTS = 16
"""Maximum tenants whose events are handled concurrently."""
REDELIVERY_SECONDS = 20.0
"""Seconds after which the bus redelivers an unacknowledged event."""
MAX_CLOCK_SKEW_MS = 5_000
"""Maximum difference between the clocks of two servers, in ms."""
MAX_NEW_EVENT_AGE_MS = 60_000
"""Maximum ms from a report to its event; JetStream drops copies of an event for 120 s."""
HOLD_EVENT_SECONDS = 2.0
"""Seconds for which an event stays unacknowledged while its quick runs execute. Then the starts of
the remaining runs are recorded and the event is acknowledged."""
SHORT_REPLY_TOKENS = 9
"""Number of tokens in the short form of a reply subject; the long form begins with two more."""
EventStarts = tuple[Msg, list[FlowStart]]
"""A message, and the runs that it starts."""


class NewEventDetector:
    """Recognizes events that were certainly never handled before."""

    def __init__(self, client: Client, now: Callable[[], int] = now_ms) -> None:
        """Use `now` as a clock in ms."""
        self._client = client
        self._now = now
        self._reconnects = client.stats["reconnects"]
        self._since = now() + MAX_CLOCK_SKEW_MS

    def is_new(self, reply: str, event_id: str) -> bool:
        """Return whether an event was never handled, from its message's reply subject.

        The bus must deliver the message for the first time. It must have stored it after this
        process connected, because a killed server forgets its latest deliveries. As the bus drops
        copies of a message only for two minutes, the report must have arrived shortly before the
        bus stored the message.
        nats-py's `metadata` costs 20 times as much.
        """
        if (reconnects := self._client.stats["reconnects"]) != self._reconnects:
            self._reconnects, self._since = reconnects, self._now() + MAX_CLOCK_SKEW_MS
        tokens = reply.split(".")
        first = 4 if len(tokens) == SHORT_REPLY_TOKENS else 6
        stored = int(tokens[first + 3]) // 1_000_000
        is_recent = (
            stored - MAX_NEW_EVENT_AGE_MS
            < parse_arrival_time(event_id)
            <= stored + MAX_CLOCK_SKEW_MS
        )
        return tokens[first] == "1" and stored > self._since and is_recent


class DelayedEvents:
    """Counts events that the bus will redeliver later, and decides on their delay."""

    def __init__(self, now: Callable[[], float], maximum: int = MAX_DELAYED_EVENTS) -> None:
        """Use `now` as a clock in seconds."""
        self._now = now
        self._free = maximum
        self._counts: Counter[str] = Counter()
        self._due: list[tuple[float, str]] = []

    def count_and_delay(self, tenant: str, age: float) -> float | None:
        """Count an event as delayed and return its delay in seconds; None to drop it.

        `age` is the age of the event in seconds.
        """
        now = self._now()
        while self._due and self._due[0][0] <= now:
            self._count(heapq.heappop(self._due)[1], -1)
        if age >= MAX_EVENT_AGE_SECONDS or self._counts[tenant] >= self._free:
            return None
        seconds = min(max(age, MIN_DELAY_SECONDS), MAX_DELAY_SECONDS)
        self._count(tenant, 1)
        heapq.heappush(self._due, (now + seconds, tenant))
        return seconds

    def _count(self, tenant: str, more: int) -> None:
        self._free -= more
        self._counts[tenant] += more
        if not self._counts[tenant]:
            del self._counts[tenant]


class EventConsumer:
    """Starts runs for events."""

    def __init__(self, bus: Bus, followed: DeployedFlowIndex, engine: Engine) -> None:
        self._bus = bus
        self._followed = followed
        self._engine = engine
        self._delayed = DelayedEvents(time.monotonic)
        self._new_events = NewEventDetector(bus.client)

    async def handle(self, messages: list[Msg]) -> None:
        """Record the runs of a tenant's events; then acknowledge or delay each event."""
        await self._followed.ready.wait()
        if not self._followed.index.has_listeners(event_tenant(messages[0])):
            await acknowledge(self._bus.client, messages)
            return
        with trace_batch("workflow batch", [read_trace(message.headers) for message in messages]):
            events: list[EventStarts] = []
            number = 0
            for message in messages:
                events.append((message, self._build_starts(message)))
                number += len(events[-1][1])
                if (
                    number >= RUNS_PER_WRITE
                ):  # an event with many listeners must not block the process
                    await self._start_runs(events)
                    events, number = [], 0
            await self._start_runs(events)

    async def _start_runs(self, events: Sequence[EventStarts]) -> None:
        """Record and execute the runs of events; acknowledge or delay the events.

        An event without room for all its runs costs no write.
        """
        wanted: list[FlowStart] = []
        without_room: list[FlowStart] = []
        for _, starts in events:
            fits = not starts or self._engine.has_room_for(
                starts[0].flow.tenant, len(wanted) + len(starts)
            )
            (wanted if fits else without_room).extend(starts)
        executed = await record_and_execute(self._engine, wanted)
        without_room += executed.without_room
        delays = self._delay_or_reject(events, without_room) if without_room else {}
        running = {run.cause.key for run in executed.deferred.values()}
        now, later = list[Msg](), list[Msg]()
        for message, starts in events:
            (later if starts and starts[0].cause.key in running else now).append(message)
        await self._acknowledge_or_delay(now, delays)
        if later:
            self._engine.run_in_background(
                self._acknowledge_later(later, delays, executed.deferred)
            )

    async def _acknowledge_later(
        self,
        messages: Sequence[Msg],
        delays: Mapping[str, float],
        runs: "dict[asyncio.Task[None], Run]",
    ) -> None:
        """Acknowledge or delay messages when their deferred runs ended or were recorded."""
        try:
            await asyncio.wait(runs, timeout=HOLD_EVENT_SECONDS)
            while running := [run for task, run in runs.items() if not task.done()]:
                await extend_ack_timeouts(self._bus.client, messages)
                try:
                    await self._engine.log.record_starts(
                        [run for run in running if not run.recorded]
                    )
                except StoreError as error:
                    log.warning("the start of %d runs was not recorded: %s", len(running), error)
                    await asyncio.sleep(HOLD_EVENT_SECONDS)
                else:
                    break
            for task in runs:
                if task.done():
                    task.result()
        except BaseException:
            await redeliver_later(self._bus.client, {message.reply: 0 for message in messages})
            raise
        await self._acknowledge_or_delay(messages, delays)

    async def _acknowledge_or_delay(
        self, messages: Iterable[Msg], delays: Mapping[str, float]
    ) -> None:
        """Acknowledge messages, except those in `delays`: the bus redelivers them later.

        `delays` are the seconds until then, by reply subject.
        """
        done = [message for message in messages if message.reply not in delays]
        if done:
            await acknowledge(self._bus.client, done)
        late = {
            message.reply: delays[message.reply] for message in messages if message.reply in delays
        }
        if late:
            await redeliver_later(self._bus.client, late)

    def _build_starts(self, message: Msg) -> list[FlowStart]:
        try:
            about_alarm = message.subject.split(".")[2] == "alarm"
            change = (read_alarm_change if about_alarm else read_reported_change)(message.data)
        except JSON_ERRORS as error:
            log.warning("a message on %s cannot be decoded: %s", message.subject, error)
            return []
        hops, trace = read_hops(message.headers), read_trace(message.headers)
        is_new = self._new_events.is_new(message.reply, change.event_id)
        return list(build_event_starts(self._followed.index, change, hops, trace, is_held=is_new))

    def _delay_or_reject(
        self, events: Sequence[EventStarts], without_room: list[FlowStart]
    ) -> dict[str, float]:
        """Count the events to delay, and count the other starts as rejected.

        Returns the delays in seconds, by reply subject of the messages to delay.
        """
        ids = set(map(id, without_room))
        delays: dict[str, float] = {}
        for message, starts in events:
            lost = [start for start in starts if id(start) in ids]
            if not lost:
                continue
            age = datetime.now(UTC) - message.metadata.timestamp
            seconds = self._delayed.count_and_delay(lost[0].flow.tenant, age.total_seconds())
            if seconds is not None:
                delays[message.reply] = seconds
                continue
            for start in lost:
                self._engine.count_rejected(start)
        return delays


def create_event_consumer(bus: Bus, followed: DeployedFlowIndex, engine: Engine) -> BatchConsumer:
    """Return the consumer of events.

    An event is acknowledged after its runs are recorded.
    """
    return BatchConsumer(
        bus=bus,
        stream="EVENTS",
        durable="workflow",
        handle=EventConsumer(bus, followed, engine).handle,
        lane=event_tenant,
        batch=EVENTS_PER_BATCH,
        concurrency=MAX_CONCURRENT_TENANTS,
        ack_wait=REDELIVERY_SECONDS,
        subjects=(*REPORT_SUBJECTS, ALARM_SUBJECTS),
        from_now=True,
    )
