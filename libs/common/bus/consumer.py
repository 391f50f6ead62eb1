"""Batches from a durable pull consumer, under a supervisor.

nats-py's `fetch` costs 29 µs a message and may stay silent after a server restart. This
asks for messages itself (`MSG.NEXT` with an inbox of its own, 6 µs a message) and starts
subscription and consumer anew whenever a request ends in an error or stays unanswered.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError
from opentelemetry import metrics

from libs.common.bus.connection import Bus
from libs.common.bus.streams import STREAMS, ensure_streams
from libs.common.bus.wire import write_frames
from libs.common.jobs import running as beside

log = logging.getLogger(__name__)

MOST_BYTES = 8 * 1024**2
"""Bytes of a batch, so of what is held in memory, and of the transaction that stores it."""
IDLE = 1.0
"""Seconds for which the server keeps a request that finds no message."""
GRACE = 2.0
"""Seconds more until an unanswered request counts as lost."""
BACKOFF = 0.5
"""Seconds between attempts while the bus does not answer."""
FLEETING = 300.0
"""Seconds for which a fleeting consumer outlives its process."""
WATCHED = 10.0
"""Seconds between two looks at what waits."""
ENDS = {"404", "408"}
"""Statuses that end a request in good order: no messages, request expired."""


_waiting = metrics.get_meter("thingway").create_gauge(
    "thingway_consumer_waiting", description="Messages that a consumer has yet to deal with"
)


class RequestLostError(Exception):
    """The server did not end a request, or ended it with an error."""


class _Inbox:
    """Where requests are answered, one at a time.

    One subscription serves them all: each new one costs the server its cache of subjects.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._address = client.new_inbox()
        self._asked = 0
        self._wanted = 0
        self._messages: list[Msg] = []
        self._status = ""
        self._done = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        self._subscription = await self._client.subscribe(
            f"{self._address}.*", cb=self._take, pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        if not self._client.is_closed:
            await self._subscription.unsubscribe()

    async def ask(self, subject: str, request: dict[str, int | bool]) -> list[Msg]:
        """Messages that a request brings, and those that came late for an earlier one."""
        self._asked += 1
        self._wanted, self._status = int(request["batch"]), ""
        self._done.clear()
        await self._client.publish(subject, msgspec.json.encode(request), reply=self._reply)
        for seconds in (IDLE + GRACE, BACKOFF):  # a process that was stopped has yet to read
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._done.wait()
        if not self._messages and not self._done.is_set():
            raise RequestLostError("a request for messages was not answered")
        if not self._messages and self._status not in ENDS:
            raise RequestLostError(f"a request for messages ended with {self._status or 'nothing'}")
        messages, self._messages = self._messages, []
        return messages

    @property
    def _reply(self) -> str:
        return f"{self._address}.{self._asked}"

    async def _take(self, message: Msg) -> None:
        if message.reply:
            self._messages.append(message)
            if len(self._messages) >= self._wanted:
                self._done.set()
        elif message.subject == self._reply:
            self._status = (message.headers or {}).get("Status", "")
            self._done.set()


def _heed_cancellation() -> None:
    """Raise a cancellation again that nats-py's requests have swallowed."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


@dataclass(frozen=True, kw_only=True)
class BatchConsumer:
    """Feeds `handle` with batches of a stream, `concurrency` of them at a time.

    A batch has at most `batch` messages and `MOST_BYTES` bytes.

    `handle` acknowledges what it has dealt with. When it raises, the batch is handed back
    and comes again.
    """

    bus: Bus
    stream: str
    durable: str
    handle: Callable[[list[Msg]], Awaitable[None]]
    batch: int = 1000
    concurrency: int = 2
    overlap_from: int = 0
    """The next batch waits for those in hand when the last one had fewer messages.

    Small batches that overlap cost as many writes each as large ones, and leave less for all.
    """
    ack_wait: float = 30.0
    subject: str = ""
    """Only messages of subjects that match; empty means all of the stream."""
    subjects: tuple[str, ...] = ()
    """The same for several."""
    from_now: bool = False
    """Pass over what the stream had before there was this consumer."""
    fleeting: bool = False
    """Begin with what comes from now on, and be forgotten soon after nobody asks any more.

    `durable` names one process then. Nothing is handed out twice while it lives, and a
    restart of the server loses nothing.
    """

    async def run(self) -> None:
        """Consume until cancelled; batches in hand are finished first."""
        async with beside(self._watch()):
            await self._run()

    async def _run(self) -> None:
        slots = asyncio.Semaphore(self.concurrency)
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                try:
                    await self._consume(slots, running)
                except (NatsError, APIError, OSError, TimeoutError, RequestLostError) as error:
                    log.warning("consumer %s starts again: %r", self.durable, error)
                _heed_cancellation()
                await asyncio.sleep(BACKOFF)
        finally:
            if running:
                await asyncio.wait(running, timeout=self.ack_wait)

    async def _watch(self) -> None:
        """Look at what waits, for ever; one of many processes is `live`, not `live-3f…`."""
        name = self.durable.rpartition("-")[0] if self.fleeting else self.durable
        told = {"stream": self.stream, "consumer": name}
        while True:
            await asyncio.sleep(WATCHED)
            try:
                info = await self.bus.js.consumer_info(self.stream, self.durable)
            except (NatsError, APIError, TimeoutError) as error:
                log.info("consumer %s cannot be looked at: %r", self.durable, error)
            else:
                _waiting.set((info.num_pending or 0) + (info.num_ack_pending or 0), told)

    async def _consume(self, slots: asyncio.Semaphore, running: set["asyncio.Task[None]"]) -> None:
        await self._ensure()
        idle = False
        messages: list[Msg] = []
        async with _Inbox(self.bus.client) as inbox:
            while True:
                _heed_cancellation()
                if running and len(messages) < self.overlap_from:
                    await asyncio.wait(running)
                await slots.acquire()
                messages = []
                try:
                    messages = await self._next(inbox, idle=idle)
                finally:
                    if not messages:
                        slots.release()
                idle = not messages
                if messages:
                    task = asyncio.ensure_future(self._handle(messages, slots))
                    running.add(task)
                    task.add_done_callback(running.discard)

    async def _next(self, inbox: _Inbox, *, idle: bool) -> list[Msg]:
        """What is there now, or the first that comes within `IDLE` seconds.

        When the last request was in vain (`idle`), nothing is there now.
        """
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.durable}"
        most = max(MOST_BYTES, 2 * self.bus.client.max_payload)  # any single message fits
        request = {"batch": self.batch, "no_wait": True, "max_bytes": most}
        messages = [] if idle else await inbox.ask(subject, request)
        first = {"batch": 1, "expires": int(IDLE * 1e9)}
        return messages or await inbox.ask(subject, first)

    async def _handle(self, messages: list[Msg], slots: asyncio.Semaphore) -> None:
        try:
            await self.handle(messages)
        except Exception:
            log.exception("consumer %s: a batch of %d failed", self.durable, len(messages))
            await asyncio.sleep(BACKOFF)
            await self._hand_back(messages)
        finally:
            slots.release()

    async def _hand_back(self, messages: list[Msg]) -> None:
        try:
            await write_frames(
                self.bus.client,
                (b"PUB %s 4\r\n-NAK\r\n" % message.reply.encode() for message in messages),
            )
        except (NatsError, OSError) as error:
            log.warning("consumer %s could not hand back: %r", self.durable, error)

    async def _ensure(self) -> None:
        new = self.fleeting or self.from_now
        config = ConsumerConfig(
            name=self.durable,
            durable_name=self.durable,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self.ack_wait,
            max_ack_pending=200_000,
            filter_subject=self.subject or None,
            filter_subjects=list(self.subjects) or None,
            deliver_policy=DeliverPolicy.NEW if new else DeliverPolicy.ALL,
            inactive_threshold=FLEETING if self.fleeting else None,
        )
        try:
            await self.bus.js.add_consumer(self.stream, config)
        except NotFoundError:
            await ensure_streams(self.bus.js, self.bus.replicas, {*STREAMS, self.stream})
            await self.bus.js.add_consumer(self.stream, config)
        if (task := asyncio.current_task()) is not None and task.cancelling():
            # `wait_for`, on which nats-py waits, swallows a cancellation that comes with the
            # answer (Python 3.11, https://github.com/python/cpython/issues/86296).
            raise asyncio.CancelledError
