"""Sockets that receive changes, with their grants and waiting frames."""

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict, deque

import msgspec
from opentelemetry import metrics

from libs.common.changes import ChangedThing
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from services.management.live.frames import (
    ChangeFilter,
    ChangeQueue,
    EncodedChange,
    QueuedBytes,
    TimedValue,
    ValuesUpdate,
    encode_values_frame,
    keep_latest,
)
from services.management.live.sockets import TRY_AGAIN, LiveSocket

MAX_WAITING_FRAMES = 256
"""Maximum frames that wait for a slow reader. Beyond it, only the latest values are kept."""
MAX_WAITING_BYTES = 1024 * 1024
"""Maximum bytes of the frames that wait for a slow reader."""
MAX_MERGED_FRAME_BYTES = 256 * 1024
"""Bytes of latest values from which a frame gets no further value; the last one may exceed it."""

_encoder = msgspec.json.Encoder()
_overflow_counter = metrics.get_meter("thingway").create_counter(
    "thingway_live_overflow",
    description="Frames and changes merged or skipped for slow WebSockets, by tenant",
)


class Listener(ABC):
    """A socket that receives changes while its credential is valid."""

    def __init__(
        self, principal: Principal, credential: str, grants: Grants, live_socket: LiveSocket
    ) -> None:
        """`credential` is a Redis key that exists while the listener may receive changes."""
        self.principal = principal
        self.credential = credential
        self.grants = grants
        self._live_socket = live_socket
        self.queued = QueuedBytes(MAX_WAITING_BYTES)
        """Bytes that wait for this socket; they also count for its tenant."""
        self._closed = False
        self._sending: asyncio.Task[None] | None = None

    def close(self, code: int, reason: str) -> None:
        """Close the socket with a code and a reason; may be repeated."""
        self._closed = True
        self._live_socket.close(code, reason)

    def stop(self) -> None:
        """Stop sending."""
        self._closed = True
        self.queued.add(-self.queued.size)
        if self._sending is not None:
            self._sending.cancel()

    @abstractmethod
    def _has_waiting(self) -> bool:
        """Return whether a frame waits to be sent."""

    @abstractmethod
    def _pop_next(self) -> str | bytes | None:
        """Return the next frame."""

    def _start_sending(self) -> None:
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send_waiting())

    async def _send_waiting(self) -> None:
        try:
            while self._has_waiting():
                await self._live_socket.send_next(self.principal.tenant, self._pop_next)
        except TimeoutError:
            self.close(TRY_AGAIN, "too slow")
        finally:
            self._sending = None

    def _count_dropped(self, number: int) -> None:
        """Count messages that were dropped because the client reads too slowly."""
        _overflow_counter.add(number, {"tenant": self.principal.tenant})


class Subscriber(Listener):
    """A socket of `/websocket`."""

    keys: frozenset[str] = frozenset()
    """Keys of the subscribed entities, including those subscribed by id."""
    granted_keys: frozenset[str] = frozenset()
    """Keys of entities that have a grant of their own, not only of their thing."""
    filter: ChangeFilter | None = None
    """The filter of the changes that its client subscribed to."""
    counted_keys = 0
    """Number of subscribed keys that the limits of the user and the tenant count."""
    _changes_first = False

    def __init__(
        self, principal: Principal, credential: str, grants: Grants, live_socket: LiveSocket
    ) -> None:
        super().__init__(principal, credential, grants, live_socket)
        self._changes = ChangeQueue(self.queued)
        self._waiting: deque[ValuesUpdate] = deque()
        self._latest: OrderedDict[str, TimedValue] = OrderedDict()
        """The latest values for a slow reader, the longest waiting key first."""

    def sees_all_changes(self, thing: ChangedThing) -> bool:
        """Return whether the user sees all entities of a thing."""
        return self.grants.allows_thing(
            thing.id, thing.integration, device=thing.device, group=thing.group
        )

    def push(self, update: ValuesUpdate) -> None:
        """Send new values; a slow reader gets only the latest of each key."""
        if self._closed:
            return
        if self._latest:
            self._merge(update)
        else:
            self._waiting.append(update)
            self.queued.add(len(update.frame))
            if len(self._waiting) > (1 if self.queued.is_full else MAX_WAITING_FRAMES):
                self._merge_waiting()
        self._start_sending()

    def set_filter(self, change_filter: ChangeFilter | None) -> None:
        """Replace the filter, and drop waiting changes of the previous one."""
        self.filter = change_filter
        self._changes.clear()

    def push_change(self, change: EncodedChange) -> None:
        """Queue a change that matches the filter, and send it."""
        if not self._closed:
            if skipped := self._changes.add_and_count_skipped(change):
                self._count_dropped(skipped)
            self._start_sending()

    def _merge(self, update: ValuesUpdate) -> None:
        for key, value in update.values.items():
            keep_latest(self._latest, key, value)

    def _merge_waiting(self) -> None:
        """Reduce waiting frames to the latest value of each key."""
        self._count_dropped(len(self._waiting))
        while self._waiting:
            update = self._waiting.popleft()
            self.queued.add(-len(update.frame))
            self._merge(update)

    def _has_waiting(self) -> bool:
        return bool(self._waiting or self._latest or self._changes)

    def _pop_next(self) -> str | None:
        """Return the next frame; the two types of subscriptions take turns."""
        self._changes_first = not self._changes_first
        changes = self._changes.pop_frame() if self._changes_first else None
        return changes or self._next_values() or self._changes.pop_frame()

    def _next_values(self) -> str | None:
        if self._waiting:
            frame = self._waiting.popleft().frame
            self.queued.add(-len(frame))
            return frame.decode()
        merged: dict[str, msgspec.Raw] = {}
        size = 0
        while self._latest and size < MAX_MERGED_FRAME_BYTES:
            key, value = self._latest.popitem(last=False)
            encoded = _encoder.encode(value)
            merged[key] = msgspec.Raw(encoded)
            size += len(encoded)
        return encode_values_frame(merged).decode() if merged else None
