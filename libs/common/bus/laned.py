"""Messages of a stream in lanes of tenants, which take turns at a consumer's workers.

The consumer reads ahead, so that one tenant's backlog does not stand before what others have. What
a lane has no room for stays in the stream: it is handed back, and comes again after a while. Until
then later messages of that lane are handed back as well, which keeps their order for the most part
(exactly, unless several replicas share the consumer).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from libs.common.bus.connection import Bus
from libs.common.bus.wire import extend, hand_back
from libs.common.scheduling import Lanes

log = logging.getLogger(__name__)

ITEMS, SIZE = 2_000, 8 * 1024**2
"""Messages and bytes of a lane that are read ahead."""
MOST_ITEMS, MOST_SIZE = 20_000, 32 * 1024**2
"""Messages and bytes of all lanes, beyond which nothing is read; twice the bytes are never kept."""
COST = 512
"""Bytes of memory that a message takes beside its payload."""
PACE = 1_000.0
"""Messages of a lane without room that come again, per second."""
STALE = 60.0
"""Seconds after which messages that did not come again are taken to be another replica's."""


@dataclass(slots=True)
class _Deferred:
    """Messages of a lane that were handed back."""

    sequences: set[int] = field(default_factory=set)
    moved: float = 0.0
    """When one was handed back or came again last (monotonic)."""


class LanedMessages:
    """Messages that wait for their tenant's turn, at most one batch of a tenant in hand."""

    def __init__(
        self,
        bus: Bus,
        name: str,
        lane: Callable[[Msg], str],
        handle: Callable[[list[Msg]], Awaitable[bool]],
        batch: int,
        workers: int,
    ) -> None:
        """`handle` returns whether it dealt with a batch; else the batch comes again."""
        self._bus = bus
        self._lanes: Lanes[Msg] = Lanes(name, ITEMS, SIZE)
        self._lane_of = lane
        self._handle = handle
        self._batch = batch
        self._free = workers
        self._ending = False
        self._deferred: dict[str, _Deferred] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def ready(self) -> None:
        """Wait until the lanes have room for what is read next."""
        while self._running and (self._lanes.items >= MOST_ITEMS or self._lanes.size >= MOST_SIZE):
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)

    async def put(self, messages: Iterable[Msg]) -> None:
        """Let messages wait in their lanes, or hand them back."""
        back: dict[str, float] = {}
        for message in messages:
            lane, size = self._lane_of(message), len(message.data) + COST
            if self._comes_in(lane, message, size):
                self._lanes.put(lane, message, size=size)
            else:
                back[message.reply] = self._defer(lane, message)
        self._begin()
        await self._hand_back(back)

    def holds(self, lane: str) -> bool:
        """Return whether messages of a lane wait, are in hand or were handed back."""
        lanes = self._lanes
        return bool(lanes.waiting(lane) or lanes.running(lane) or lane in self._deferred)

    async def extend(self) -> None:
        """Tell the server that the messages in the lanes are not lost, so it sends none again."""
        await extend(self._bus.client, self._lanes)

    async def finish(self, seconds: float) -> None:
        """Wait so long for the batches in hand; hand back what waits."""
        self._ending = True
        waiting = {message.reply: 0.0 for message in self._lanes}
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        await self._hand_back(waiting)

    def _comes_in(self, lane: str, message: Msg, size: int) -> bool:
        deferred = self._deferred.get(lane)
        if deferred is not None:
            sequence, now = message.metadata.sequence.stream, time.monotonic()
            if sequence in deferred.sequences:
                deferred.sequences.discard(sequence)
                deferred.moved = now
            elif deferred.moved + STALE > now:
                return False
            if not deferred.sequences or deferred.moved + STALE <= now:
                del self._deferred[lane]
        return self._lanes.size < 2 * MOST_SIZE and self._lanes.has_room(lane, size)

    def _defer(self, lane: str, message: Msg) -> float:
        """Note that a message is handed back; return in how many seconds it is to come again."""
        deferred = self._deferred.setdefault(lane, _Deferred())
        deferred.sequences.add(message.metadata.sequence.stream)
        deferred.moved = time.monotonic()
        self._lanes.note_overflow(lane)
        return 1 + len(deferred.sequences) / PACE

    def _begin(self) -> None:
        """Give free workers to the lanes whose turn it is."""
        while self._free and (lane := self._lanes.next(self._idle)) is not None:
            messages = self._next_batch(lane)
            self._free -= 1
            task = asyncio.ensure_future(self._work(lane, messages, self._lanes.begin(lane)))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def _idle(self, lane: str) -> bool:
        return not self._lanes.running(lane)

    def _next_batch(self, lane: str) -> list[Msg]:
        messages: list[Msg] = []
        size = 0
        while len(messages) < self._batch and size < SIZE and self._lanes.waiting(lane):
            message, its_size = self._lanes.pop(lane)
            messages.append(message)
            size += its_size
        return messages

    async def _work(self, lane: str, messages: list[Msg], began: float) -> None:
        try:
            if not await self._handle(messages):
                await self._hand_back({one.reply: self._defer(lane, one) for one in messages})
        finally:
            self._lanes.end(lane, began)
            if not self._ending:
                self._free += 1
                self._begin()

    async def _hand_back(self, replies: dict[str, float]) -> None:
        if not replies:
            return
        try:
            await hand_back(self._bus.client, replies)
        except (NatsError, OSError) as error:  # they come again after the time to acknowledge
            log.warning("%s could not hand back: %r", self._lanes.name, error)


def event_tenant(message: Msg) -> str:
    """Return the tenant of an event, which its subject has in second place."""
    return message.subject.split(".", 2)[1]
