"""A page that hears over MQTT: what it is told, and what waits while it does not keep up."""

from collections import deque
from collections.abc import Collection, Sequence
from itertools import islice

import msgspec

from libs.common.contracts.live import live_topic, live_user
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from services.management.live.closing import Closer
from services.management.live.packets import publish
from services.management.live.subscriber import TOO_SLOW, Listener

MOST_WAITING = 100_000
"""Ids that wait for a page which does not keep up; with more it is closed."""
ID_BYTES = 8
"""Bytes that an id counts among what waits for all sockets of a tenant."""

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
        self, principal: Principal, credential: str, grants: Grants, closer: Closer
    ) -> None:
        super().__init__(principal, credential, grants, closer)
        self.topic = live_topic(live_user(principal.user_id))
        self._messages: deque[bytes] = deque()
        self._waiting: set[int] = set()

    def push(self, ids: Collection[int], messages: Sequence[bytes]) -> None:
        """Tell of ids; `messages` are the payloads that do."""
        if self._closed or not ids:
            return
        if self._sending is None:
            self._messages.extend(messages)
        else:
            before = len(self._waiting)
            self._waiting.update(ids)
            self.queued.add((len(self._waiting) - before) * ID_BYTES)
            if len(self._waiting) > (MOST_IDS if self.queued.full else MOST_WAITING):
                self._note_overflow(len(self._waiting))
                self.close(TOO_SLOW, "too slow")
        self._send()

    def _waits(self) -> bool:
        return bool(self._messages or self._waiting)

    def _next(self) -> bytes:
        if not self._messages:
            ids, self._waiting = self._waiting, set()
            self.queued.add(-len(ids) * ID_BYTES)
            self._messages.extend(payloads(ids))
        return publish(self.topic, self._messages.popleft())
