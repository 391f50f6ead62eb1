"""A page that hears over MQTT: what it is told, and what waits while it does not keep up."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import islice

import msgspec

from libs.common.contracts.live import live_topic, live_user
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from services.management.live.packets import publish
from services.management.live.subscriber import PATIENCE, TOO_SLOW, Listener

MOST_WAITING = 100_000
"""Ids that wait for a page which does not keep up; with more it is closed."""


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
    """One connection; `send` waits while the page does not keep up.

    While it does, ids gather: whatever happens meanwhile, each waits once.
    """

    def __init__(
        self,
        principal: Principal,
        credential: str,
        grants: Grants,
        send: Callable[[bytes], Awaitable[None]],
        close: Callable[[int, str], None],
    ) -> None:
        super().__init__(principal, credential, grants, close)
        self.topic = live_topic(live_user(principal.user_id))
        self._send = send
        self._waiting: set[int] = set()
        self._sending: asyncio.Task[None] | None = None

    def push(self, ids: Collection[int], messages: Sequence[bytes]) -> None:
        """Tell of ids; `messages` are the payloads that do."""
        if self._closed or not ids:
            return
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._drain(messages))
            return
        self._waiting.update(ids)
        if len(self._waiting) > MOST_WAITING:
            self.close(TOO_SLOW, "too slow")

    def stop(self) -> None:
        """Send no more."""
        self._closed = True
        if self._sending is not None:
            self._sending.cancel()

    async def _drain(self, messages: Sequence[bytes]) -> None:
        try:
            while messages:
                for message in messages:
                    async with asyncio.timeout(PATIENCE):
                        await self._send(publish(self.topic, message))
                ids, self._waiting = self._waiting, set()
                messages = payloads(ids)
        except TimeoutError:
            self.close(TOO_SLOW, "too slow")
        finally:
            self._sending = None
