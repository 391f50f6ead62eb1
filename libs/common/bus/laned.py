"""Messages of a stream in lanes of tenants, which take turns at a consumer's workers.

The consumer reads ahead, so that one tenant's backlog does not stand before what others have. What
a lane has no room for stays in the stream: it is handed back, and comes again after a while. Until
then later messages of that lane wait for it, a few here and more in the stream, which keeps their
order for the most part (exactly, unless several replicas share the consumer).
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
from libs.common.bus.publishing import extend, hand_back
from libs.common.scheduling import Lanes

log = logging.getLogger(__name__)

ITEMS, SIZE = 2_000, 8 * 1024**2
"""Messages and bytes of a lane that are read ahead in any case. A lane may hold more as long as it
leaves as much free as it holds."""
MOST_ITEMS, MOST_SIZE = 20_000, 32 * 1024**2
"""Messages and bytes of all lanes, beyond which nothing is read; twice the bytes are never kept."""
COST = 512
"""Bytes of memory that a message takes beside its payload."""
PACE = 1_000.0
"""Messages of a lane without room that come again, per second, unless it handles more."""
PARKED, PARKED_SIZE = 1_000, 1024**2
"""Messages and bytes of a lane that wait here until earlier ones have come again. So a tenant whose
messages are handled as fast as they come has them handled at once again soon after a burst."""
STALE = 60.0
"""Seconds after which messages that did not come again are taken to be another replica's."""


@dataclass(slots=True)
class _Deferred:
    """Messages of a lane that were handed back."""

    sequences: set[int] = field(default_factory=set)
    parked: list[Msg] = field(default_factory=list)
    """Later messages that wait here."""
    after: set[int] = field(default_factory=set)
    """Still later ones, which were handed back."""
    parked_size: int = 0
    moved: float = 0.0
    """When one was handed back or came again last (monotonic)."""
    pace: float = PACE
    """Messages that come again, per second."""

    def park(self, message: Msg) -> bool:
        """Let a later message wait here; return whether there was room."""
        if len(self.parked) >= PARKED or self.parked_size >= PARKED_SIZE:
            return False
        self.parked.append(message)
        self.parked_size += len(message.data) + COST
        return True


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
        items: int = ITEMS,
    ) -> None:
        """`handle` returns whether it dealt with a batch; else the batch comes again.

        `items` messages of a lane are read ahead in any case.
        """
        self._bus = bus
        self._items = items
        self._lanes: Lanes[Msg] = Lanes(name, sys.maxsize, sys.maxsize)
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
            lane = self._lane_of(message)
            deferred = self._deferred.get(lane)
            if deferred is not None and self._is_later(deferred, message):
                if not deferred.park(message):
                    back[message.reply] = self._defer(lane, message, deferred.after)
                continue
            if not self._enters(lane, message):
                back[message.reply] = self._defer(lane, message)
            if deferred is not None and not deferred.sequences:
                back |= self._admit_parked(lane, deferred)
        self._begin()
        await self._hand_back(back)

    def holds(self, lane: str) -> bool:
        """Return whether messages of a lane wait, are in hand or were handed back."""
        lanes = self._lanes
        return bool(lanes.waiting(lane) or lanes.running(lane) or lane in self._deferred)

    async def extend(self) -> None:
        """Tell the server that the messages in the lanes are not lost, so it sends none again."""
        await extend(self._bus.client, self._waiting())

    async def finish(self, seconds: float) -> None:
        """Wait so long for the batches in hand; hand back what waits."""
        self._ending = True
        waiting = {message.reply: 0.0 for message in self._waiting()}
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        await self._hand_back(waiting)

    def _waiting(self) -> list[Msg]:
        return [*self._lanes, *(one for some in self._deferred.values() for one in some.parked)]

    def _is_later(self, deferred: _Deferred, message: Msg) -> bool:
        """Return whether a message has to wait for those of its lane that come again."""
        sequence, now = message.metadata.sequence.stream, time.monotonic()
        if sequence not in deferred.sequences and deferred.moved + STALE > now:
            return True
        if sequence in deferred.sequences:
            deferred.sequences.discard(sequence)
            deferred.moved = now
        else:
            deferred.sequences.clear()
        return False

    def _admit_parked(self, lane: str, deferred: _Deferred) -> dict[str, float]:
        """Let parked messages wait in their lane; return those without room, to be handed back."""
        self._deferred[lane] = _Deferred(deferred.after, moved=deferred.moved, pace=deferred.pace)
        admitted = list(takewhile(partial(self._enters, lane), deferred.parked))
        rest = deferred.parked[len(admitted) :]
        back = {message.reply: self._defer(lane, message) for message in rest}
        if not self._deferred[lane].sequences:
            del self._deferred[lane]
        return back

    def _enters(self, lane: str, message: Msg) -> bool:
        """Let a message wait in its lane; return whether there was room."""
        lanes, size = self._lanes, len(message.data) + COST
        waiting = lanes.waiting(lane)
        full = waiting and (
            waiting >= max(self._items, MOST_ITEMS - lanes.items)
            or lanes.waiting_size(lane) + size > max(SIZE, MOST_SIZE - lanes.size)
        )
        if full or lanes.size >= 2 * MOST_SIZE:
            return False
        lanes.put(lane, message, size=size)
        return True

    def _defer(self, lane: str, message: Msg, sequences: set[int] | None = None) -> float:
        """Note that a message is handed back; return in how many seconds it is to come again."""
        deferred = self._deferred.setdefault(lane, _Deferred())
        (deferred.sequences if sequences is None else sequences).add(
            message.metadata.sequence.stream
        )
        deferred.moved = time.monotonic()
        self._lanes.note_overflow(lane)
        return 1 + (len(deferred.sequences) + len(deferred.after)) / deferred.pace

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
            elif deferred := self._deferred.get(lane):
                deferred.pace = max(PACE, len(messages) / (time.monotonic() - began + 0.001))
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
