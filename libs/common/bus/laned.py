"""Messages of a stream in lanes of tenants, with fair shares of a consumer's workers.

The consumer reads ahead, so that a tenant's backlog does not delay the messages of others. Messages
that do not fit into their lane are returned to the stream, which delivers them again later. Until
then, later messages of the lane wait: some in this process, the others in the stream. This keeps
the order of a lane, except that several replicas of a consumer may change it.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from libs.common.bus.connection import Bus
from libs.common.bus.publishing import extend_ack_timeouts, redeliver_later
from libs.common.scheduling import Lanes

log = logging.getLogger(__name__)

READ_AHEAD_MESSAGES, READ_AHEAD_BYTES = 2_000, 8 * 1024**2
"""Messages and bytes of a lane that are always read ahead. A lane may hold more, but not more than
the room that is left below the limits of all lanes."""
MAX_QUEUED_MESSAGES, MAX_QUEUED_BYTES = 20_000, 32 * 1024**2
"""Messages and bytes of all lanes, above which no more messages are requested. Messages that arrive
nevertheless are accepted up to twice the bytes."""
MESSAGE_OVERHEAD_BYTES = 512
"""Bytes of memory that a message uses in addition to its payload."""
MIN_REDELIVERIES_PER_SECOND = 1_000.0
"""Minimum rate at which messages of a full lane are delivered again, per second."""
MAX_PARKED_MESSAGES, MAX_PARKED_BYTES = 1_000, 1024**2
"""Messages and bytes of a lane that wait in this process until earlier messages were delivered
again. They let a lane return to normal soon after a burst."""
MISSING_REDELIVERY_SECONDS = 60.0
"""Seconds after which messages that were not delivered again are assumed at another replica."""


@dataclass(slots=True)
class _ReturnedMessages:
    """The messages of a lane that were returned to the stream, and those that wait for them."""

    sequences: set[tuple[str, int]] = field(default_factory=set)
    """Sequences of the returned messages by stream."""
    parked: list[Msg] = field(default_factory=list)
    """Later messages, which wait in this process."""
    after: set[tuple[str, int]] = field(default_factory=set)
    """Sequences of messages after the parked ones; these messages were returned to the stream,
    too."""
    parked_size: int = 0
    changed_at: float = 0.0
    """The last time (monotonic) when a message was returned or delivered again."""
    pace: float = MIN_REDELIVERIES_PER_SECOND
    """Messages that are delivered again, per second."""

    def park(self, message: Msg) -> bool:
        """Keep a later message here; return False if there is no room."""
        if len(self.parked) >= MAX_PARKED_MESSAGES or self.parked_size >= MAX_PARKED_BYTES:
            return False
        self.parked.append(message)
        self.parked_size += len(message.data) + MESSAGE_OVERHEAD_BYTES
        return True


class LanedMessages:
    """Messages that wait for their tenant's turn; one batch of a tenant runs at a time."""

    def __init__(
        self,
        bus: Bus,
        name: str,
        lane: Callable[[Msg], str],
        handle: Callable[[list[Msg]], Awaitable[bool]],
        batch: int,
        workers: int,
        items: int = READ_AHEAD_MESSAGES,
    ) -> None:
        """`handle` returns False for a batch that should be delivered again.

        `items` messages of a lane are always read ahead.
        """
        self._bus = bus
        self._items = items
        self._lanes: Lanes[Msg] = Lanes(name, sys.maxsize, sys.maxsize)
        self._lane_of = lane
        self._handle = handle
        self._batch = batch
        self._free = workers
        self._ending = False
        self._returned: dict[str, _ReturnedMessages] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def wait_for_room(self) -> None:
        """Wait until the lanes have room for more messages."""
        while self._running and (
            self._lanes.items >= MAX_QUEUED_MESSAGES or self._lanes.size >= MAX_QUEUED_BYTES
        ):
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)

    async def put(self, messages: Iterable[Msg]) -> None:
        """Add messages to their lanes, or return them to the stream."""
        delays: dict[str, float] = {}
        for message in messages:
            lane = self._lane_of(message)
            returned = self._returned.get(lane)
            if returned is not None and self._is_later(returned, message):
                if not returned.park(message):
                    delays[message.reply] = self._record_return(lane, message, returned.after)
                continue
            if not self._put_if_room(lane, message):
                delays[message.reply] = self._record_return(lane, message)
            if returned is not None and not returned.sequences:
                delays |= self._admit_parked(lane, returned)
        self._start_batches()
        await self._return_messages(delays)

    def holds(self, lane: str) -> bool:
        """Return whether messages of a lane wait, are handled or were returned."""
        lanes = self._lanes
        return bool(lanes.waiting(lane) or lanes.running(lane) or lane in self._returned)

    async def extend(self) -> None:
        """Extend the time to acknowledge the messages in the lanes."""
        await extend_ack_timeouts(self._bus.client, self._waiting())

    async def finish(self, seconds: float) -> None:
        """Wait at most `seconds` for running batches; return waiting messages to the stream."""
        self._ending = True
        waiting = {message.reply: 0.0 for message in self._waiting()}
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        await self._return_messages(waiting)

    def _waiting(self) -> list[Msg]:
        return [
            *self._lanes,
            *(message for returned in self._returned.values() for message in returned.parked),
        ]

    def _is_later(self, returned: _ReturnedMessages, message: Msg) -> bool:
        """Return whether a message must wait for returned messages of its lane.

        If it is a returned message that is delivered again, record its arrival.
        """
        sequence, now = _stream_position(message), time.monotonic()
        if (
            sequence not in returned.sequences
            and returned.changed_at + MISSING_REDELIVERY_SECONDS > now
        ):
            return True
        if sequence in returned.sequences:
            returned.sequences.discard(sequence)
            returned.changed_at = now
        else:
            returned.sequences.clear()
        return False

    def _admit_parked(self, lane: str, returned: _ReturnedMessages) -> dict[str, float]:
        """Move parked messages to their lane; return the delays of those without room.

        The caller returns these messages to the stream. The result has the seconds until their next
        delivery by reply subject.
        """
        self._returned[lane] = _ReturnedMessages(
            returned.after, changed_at=returned.changed_at, pace=returned.pace
        )
        admitted = list(takewhile(partial(self._put_if_room, lane), returned.parked))
        rest = returned.parked[len(admitted) :]
        delays = {message.reply: self._record_return(lane, message) for message in rest}
        if not self._returned[lane].sequences:
            del self._returned[lane]
        return delays

    def _put_if_room(self, lane: str, message: Msg) -> bool:
        """Add a message to its lane; return False if there is no room."""
        lanes, size = self._lanes, len(message.data) + MESSAGE_OVERHEAD_BYTES
        waiting = lanes.waiting(lane)
        full = waiting and (
            waiting >= max(self._items, MAX_QUEUED_MESSAGES - lanes.items)
            or lanes.waiting_size(lane) + size
            > max(READ_AHEAD_BYTES, MAX_QUEUED_BYTES - lanes.size)
        )
        if full or lanes.size >= 2 * MAX_QUEUED_BYTES:
            return False
        lanes.put(lane, message, size=size)
        return True

    def _record_return(
        self, lane: str, message: Msg, sequences: set[tuple[str, int]] | None = None
    ) -> float:
        """Record that a message is returned; return the delay (s) of its next delivery."""
        returned = self._returned.setdefault(lane, _ReturnedMessages())
        (returned.sequences if sequences is None else sequences).add(_stream_position(message))
        returned.changed_at = time.monotonic()
        self._lanes.count_overflow(lane)
        return 1 + (len(returned.sequences) + len(returned.after)) / returned.pace

    def _start_batches(self) -> None:
        """Assign free workers to the lanes whose turn it is."""
        while self._free and (lane := self._lanes.next(self._is_idle)) is not None:
            messages = self._next_batch(lane)
            self._free -= 1
            task = asyncio.ensure_future(
                self._handle_batch(lane, messages, self._lanes.begin(lane))
            )
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def _is_idle(self, lane: str) -> bool:
        return not self._lanes.running(lane)

    def _next_batch(self, lane: str) -> list[Msg]:
        messages: list[Msg] = []
        size = 0
        while len(messages) < self._batch and size < READ_AHEAD_BYTES and self._lanes.waiting(lane):
            message, its_size = self._lanes.pop(lane)
            messages.append(message)
            size += its_size
        return messages

    async def _handle_batch(self, lane: str, messages: list[Msg], began: float) -> None:
        try:
            if not await self._handle(messages):
                await self._return_messages(
                    {message.reply: self._record_return(lane, message) for message in messages}
                )
            elif returned := self._returned.get(lane):
                returned.pace = max(
                    MIN_REDELIVERIES_PER_SECOND, len(messages) / (time.monotonic() - began + 0.001)
                )
        finally:
            self._lanes.end(lane, began)
            if not self._ending:
                self._free += 1
                self._start_batches()

    async def _return_messages(self, replies: dict[str, float]) -> None:
        if not replies:
            return
        try:
            await redeliver_later(self._bus.client, replies)
        except (NatsError, OSError) as error:  # they are delivered again
            log.warning("%s cannot return messages to the stream: %r", self._lanes.name, error)


def _stream_position(message: Msg) -> tuple[str, int]:
    """Return the stream of a message and its sequence in it."""
    return message.metadata.stream, message.metadata.sequence.stream


def event_tenant(message: Msg) -> str:
    """Return the tenant of an event: the second token of its subject."""
    return message.subject.split(".", 2)[1]
