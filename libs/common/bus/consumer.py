"""Batches of messages from a durable pull consumer, under a supervisor.

nats-py's `fetch` costs 29 µs a message and may stop after a server restart. This module requests
messages itself (`MSG.NEXT` with its own inbox, 6 µs a message). It recreates subscription and
consumer whenever a request fails or is not answered.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError
from opentelemetry import metrics

from libs.common.bus.client import REQUEST_RETRY_SECONDS, MessageInbox, RequestLostError
from libs.common.bus.connection import Bus
from libs.common.bus.laned import LanedMessages
from libs.common.bus.publishing import acknowledge, redeliver_later
from libs.common.bus.streams import (
    COPY_SOURCE_HEADER,
    EVENT_CONSUMERS,
    EVENT_PARTITION_NAMES,
    EVENTS,
    STREAM_CONFIGS,
    create_missing_streams,
)
from libs.common.jobs import cancel_and_wait, run_in_background

log = logging.getLogger(__name__)

MAX_BATCH_BYTES = 8 * 1024**2
"""Maximum bytes of a batch, which limits memory and the size of the transaction that stores it."""
IDLE_SECONDS = 30.0
"""Seconds for which the server keeps a request open if the stream has no message."""
HEARTBEAT_SECONDS = 1.5
"""Seconds between the server's heartbeats during an open request."""
LINGER_SECONDS = 0.005
"""Seconds for which a batch waits for more messages, if `may_linger` permits it."""
EPHEMERAL_SECONDS = 300.0
"""Seconds for which an ephemeral consumer outlives its process."""
BACKLOG_INTERVAL_SECONDS = 10.0
"""Seconds between two measurements of the backlog."""

_waiting_gauge = metrics.get_meter("thingway").create_gauge(
    "thingway_consumer_waiting", description="Messages that a consumer has not processed yet"
)


recreated_gauge = metrics.get_meter("thingway").create_gauge(
    "thingway_stream_recreated_timestamp_seconds",
    description="Time at which a stream that the platform had used was created again",
)


async def measure_backlog(bus: Bus, stream: str, durable: str, name: str = "") -> None:
    """Measure a consumer's backlog, shown as `name`, else `durable`; raise errors of nats-py."""
    info = await bus.js.consumer_info(stream, durable)
    waiting = (info.num_pending or 0) + (info.num_ack_pending or 0)
    _waiting_gauge.set(waiting, {"stream": stream, "consumer": name or durable})


def _raise_swallowed_cancellation() -> None:
    """Raise a cancellation that a request of nats-py has swallowed.

    nats-py waits with `wait_for`, which swallows a cancellation that comes with the answer (Python
    3.11, https://github.com/python/cpython/issues/86296).
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class _OverlappingBatches:
    """Batches that are processed concurrently, up to a limit."""

    def __init__(
        self, handle: Callable[[list[Msg]], Awaitable[None]], concurrency: int, overlap_from: int
    ) -> None:
        self._handle = handle
        self._slots = asyncio.Semaphore(concurrency)
        self._overlap_from = overlap_from
        self._last = 0
        self._running: set[asyncio.Task[None]] = set()

    async def wait_for_room(self) -> None:
        if self._running and self._last < self._overlap_from:
            await asyncio.wait(self._running)
        await self._slots.acquire()

    async def put(self, messages: list[Msg]) -> None:
        self._last = len(messages)
        if not messages:
            self._slots.release()
            return
        task = asyncio.ensure_future(self._handle(messages))
        self._running.add(task)
        task.add_done_callback(self._on_ended)

    async def extend(self) -> None:
        """Do nothing: no message waits here."""

    async def finish(self, seconds: float) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    def _on_ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._slots.release()


def _is_copy(message: Msg) -> bool:
    """Return whether `EVENTS` has copied an event from a partition, which is read too."""
    return message.headers is not None and COPY_SOURCE_HEADER in message.headers


@dataclass(frozen=True, kw_only=True)
class BatchConsumer:
    """Passes batches of a stream to `handle`, up to `concurrency` at a time.

    For `EVENTS`, it reads the partitions of events as well, in each of which it has a consumer of
    the same name. `EVENTS` also has copies of their events for external readers, which it skips.
    A batch has at most `batch` messages and `MAX_BATCH_BYTES` bytes. `handle` acknowledges the
    messages that it has processed. When it raises, the batch is returned and delivered again.
    """

    bus: Bus
    stream: str
    durable: str
    handle: Callable[[list[Msg]], Awaitable[None]]
    lane: Callable[[Msg], str] | None = None
    """Returns the tenant of a message. `handle` then gets batches of a single tenant, at most one
    batch of each tenant at a time, and tenants take turns by the processing time of their batches
    (`LanedMessages`)."""
    batch: int = 1000
    concurrency: int = 2
    overlap_from: int = 0
    """A batch overlaps the previous one only if that one had at least this number of messages.

    Small overlapping batches cost as many writes each as large ones and slow down everything.
    """
    may_linger: Callable[[list[Msg]], bool] | None = None
    """Returns whether a batch may wait `LINGER_SECONDS` for more messages."""
    ack_wait: float = 30.0
    subject: str = ""
    """Filters messages by subject; empty accepts every message of the stream."""
    subjects: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    """Several filters instead of `subject`, or a function that returns them.

    `apply_subjects` applies a changed result of the function.
    """
    from_now: bool = False
    """Skip messages that the stream received before the consumer was created."""
    ephemeral: bool = False
    """Start with new messages, and delete the consumer soon after its process ended.

    `durable` then names a single process. The consumer keeps its position while the process runs,
    also across a restart of nats-server.
    """

    async def run(self) -> None:
        """Consume until cancelled, then wait for the current batches."""
        handler: _OverlappingBatches | LanedMessages
        if self.lane is None:
            handler = _OverlappingBatches(
                self._handle_or_return, self.concurrency, self.overlap_from
            )
        else:
            name, handle = f"consumer {self._name}", self._handle_safely
            handler = LanedMessages(self.bus, name, self.lane, handle, self.batch, self.concurrency)
        try:
            async with run_in_background(self._measure_backlogs(handler)):
                await self._run_streams(handler)
        finally:
            await handler.finish(self.ack_wait)

    async def _run_streams(self, handler: _OverlappingBatches | LanedMessages) -> None:
        """Read all streams, also partitions that are created later."""
        running: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                for stream in await self._streams():
                    if stream not in running:
                        running[stream] = asyncio.ensure_future(self._run(handler, stream))
                ended, _ = await asyncio.wait(running.values(), timeout=BACKLOG_INTERVAL_SECONDS)
                for task in ended:
                    task.result()
        finally:
            await cancel_and_wait(*running.values())

    async def _streams(self) -> list[str]:
        """Return the streams to read: several only for events."""
        if self.stream != EVENTS:
            return [self.stream]
        try:
            return (await self.bus.read_partitions(BACKLOG_INTERVAL_SECONDS)).streams
        except (NatsError, APIError, OSError, TimeoutError) as error:
            log.info("the partitions of events are unknown: %r", error)
            return [EVENTS]

    async def _run(self, handler: _OverlappingBatches | LanedMessages, stream: str) -> None:
        while True:
            try:
                await self._consume(handler, stream)
            except (NatsError, APIError, OSError, TimeoutError, RequestLostError) as error:
                log.warning("consumer %s of %s starts again: %r", self.durable, stream, error)
            _raise_swallowed_cancellation()
            await asyncio.sleep(REQUEST_RETRY_SECONDS)

    @property
    def _name(self) -> str:
        """Return the name for metrics; processes share it (`live`, not `live-3f…`)."""
        return self.durable.rpartition("-")[0] if self.ephemeral else self.durable

    async def _measure_backlogs(self, handler: _OverlappingBatches | LanedMessages) -> None:
        """Measure the backlog and extend acknowledgement timeouts, for ever.

        `device` measures the backlogs of `EVENT_CONSUMERS`.
        """
        while True:
            await asyncio.sleep(min(BACKLOG_INTERVAL_SECONDS, self.ack_wait / 3))
            try:
                await handler.extend()
                if self.stream == EVENTS and self.durable in EVENT_CONSUMERS:
                    continue
                for stream in await self._streams():
                    await measure_backlog(self.bus, stream, self.durable, self._name)
            except (NatsError, APIError, OSError, TimeoutError) as error:
                log.info(
                    "the backlog of consumer %s could not be measured: %r", self.durable, error
                )

    async def _consume(self, handler: _OverlappingBatches | LanedMessages, stream: str) -> None:
        subjects = await self._ensure_consumer(stream)
        messages: list[Msg] = []
        async with MessageInbox(self.bus.client) as inbox:
            while True:
                _raise_swallowed_cancellation()
                await handler.wait_for_room()
                if self._wanted_subjects() != subjects:
                    subjects = await self._ensure_consumer(stream)
                messages = []
                try:
                    messages = await self._request(inbox, stream, self.batch, IDLE_SECONDS)
                    if messages and self.may_linger is not None and self.may_linger(messages):
                        await asyncio.sleep(LINGER_SECONDS)
                        messages += await self._request(inbox, stream, self.batch - len(messages))
                    copies = [message for message in messages if _is_copy(message)]
                    if copies:
                        messages = [message for message in messages if not _is_copy(message)]
                        await acknowledge(self.bus.client, copies)
                finally:
                    await handler.put(messages)

    async def _request(
        self, inbox: MessageInbox, stream: str, number: int, seconds: float = 0.0
    ) -> list[Msg]:
        """Return up to `number` waiting messages, or else the next within `seconds`."""
        maximum = max(MAX_BATCH_BYTES, 2 * self.bus.client.max_payload)  # any single message fits
        request = {"batch": number, "no_wait": True, "max_bytes": maximum}
        if seconds:
            request["expires"] = int(seconds * 1e9)
            request["idle_heartbeat"] = int(HEARTBEAT_SECONDS * 1e9)
        return await inbox.request(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{self.durable}", request)

    async def _handle_safely(self, messages: list[Msg]) -> bool:
        """Handle a batch; return whether that succeeded."""
        try:
            await self.handle(messages)
        except Exception:
            log.exception("consumer %s: a batch of %d failed", self.durable, len(messages))
            return False
        return True

    async def _handle_or_return(self, messages: list[Msg]) -> None:
        """Handle a batch; return it to the stream after a failure."""
        if await self._handle_safely(messages):
            return
        await asyncio.sleep(REQUEST_RETRY_SECONDS)
        try:
            await redeliver_later(self.bus.client, {message.reply: 0 for message in messages})
        except (NatsError, OSError) as error:
            log.warning("consumer %s cannot return messages to the stream: %r", self.durable, error)

    async def apply_subjects(self) -> None:
        """Apply changed subjects now; after a failure, they are applied before the next request.

        Messages of new subjects that were stored since the last request may be delivered, too.
        """
        try:
            for stream in await self._streams():
                await self._ensure_consumer(stream)
        except (NatsError, APIError, OSError, TimeoutError) as error:
            log.warning("consumer %s cannot change its subjects yet: %r", self.durable, error)

    def _wanted_subjects(self) -> tuple[str, ...]:
        return self.subjects() if callable(self.subjects) else self.subjects

    async def _ensure_consumer(self, stream: str) -> tuple[str, ...]:
        """Create or update the consumer of a stream; return its subjects."""
        subjects = self._wanted_subjects()
        new = self.ephemeral or self.from_now
        config = ConsumerConfig(
            name=self.durable,
            durable_name=self.durable,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self.ack_wait,
            max_ack_pending=200_000,
            filter_subject=self.subject or None,
            filter_subjects=list(subjects) or None,
            deliver_policy=DeliverPolicy.NEW if new else DeliverPolicy.ALL,
            inactive_threshold=EPHEMERAL_SECONDS if self.ephemeral else None,
        )
        if stream in EVENT_PARTITION_NAMES:
            config = await self._with_start(stream, config)
        try:
            await self.bus.js.add_consumer(stream, config)
        except NotFoundError:
            await create_missing_streams(self.bus.js, self.bus.replicas, {*STREAM_CONFIGS, stream})
            if created := (await self.bus.js.stream_info(stream)).created:
                recreated_gauge.set(created.timestamp(), {"stream": stream})
            await self.bus.js.add_consumer(stream, config)
        _raise_swallowed_cancellation()
        return subjects

    async def _with_start(self, stream: str, config: ConsumerConfig) -> ConsumerConfig:
        """Return `config` with the start of the consumer in a partition.

        A partition may be found some seconds after its first event, which must not be skipped. A
        durable consumer therefore starts at the time when the consumer of `EVENTS` was created, and
        an ephemeral one shortly before now.
        """
        js = self.bus.js
        try:
            existing_config = (await js.consumer_info(stream, self.durable)).config
        except NotFoundError:
            if config.deliver_policy == DeliverPolicy.ALL:
                return config
            start = datetime.now(UTC) - timedelta(seconds=2 * BACKLOG_INTERVAL_SECONDS)
            if not self.ephemeral:
                start = (await js.consumer_info(EVENTS, self.durable)).created or start
            return config.evolve(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=start)
        return config.evolve(
            deliver_policy=existing_config.deliver_policy,
            opt_start_time=existing_config.opt_start_time,
        )
