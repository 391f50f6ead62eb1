"""Reading and deleting messages that a stream stores.

A consumer reports the number of messages after a sequence without reading them. A binary search
therefore finds the sequence at which the newest messages begin. Most things have so few messages
that the first guess is right.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import count
from secrets import token_hex
from typing import NamedTuple

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from libs.common.bus.connection import Bus
from libs.common.bus.streams import COPY_SOURCE_HEADER
from libs.common.bus.subjects import event_partition_number
from libs.common.errors import Unavailable

READER_PREFIX = "look-"
"""Prefix of the names of temporary consumers, each of which exists for a single read."""
READER_IDLE_SECONDS = 10.0
"""Seconds after which nats-server deletes a consumer that its process did not delete."""
READ_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for the messages of one request."""
MESSAGES_PER_REQUEST = 50
"""Messages per request: at most 64 KiB of payload each."""


class StoredMessage(NamedTuple):
    """A message with its sequence and time in the stream."""

    sequence: int
    at: datetime
    message: Msg


async def read_newest(
    bus: Bus, stream: str, subjects: Sequence[str], maximum: int, before: int | None = None
) -> list[StoredMessage]:
    """Return up to `maximum` messages of `subjects` before a sequence, the newest first.

    Raises `Unavailable` when the bus does not answer.
    """
    try:
        state = (await bus.js.stream_info(stream)).state
        end = state.last_seq + 1 if before is None else min(before, state.last_seq + 1)
        if not state.messages or end <= state.first_seq:
            return []
        reader = _Reader(bus, stream, subjects, end)
        return (await reader.read(await reader.find_start(state.first_seq, maximum)))[-maximum:][
            ::-1
        ]
    except (NatsError, APIError, TimeoutError) as error:
        raise Unavailable(f"{stream} cannot be read: {error!r}") from error


PARTITIONS_CACHE_SECONDS = 10.0
"""Seconds for which the number of partitions is cached."""
SEQUENCE_BITS = 44
"""Number of bits of a sequence in its stream; higher bits contain the number of the stream."""


async def read_newest_events(
    bus: Bus, subjects: Sequence[str], maximum: int, before: int | None = None
) -> list[StoredMessage]:
    """Return up to `maximum` events of a device before a sequence, the newest first.

    With partitions, the sequence also contains the stream. The partition that stores the device's
    events now is read first. Raises `Unavailable` when the bus does not answer.
    """
    try:
        partitions = await bus.read_partitions(PARTITIONS_CACHE_SECONDS)
    except (NatsError, APIError, TimeoutError) as error:
        raise Unavailable(f"the partitions of events are unknown: {error!r}") from error
    streams = partitions.streams
    current = 1 + event_partition_number(subjects[0], partitions.used) if partitions.used > 1 else 0
    order = sorted(range(len(streams)), key=lambda number: (number != current, -number))
    end: int | None = None
    if before is not None:
        order = order[order.index(min(before >> SEQUENCE_BITS, len(streams) - 1)) :]
        end = before % 2**SEQUENCE_BITS
    messages: list[StoredMessage] = []
    for number in order:
        while len(messages) < maximum:
            newest = await read_newest(bus, streams[number], subjects, maximum, end)
            if not newest:
                break
            end = newest[-1].sequence
            messages += [
                stored._replace(sequence=(number << SEQUENCE_BITS) + stored.sequence)
                for stored in newest
                if COPY_SOURCE_HEADER not in (stored.message.headers or {})
            ]
        end = None
    return messages[:maximum]


async def count_messages(bus: Bus, stream: str, subject: str) -> int:
    """Return how many messages of a subject a stream stores, without reading them."""
    return await _Reader(bus, stream, [subject], 0).count_messages(1)


class _Reader:
    """Reads messages before the sequence `end`."""

    def __init__(self, bus: Bus, stream: str, subjects: Sequence[str], end: int) -> None:
        self._js = bus.js
        self._stream = stream
        self._subjects = list(subjects)
        self._end = end

    async def find_start(self, first: int, maximum: int) -> int:
        """Return a sequence from which `maximum` to twice as many messages (or all) follow."""
        after = await self.count_messages(self._end)
        low, high, guess = first, self._end, first
        while high - low > 1:
            number = await self.count_messages(guess) - after
            if number > 2 * maximum:
                low = guess
            elif number < maximum and guess > first:
                high = guess
            else:
                return guess
            guess = (low + high) // 2
        return low

    async def read(self, start: int) -> list[StoredMessage]:
        """Return all messages from sequence `start` on, in order."""
        messages: list[StoredMessage] = []
        async with self._consumer(start) as consumer:
            remaining = consumer.num_pending or 0
            pulled = await self._js.pull_subscribe_bind(consumer.name, self._stream)
            try:
                while remaining > 0:
                    for message in await pulled.fetch(
                        min(remaining, MESSAGES_PER_REQUEST), timeout=READ_TIMEOUT_SECONDS
                    ):
                        remaining -= 1
                        about = message.metadata
                        if about.sequence.stream >= self._end:
                            return messages
                        messages.append(
                            StoredMessage(about.sequence.stream, about.timestamp, message)
                        )
            finally:
                await pulled.unsubscribe()
        return messages

    async def count_messages(self, start: int) -> int:
        """Return the number of messages from sequence `start` on."""
        async with self._consumer(start) as consumer:
            return consumer.num_pending or 0

    @asynccontextmanager
    async def _consumer(self, start: int) -> AsyncIterator[ConsumerInfo]:
        name = READER_PREFIX + token_hex(8)
        config = ConsumerConfig(
            name=name,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=start,
            ack_policy=AckPolicy.NONE,
            filter_subjects=self._subjects,
            inactive_threshold=READER_IDLE_SECONDS,
            mem_storage=True,
            num_replicas=1,
        )
        consumer = await self._js.add_consumer(self._stream, config)
        try:
            yield consumer
        finally:
            await self._js.delete_consumer(self._stream, name)


async def delete_messages(
    bus: Bus,
    stream: str,
    subject: str,
    matches: Callable[[bytes], bool],
    maximum: int | None = None,
) -> int:
    """Delete the messages of a subject whose payload matches; return their number.

    At most `maximum` messages are read, or all if it is None. nats-server overwrites a message that
    it deletes. Raises the errors of nats-py while the bus is unavailable.
    """
    sequence, deleted = 1, 0
    for _ in count() if maximum is None else range(maximum):
        try:
            message = await bus.js.get_msg(stream, sequence, subject, next=True)
        except NotFoundError:
            break
        sequence_found = message.seq or sequence
        sequence = sequence_found + 1
        if matches(message.data or b""):
            await bus.js.delete_msg(stream, sequence_found)
            deleted += 1
    return deleted
