"""Reconnecting NATS connections, and pipelined publishing on them.

JetStream atomic batches (nats-server 2.12 and later, ADR-50) need one acknowledgement for all
messages. A batch is stored completely or not at all. If the stream already has a message id of the
batch, it rejects the batch (10201); its messages are then published one by one, and JetStream drops
only the duplicates.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from msgspec.structs import replace
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import APIError

from libs.common.bus.accounts import inbox_prefix
from libs.common.bus.client import (
    CONNECT_RETRY_SECONDS,
    DroppingClient,
    PersistentClient,
    build_error_callback,
)
from libs.common.bus.publishing import (
    MAX_PENDING_BYTES,
    MAX_UNACKNOWLEDGED,
    PUBLISH_TIMEOUT_SECONDS,
    DuplicateInBatch,
    OutgoingMessage,
    Publisher,
    check_ack,
    check_size,
    message_size,
    publish_frame,
    split_messages,
    write_frames,
)
from libs.common.bus.streams import EventPartitions, create_missing_streams, read_event_partitions
from libs.common.bus.subjects import EVENT_PREFIX, partition_prefix, partitioned_event_subject
from libs.common.errors import Unavailable
from libs.common.jobs import end_process, run_with_timeout
from libs.common.tls import client_context_for

log = logging.getLogger(__name__)

_TLS_WARNING = "returning true from eof_received() has no effect when using ssl"
"""Harmless warning of asyncio at the end of every TLS connection of nats-py."""
logging.getLogger("asyncio").addFilter(lambda record: record.msg != _TLS_WARNING)
START_SECONDS = 150.0
"""Seconds that a starting process waits for its stores. On a new cluster, images are pulled and
volumes are created meanwhile. Longer than the chart's startup probe (180 s) would be useless."""
PING_SECONDS = 3
"""Seconds between two pings. At the third ping without an answer to the previous two, the client
connects to another server."""


class Bus:
    """One NATS connection of a process."""

    def __init__(self, client: Client, js: JetStreamContext, replicas: int = 1) -> None:
        self.client = client
        self.js = js
        self.replicas = replicas
        """Number of servers that store each stream that is created here."""
        self._publisher = Publisher(client)
        self._leaving = False
        self._partitions: EventPartitions | None = None
        self._read_at = 0.0

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        user: str = "",
        password: str = "",
        name: str,
        ca_file: str = "",
        wait: float = START_SECONDS,
        stream_replicas: int = 0,
        drops: Callable[[bytes], bool] | None = None,
    ) -> "Bus":
        """Connect to one of several servers, separated by commas.

        Waits up to `wait` seconds for the first connection, then raises the error of the last
        attempt. A lost connection is restored for ever. If the connection is permanently closed,
        for example after a protocol error, the process ends, so that its supervisor restarts it.
        Messages whose subject satisfies `drops` are dropped while reading. A `tls://` server is
        verified with the authorities in `ca_file`. With `stream_replicas`, missing streams are
        created, each on that many servers. Replies arrive in an inbox that only this user may read.
        """
        options: dict[str, Any] = {"reconnect_time_wait": CONNECT_RETRY_SECONDS}
        if user:
            inboxes = inbox_prefix(user).encode()
            options |= {"user": user, "password": password, "inbox_prefix": inboxes}
        client = PersistentClient() if drops is None else DroppingClient(drops)
        deadline = asyncio.get_running_loop().time() + wait
        while True:
            try:
                if not client.is_connected:
                    connecting = client.connect(
                        servers=url.split(","),
                        name=name,
                        tls=client_context_for(url, ca_file),
                        max_reconnect_attempts=-1,
                        connect_timeout=3,
                        ping_interval=PING_SECONDS,
                        max_outstanding_pings=2,
                        pending_size=MAX_PENDING_BYTES,
                        allow_reconnect=True,
                        error_cb=build_error_callback(name),
                        closed_cb=client.report_closed,
                        **options,
                    )
                    await run_with_timeout(deadline - asyncio.get_running_loop().time(), connecting)
                bus = cls(
                    client, client.jetstream(timeout=PUBLISH_TIMEOUT_SECONDS), stream_replicas or 1
                )
                if stream_replicas:
                    await create_missing_streams(bus.js, stream_replicas)
                client.on_closed = bus._closed
            except (OSError, NatsError, TimeoutError, APIError) as error:
                if asyncio.get_running_loop().time() > deadline:
                    if isinstance(error, TimeoutError) and client.last_error:
                        reason = f"cannot connect to NATS: {client.last_error!r}"
                        raise TimeoutError(reason) from error
                    raise
                log.info("waiting for NATS: %s", error or type(error).__name__)
                await asyncio.sleep(CONNECT_RETRY_SECONDS)
            else:
                return bus

    def _closed(self) -> None:
        if not self._leaving:
            end_process("the connection to NATS is closed for good", self.client.last_error)

    @property
    def is_connected(self) -> bool:
        """Return whether the connection is established."""
        return self.client.is_connected

    async def check(self) -> None:
        """Raise `Unavailable` while the connection is down (a readiness check)."""
        if not self.is_connected:
            raise Unavailable("NATS is not connected")

    def check_message_size(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        """Raise `TooLarge` if the server does not accept a message of this size."""
        check_size(subject, message_size(payload, headers), self.client.max_payload)

    async def publish_core(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> None:
        """Send without a stream and without an acknowledgement.

        Raises `Unavailable`, and `TooLarge` if the message exceeds the limit of the bus.
        """
        self.check_message_size(subject, payload, headers)
        try:
            await self.client.publish(subject, payload, headers=headers or None)
        except NatsError as error:
            raise Unavailable(f"the bus does not accept messages: {error!r}") from error

    async def read_partitions(self, age: float = 0.0) -> EventPartitions:
        """Return the partitions of events; read them again after `age` seconds.

        Raises the errors of nats-py.
        """
        now = asyncio.get_running_loop().time()
        if self._partitions is None or now >= self._read_at + age:
            self._partitions, self._read_at = await read_event_partitions(self.js), now
        return self._partitions

    async def address_partitions(
        self, messages: Sequence[OutgoingMessage]
    ) -> Sequence[OutgoingMessage]:
        """Return messages with the subjects of the partitions that store them.

        Raises `Unavailable` if the bus does not answer.
        """
        if self._partitions is None and any(
            message.subject.startswith(EVENT_PREFIX) for message in messages
        ):
            try:
                await self.read_partitions()
            except (NatsError, APIError, TimeoutError) as error:
                raise Unavailable(f"the bus does not report its streams: {error!r}") from error
        number = 1 if self._partitions is None else self._partitions.used
        if number == 1:
            return messages
        return [
            replace(message, subject=partitioned_event_subject(message.subject, number))
            if message.subject.startswith(EVENT_PREFIX)
            else message
            for message in messages
        ]

    def forget_partitions(self) -> None:
        """Read the partitions again before the next publish: they may have changed."""
        self._partitions = None

    async def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """Publish to JetStream, pipelined; return when every message is acknowledged.

        Raises `Unavailable` when the stream is full, missing or does not answer, and
        `TooManyRequests` when it holds too many messages of a subject. Then the stream may have
        stored a part of the messages, and the caller publishes all messages again.
        Raises `TooLarge` for a message above the limit of the bus.
        """
        for chunk in split_messages(await self.address_partitions(messages), MAX_UNACKNOWLEDGED):
            try:
                await self._publisher.publish(chunk)
            except (NatsError, TimeoutError) as error:
                self.forget_partitions()
                raise Unavailable(f"the bus does not accept messages: {error!r}") from error
            except Unavailable:
                self.forget_partitions()
                raise

    async def close(self) -> None:
        """Close immediately."""
        self._leaving = True
        await self.client.close()

    async def drain(self) -> None:
        """Send and process pending messages, then close."""
        self._leaving = True
        if not self.client.is_closed:
            try:
                await self.client.drain()
            except (NatsError, TimeoutError) as error:
                log.warning("NATS connection did not drain: %r", error)
                await self.client.close()


MAX_BATCH_MESSAGES = 1000
"""Maximum number of messages in a batch (the server's limit)."""
MIN_BATCH_MESSAGES = 2
"""Minimum number of messages that need a batch to be stored atomically."""
EFFICIENT_BATCH_MESSAGES = 500
"""Number of messages from which a batch is as cheap as single messages in one write: 500 take 5.5
ms of server and client either way; 64 take 2.0 ms as a batch and 0.9 ms singly (2.15.1)."""


async def publish_all(bus: Bus, messages: Sequence[OutgoingMessage]) -> None:
    """Publish messages of one stream, or its partitions, in atomic batches; wait for all acks.

    Raises `Unavailable` when the stream does not accept them, and `TooManyRequests` when it holds
    too many messages of a subject; then a part may be stored. Raises `TooLarge`, and publishes
    nothing, when a message exceeds the limit of the bus.
    """
    if len(messages) < MIN_BATCH_MESSAGES:
        await bus.publish(messages)
        return
    maximum = bus.client.max_payload
    streams: dict[str, list[OutgoingMessage]] = {}
    for message in await bus.address_partitions(messages):
        streams.setdefault(partition_prefix(message.subject), []).append(message)
    batches = [
        _Batch(chunk, maximum)
        for stream_messages in streams.values()
        for chunk in split_messages(stream_messages, MAX_BATCH_MESSAGES)
    ]
    await asyncio.gather(*(batch.publish(bus) for batch in batches))


async def publish_each(bus: Bus, messages: Sequence[OutgoingMessage]) -> None:
    """Publish messages of one stream, not necessarily atomically.

    Raises the same errors as `publish_all`.
    """
    await (
        bus.publish(messages)
        if len(messages) < EFFICIENT_BATCH_MESSAGES
        else publish_all(bus, messages)
    )


class _Batch:
    """Messages of one atomic batch."""

    def __init__(self, messages: Sequence[OutgoingMessage], maximum: int) -> None:
        """Raise `TooLarge` for a message with more than `maximum` bytes."""
        self._messages = messages
        self._id = {"Nats-Batch-Id": uuid4().hex}
        self._frames = [
            publish_frame(
                message.subject, message.payload, self._headers(number, message), maximum=maximum
            )
            for number, message in enumerate(messages, 1)
        ]

    def _headers(self, number: int, message: OutgoingMessage) -> dict[str, str]:
        end = {"Nats-Batch-Commit": "1"} if number == len(self._messages) else {}
        return {**message.all_headers(), **self._id, "Nats-Batch-Sequence": str(number), **end}

    async def publish(self, bus: Bus) -> None:
        """Publish the batch, or single messages if the stream already has one of the messages."""
        if len(self._messages) < MIN_BATCH_MESSAGES or not await self._commit(bus):
            await bus.publish(self._messages)

    async def _commit(self, bus: Bus) -> bool:
        """Publish all messages; return False when the batch holds a duplicate."""
        last = self._messages[-1]
        headers = self._headers(len(self._messages), last)
        try:
            await write_frames(bus.client, self._frames[:-1])
            answer = await bus.client.request(
                last.subject, last.payload, PUBLISH_TIMEOUT_SECONDS, headers=headers
            )
        except (NatsError, TimeoutError) as error:
            bus.forget_partitions()
            raise Unavailable(f"the bus does not accept messages: {error!r}") from error
        try:
            check_ack(answer.data)
        except DuplicateInBatch:
            return False
        except Unavailable:
            bus.forget_partitions()
            raise
        return True
