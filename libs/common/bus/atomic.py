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
)
from libs.common.bus.wire import publish_frame, write_frames
from libs.common.errors import Unavailable

MOST = 1000
"""Messages of one batch (the server's limit)."""
ALONE = 2
"""From so many messages on they need a batch to be stored together."""
WORTH_A_BATCH = 500
"""Messages from which on a batch is as cheap as single messages in one write: so many take 5.5 ms
of server and client together either way, 64 of them 2.0 as a batch and 0.9 singly (2.15.1)."""


_LONGEST = dict.fromkeys(("Nats-Msg-Id", "Nats-Batch-Id", "Nats-Batch-Sequence"), "-" * 64)
"""No shorter than the headers that a batch adds to a message."""


async def publish_all(bus: Bus, messages: Sequence[Outgoing]) -> None:
    """Publish messages of one stream; return when all of them are stored.

    Raises `Unavailable` when the stream does not take them, `TooManyRequests` when it holds too
    many of a subject; some may be stored by then. Raises `TooLarge`, and publishes nothing, when
    the bus takes one of them at no time.
    """
    if len(messages) < ALONE:
        await bus.publish(messages)
        return
    for message in messages:
        bus.measure(message.subject, message.payload, message.headers | _LONGEST)
    await asyncio.gather(*(_publish_chunk(bus, chunk) for chunk in chunks(messages, MOST)))


async def publish_each(bus: Bus, messages: Sequence[Outgoing]) -> None:
    """Publish messages of one stream that need not be stored together; else as `publish_all`."""
    await (bus.publish(messages) if len(messages) < WORTH_A_BATCH else publish_all(bus, messages))


async def _publish_chunk(bus: Bus, chunk: Sequence[Outgoing]) -> None:
    if len(chunk) < ALONE or not await _publish_batch(bus, chunk):
        await bus.publish(chunk)


async def _publish_batch(bus: Bus, messages: Sequence[Outgoing]) -> bool:
    """Publish one atomic batch; False when it holds a duplicate."""
    batch = uuid4().hex

    def headers(number: int, message: Outgoing) -> dict[str, str]:
        mine = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
        return message.all_headers() | mine

    *firsts, last = messages
    frames = [
        publish_frame(message.subject, message.payload, headers(number, message))
        for number, message in enumerate(firsts, 1)
    ]
    commit = headers(len(messages), last) | {"Nats-Batch-Commit": "1"}
    try:
        await write_frames(bus.client, frames)
        answer = await bus.client.request(
            last.subject, last.payload, PUBLISH_TIMEOUT, headers=commit
        )
    except (NatsError, TimeoutError) as error:
        raise Unavailable(f"the bus does not take messages: {error!r}") from error
    try:
        check_ack(answer.data)
    except DuplicateInBatch:
        return False
    return True
