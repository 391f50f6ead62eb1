"""Deletes single messages of a stream."""

from collections.abc import Callable
from itertools import count

from nats.js.errors import NotFoundError

from libs.common.bus.connection import Bus


async def delete_messages(
    bus: Bus, stream: str, subject: str, matches: Callable[[bytes], bool], most: int | None = None
) -> int:
    """Delete the messages of a subject whose payload matches; return how many there were.

    At most `most` messages are read, all of them if it is None. nats-server overwrites a message
    that it deletes. Raises what nats-py raises while the bus is away.
    """
    sequence, deleted = 1, 0
    for _ in count() if most is None else range(most):
        try:
            message = await bus.js.get_msg(stream, sequence, subject, next=True)
        except NotFoundError:
            break
        found = message.seq or sequence
        sequence = found + 1
        if matches(message.data or b""):
            await bus.js.delete_msg(stream, found)
            deleted += 1
    return deleted
