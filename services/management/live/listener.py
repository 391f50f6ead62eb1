"""A page that hears over MQTT: what it is told, and what waits while it does not keep up."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import islice

import msgspec

from libs.common.contracts.live import live_topic, live_user
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from services.management.live.packets import publish
from services.management.live.queued import QueuedBytes
from services.management.live.subscriber import PATIENCE, TOO_SLOW, Listener, SendNext

MOST_WAITING = 100_000
"""Ids that wait for a page which does not keep up; with more it is closed."""
ID_BYTES = 64
"""What an id that waits counts for its tenant."""

MOST_IDS = 1000
"""Ids of one message."""

_encoder = msgspec.json.Encoder()


def payloads(ids: Collection[int]) -> list[bytes]:
    """The messages that tell of `ids`."""
    rest, found = iter(ids), []
    while some := list(map(str, islice(rest, MOST_IDS))):
        found.append(_encoder.encode({"event_type": "EXCHANGE", "payload": {"entity_ids": some}}))
    return found


class MqttListener(Listener):
    """One connection. While the page does not keep up, ids gather: each waits once."""

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
        self.topic = live_topic(live_user(principal.user_id))
        self._send_next = send_next
        self._queued = queued
        self._messages: deque[bytes] = deque()
        self._waiting: set[int] = set()
        self._sending: asyncio.Task[None] | None = None

    def push(self, ids: Collection[int], messages: Sequence[bytes]) -> None:
        """Tell of ids; `messages` are the payloads that do."""
        if self._closed or not ids:
            return
        if self._sending is None:
            self._messages.extend(messages)
            self._sending = asyncio.ensure_future(self._drain())
            return
        before = len(self._waiting)
        self._waiting.update(ids)
        self._queued.size += (len(self._waiting) - before) * ID_BYTES
        if len(self._waiting) > (MOST_IDS if self._queued.full else MOST_WAITING):
            self._queued.note_overflow()
            self.close(TOO_SLOW, "too slow")

    def stop(self) -> None:
        """Send no more."""
        self._closed = True
        self._take_waiting()
        if self._sending is not None:
            self._sending.cancel()

    async def _drain(self) -> None:
        try:
            while self._messages or self._waiting:
                async with asyncio.timeout(PATIENCE):
                    await self._send_next(self.principal.tenant, self._next)
        except TimeoutError:
            self.close(TOO_SLOW, "too slow")
        finally:
            self._sending = None

    def _next(self) -> bytes:
        if not self._messages:
            self._messages.extend(payloads(self._take_waiting()))
        return publish(self.topic, self._messages.popleft())

    def _take_waiting(self) -> set[int]:
        ids, self._waiting = self._waiting, set()
        self._queued.size -= len(ids) * ID_BYTES
        return ids
