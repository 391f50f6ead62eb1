"""JetStream atomic batches (nats-server 2.12 and later, ADR-50): one acknowledgement for all.

A batch is stored whole or not at all. One that holds a message id the stream has seen is
refused whole (10201); its messages are then published one by one, where only the seen
ones are dropped.
"""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

import msgspec
from nats.errors import Error as NatsError

from libs.common.bus.connection import PUBLISH_TIMEOUT, Bus, Outgoing
from libs.common.bus.wire import publish_frame, write_frames
from libs.common.errors import Unavailable

MOST = 1000
"""Messages of one batch (the server's limit)."""
DUPLICATE_IN_BATCH = 10201
ALONE = 2
"""From so many messages on a batch is cheaper than single publishes."""


class _Error(msgspec.Struct):
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct):
    error: _Error | None = None
    count: int = 0


async def publish_all(bus: Bus, messages: Sequence[Outgoing]) -> None:
    """Publish messages of one stream; return when all of them are stored.

    Raises `Unavailable` when the stream does not take them; some may be stored by then.
    """
    chunks = [messages[first : first + MOST] for first in range(0, len(messages), MOST)]
    await asyncio.gather(*(_publish_chunk(bus, chunk) for chunk in chunks))


async def _publish_chunk(bus: Bus, chunk: Sequence[Outgoing]) -> None:
    if len(chunk) < ALONE or not await _publish_batch(bus, chunk):
        await bus.publish(chunk)


async def _publish_batch(bus: Bus, messages: Sequence[Outgoing]) -> bool:
    """Publish one atomic batch; False when it holds a duplicate."""
    batch = uuid4().hex

    def headers(number: int, message: Outgoing) -> dict[str, str]:
        mine = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
        return (message.all_headers() or {}) | mine

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
    if not answer.data:
        raise Unavailable("no stream takes these messages")
    ack = msgspec.json.decode(answer.data, type=_Ack)
    if ack.error is None:
        return True
    if ack.error.err_code == DUPLICATE_IN_BATCH:
        return False
    raise Unavailable(f"the bus refused a batch: {ack.error.description}")
