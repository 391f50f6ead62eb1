"""Who listens; and a socket's: what it subscribes to, may see, and what waits to be sent."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

from libs.common.changes import Changed, ChangedThing
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from services.management.live.following import ChangeQueue, Pattern
from services.management.live.frames import Value, push_frame

TOO_SLOW = 1013
"""Close code "try again later" (RFC 6455, registry)."""
MOST_WAITING = 256
"""Frames that wait for a slow reader; beyond them only the latest values are kept."""
PATIENCE = 30.0
"""Seconds for which a reader may take nothing at all before it is closed."""


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
    """A socket of `/websocket`; `send` waits while the reader does not keep up."""

    def __init__(
        self,
        principal: Principal,
        credential: str,
        grants: Grants,
        send: Callable[[str], Awaitable[None]],
        close: Callable[[int, str], None],
    ) -> None:
        super().__init__(principal, credential, grants, close)
        self.keys: frozenset[str] = frozenset()
        """As subscribed: entity keys, and ids, which some consoles send instead."""
        self.aliases: Mapping[str, str] = {}
        """Subscribed ids by the key that they stand for."""
        self.granted_keys: frozenset[str] = frozenset()
        """Keys whose entity is granted by itself, and not with its thing."""
        self.pattern: Pattern | None = None
        """The pattern of changes that it follows."""
        self._changes = ChangeQueue()
        self._changes_first = False
        self._send = send
        self._waiting: deque[dict[str, Value]] = deque()
        self._latest: dict[str, Value] | None = None
        self._sending: asyncio.Task[None] | None = None

    def sees(self, thing: ChangedThing, key: str) -> bool:
        """Tell whether a change of `key` may be told."""
        whole = self.grants.thing(
            thing.id, thing.integration, device=thing.device, group=thing.group
        )
        return whole or key in self.granted_keys

    def push(self, values: dict[str, Value]) -> None:
        """Send new values; a slow reader gets the latest of each key instead of every one."""
        if self._closed:
            return
        if self._latest is not None:
            self._latest.update(values)
        else:
            self._waiting.append(values)
            if len(self._waiting) > MOST_WAITING:
                self._latest = {}
                for waiting in self._waiting:
                    self._latest.update(waiting)
                self._waiting.clear()
        self._start_sending()

    def follow(self, pattern: Pattern | None) -> None:
        """Replace the pattern, and forget the changes that wait for the one before."""
        self.pattern = pattern
        self._changes.clear()

    def push_change(self, change: Changed) -> None:
        """Send the values of a change that fit the pattern and that the user sees."""
        pattern = self.pattern
        if self._closed or pattern is None or not pattern.covers(change):
            return
        values = {
            key: value
            for key, value in change.values.items()
            if pattern.has_keyword(change, key) and self.sees(change.thing, key)
        }
        if values:
            self._changes.add(change, values)
            self._start_sending()

    def stop(self) -> None:
        """Send no more."""
        self._closed = True
        if self._sending is not None:
            self._sending.cancel()

    def _start_sending(self) -> None:
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        try:
            while (frame := self._next_frame()) is not None:
                async with asyncio.timeout(PATIENCE):
                    await self._send(frame)
        except TimeoutError:
            self.close(TOO_SLOW, "too slow")
        finally:
            self._sending = None

    def _next_frame(self) -> str | None:
        """Return the next frame; the two kinds of subscriptions take turns."""
        self._changes_first = not self._changes_first
        changes = self._changes.take() if self._changes_first else None
        if changes is not None:
            return changes
        values = self._next()
        return self._changes.take() if values is None else push_frame(values)

    def _next(self) -> dict[str, Value] | None:
        if self._waiting:
            return self._waiting.popleft()
        latest, self._latest = self._latest, None
        return latest
