"""Counts, samples and purges the messages that a stream retains of some subjects.

nats-server keeps a number of messages by subject, but no bytes. Its purge up to a sequence reads
every block of the stream that may hold a matching message, and nobody publishes meanwhile (2.15.1);
a purge that keeps the newest stops when it has deleted enough.
"""

import random
from secrets import token_hex

import msgspec
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

from libs.common.bus.connection import Bus
from libs.common.bus.stream_metrics import TIMEOUT, Held

COUNT = "count-"
"""How names of the consumers begin that count; each exists while one request lasts."""
IDLE = 10.0
"""Seconds after which nats-server deletes a consumer that its process did not delete."""
WINDOW = 16
"""Matching messages of one sample, on average."""
MOST_IN_WINDOW = 64
OVERHEAD = 34
"""Bytes that nats-server stores with each message."""


async def count_messages(bus: Bus, stream: str, subject: str) -> int:
    """Return how many messages of a subject a stream retains; nats-server reads none of them."""
    config = ConsumerConfig(
        name=COUNT + token_hex(8),
        filter_subject=subject,
        ack_policy=AckPolicy.NONE,
        inactive_threshold=IDLE,
        mem_storage=True,
        num_replicas=1,
    )
    consumer = await bus.js.add_consumer(stream, config)
    await bus.js.delete_consumer(stream, consumer.name)
    return consumer.num_pending or 0


async def sample_sizes(
    bus: Bus, stream: str, subject: str, held: Held, number: int
) -> tuple[int, int]:
    """Return how many messages a random window of a stream has of a subject, and their bytes.

    A stream that holds `number` of them has `WINDOW` of them in a window on average.
    """
    span = held.last_seq - held.first_seq + 1
    sequence = random.randint(held.first_seq, held.last_seq)  # noqa: S311 - a sample
    end = sequence + max(1, span * WINDOW // number)
    messages = size = 0
    while messages < MOST_IN_WINDOW:
        try:
            message = await bus.js.get_msg(stream, sequence, subject, next=True)
        except NotFoundError:
            break
        if (message.seq or end) >= end:
            break
        sequence = (message.seq or sequence) + 1
        messages += 1
        headers = len(message.hdrs or "") * 3 // 4
        size += len(message.subject or "") + headers + len(message.data or b"") + OVERHEAD
    return messages, size


class _Fault(msgspec.Struct):
    description: str = ""


class _Answer(msgspec.Struct):
    purged: int = 0
    error: _Fault | None = None


async def purge_oldest(bus: Bus, stream: str, subject: str, number: int) -> int:
    """Delete up to `number` messages of a subject, the oldest first; return how many it deleted.

    The newest always stays. Raises `NatsError` and `TimeoutError`, and `APIError` as nats-py does.
    """
    keep = max(1, await count_messages(bus, stream, subject) - number)
    request = msgspec.json.encode({"filter": subject, "keep": keep})
    answer = await bus.client.request(f"$JS.API.STREAM.PURGE.{stream}", request, timeout=TIMEOUT)
    outcome = msgspec.json.decode(answer.data, type=_Answer)
    if outcome.error is not None:
        raise NatsError(f"{stream} cannot be purged: {outcome.error.description}")
    return outcome.purged
