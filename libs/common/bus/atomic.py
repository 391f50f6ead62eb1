"""JetStream atomic batches (nats-server 2.12 and later, ADR-50): one acknowledgement for all.

A batch is stored whole or not at all. One that holds a message id the stream has seen is
refused whole (10201); its messages are then published one by one, where only the seen
ones are dropped.
"""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

from nats.errors import Error as NatsError

from libs.common.bus.connection import Bus
from libs.common.bus.publishing import (
    PUBLISH_TIMEOUT,
    DuplicateInBatch,
    Outgoing,
    check_ack,
    chunks,
    publish_frame,
    write_frames,
)
from libs.common.errors import Unavailable

MOST = 1000
"""Messages of one batch (the server's limit)."""
ALONE = 2
"""From so many messages on they need a batch to be stored together."""
WORTH_A_BATCH = 500
"""Messages from which on a batch is as cheap as single messages in one write: so many take 5.5 ms
of server and client together either way, 64 of them 2.0 as a batch and 0.9 singly (2.15.1)."""


async def publish_all(bus: Bus, messages: Sequence[Outgoing]) -> None:
    """Publish messages of one stream; return when all of them are stored.

    Raises `Unavailable` when the stream does not take them, `TooManyRequests` when it holds too
    many of a subject; some may be stored by then. Raises `TooLarge`, and publishes nothing, when
    the bus takes one of them at no time.
    """
    if len(messages) < ALONE:
        await bus.publish(messages)
        return
    most = bus.client.max_payload
    batches = [_Batch(chunk, most) for chunk in chunks(messages, MOST)]
    await asyncio.gather(*(one.publish(bus) for one in batches))


async def publish_each(bus: Bus, messages: Sequence[Outgoing]) -> None:
    """Publish messages of one stream that need not be stored together; else as `publish_all`."""
    await (bus.publish(messages) if len(messages) < WORTH_A_BATCH else publish_all(bus, messages))


class _Batch:
    """Messages of one atomic batch."""

    def __init__(self, messages: Sequence[Outgoing], most: int) -> None:
        """Raise `TooLarge` for a message with more than `most` bytes."""
        self._messages = messages
        self._id = {"Nats-Batch-Id": uuid4().hex}
        self._frames = [
            publish_frame(one.subject, one.payload, self._headers(number, one), most=most)
            for number, one in enumerate(messages, 1)
        ]

    def _headers(self, number: int, message: Outgoing) -> dict[str, str]:
        end = {"Nats-Batch-Commit": "1"} if number == len(self._messages) else {}
        return {**message.all_headers(), **self._id, "Nats-Batch-Sequence": str(number), **end}

    async def publish(self, bus: Bus) -> None:
        """Publish them, one by one when the stream has one of them."""
        if len(self._messages) < ALONE or not await self._commit(bus):
            await bus.publish(self._messages)

    async def _commit(self, bus: Bus) -> bool:
        """Publish all; False when the batch holds a duplicate."""
        last = self._messages[-1]
        headers = self._headers(len(self._messages), last)
        try:
            await write_frames(bus.client, self._frames[:-1])
            answer = await bus.client.request(
                last.subject, last.payload, PUBLISH_TIMEOUT, headers=headers
            )
        except (NatsError, TimeoutError) as error:
            raise Unavailable(f"the bus does not take messages: {error!r}") from error
        try:
            check_ack(answer.data)
        except DuplicateInBatch:
            return False
        return True
