"""Who listens; and a socket's: what it subscribes to, may see, and what waits to be sent."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable

import msgspec

from libs.common.changes import ChangedThing
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from services.management.live.following import ChangeQueue, EncodedChange, Pattern
from services.management.live.frames import Update, Value
from services.management.live.queued import QueuedBytes

TOO_SLOW = 1013
"""Close code "try again later" (RFC 6455, registry)."""
MOST_WAITING = 256
"""Frames that wait for a slow reader; beyond them only the latest values are kept."""
MOST_BYTES = 1024 * 1024
"""The same in bytes."""
MOST_MERGED = 256 * 1024
"""Bytes of a frame of latest values, unless one value alone has more."""
PATIENCE = 30.0
"""Seconds for which a reader may take nothing at all before it is closed."""

SendNext = Callable[[str, Callable[[], str | bytes | None]], Awaitable[None]]
"""Sends the next frame once the client keeps up and the tenant, named first, has its turn."""

_encoder = msgspec.json.Encoder()


class Listener:
    """Who hears what changes, for as long as its credential holds."""

    def __init__(
        self,
        principal: Principal,
        credential: str,
        grants: Grants,
        close: Callable[[int, str], None],
    ) -> None:
        """`credential` is the key of Redis that is there while it may listen."""
        self.principal = principal
        self.credential = credential
        self.grants = grants
        self._close = close
        self._closed = False

    def close(self, code: int, reason: str) -> None:
        """End the socket with a code and a reason; repeatable."""
        self._closed = True
        self._close(code, reason)


class Subscriber(Listener):
    """A socket of `/websocket`."""

    def __init__(
        self,
        principal: Principal,
        credential: str,
        grants: Grants,
        send_next: SendNext,
        close: Callable[[int, str], None],
        queued: QueuedBytes,
    ) -> None:
        """`queued` counts what waits for all sockets of the tenant."""
        super().__init__(principal, credential, grants, close)
        self.keys: frozenset[str] = frozenset()
        """Keys of the entities that it subscribes to, also by their ids."""
        self.granted_keys: frozenset[str] = frozenset()
        """Keys whose entity is granted by itself, and not with its thing."""
        self.pattern: Pattern | None = None
        """The pattern of changes that it follows."""
        self.counted = 0
        """The keys that count against limits."""
        self._changes = ChangeQueue(queued)
        self._changes_first = False
        self._send_next = send_next
        self._queued = queued
        self._waiting: deque[Update] = deque()
        self._bytes = 0
        self._latest: OrderedDict[str, Value | msgspec.Raw] = OrderedDict()
        """The latest values of a slow reader, the key that waits longest first."""
        self._sending: asyncio.Task[None] | None = None

    def sees(self, thing: ChangedThing) -> bool:
        """Return whether all changes of a thing may be sent."""
        return self.grants.thing(
            thing.id, thing.integration, device=thing.device, group=thing.group
        )

    def push(self, update: Update) -> None:
        """Send new values; a slow reader gets the latest of each key instead of every one."""
        if self._closed:
            return
        if self._latest:
            self._latest.update(update.values)
        else:
            self._append(update)
        self._start_sending()

    def follow(self, pattern: Pattern | None) -> None:
        """Replace the pattern, and forget the changes that wait for the one before."""
        self.pattern = pattern
        self._changes.clear()

    def push_change(self, change: EncodedChange) -> None:
        """Send a change that fits the pattern."""
        if not self._closed:
            self._changes.add(change)
            self._start_sending()

    def stop(self) -> None:
        """Send no more."""
        self._closed = True
        self._changes.clear()
        self._clear()
        if self._sending is not None:
            self._sending.cancel()

    def _append(self, update: Update) -> None:
        """Let an update wait, and merge what waits once it is too much."""
        self._waiting.append(update)
        self._count(len(update.encoded))
        if len(self._waiting) > 1 and (
            len(self._waiting) > MOST_WAITING or self._bytes > MOST_BYTES or self._queued.full
        ):
            for waiting in self._waiting:
                self._latest.update(waiting.values)
            self._queued.note_overflow(len(self._waiting))
            self._clear()

    def _start_sending(self) -> None:
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        try:
            while self._waiting or self._latest or self._changes:
                async with asyncio.timeout(PATIENCE):
                    await self._send_next(self.principal.tenant, self._next_frame)
        except TimeoutError:
            self.close(TOO_SLOW, "too slow")
        finally:
            self._sending = None

    def _next_frame(self) -> str | None:
        """Return the next frame; the two kinds of subscriptions take turns."""
        self._changes_first = not self._changes_first
        changes = self._changes.take() if self._changes_first else None
        return changes or self._next() or self._changes.take()

    def _next(self) -> str | None:
        if self._waiting:
            encoded = self._waiting.popleft().encoded
            self._count(-len(encoded))
            return encoded.decode()
        merged: dict[str, msgspec.Raw] = {}
        size = 0
        while self._latest and size < MOST_MERGED:
            key, value = self._latest.popitem(last=False)
            encoded = _encoder.encode(value)
            merged[key] = msgspec.Raw(encoded)
            size += len(encoded)
        return Update(merged).encoded.decode() if merged else None

    def _clear(self) -> None:
        self._waiting.clear()
        self._count(-self._bytes)

    def _count(self, size: int) -> None:
        self._bytes += size
        self._queued.size += size
