"""Wakeups: messages after which the loops of a service query MongoDB for new work.

Loops query MongoDB rarely (`turns.IDLE_PERIOD_SECONDS`), and at once when their topic has changed.
Each process publishes how often it has changed each topic: after a change, and at least every
second. Receivers compare these numbers, so a lost message delays a loop only until the next one.
When a process is silent, it may have ended between a commit and its message, so all loops query
MongoDB.
"""

import asyncio
import logging
import time
from collections import defaultdict
from uuid import uuid4
from weakref import WeakSet

import msgspec
from nats.aio.msg import Msg

from libs.common.bus.connection import Bus
from libs.common.bus.subjects import wakeup_subject
from libs.common.errors import Unavailable
from libs.common.jobs import seconds_to_tick, wait_for_event

log = logging.getLogger(__name__)

BEAT_SECONDS, MIN_BEAT_SECONDS = 1.0, 0.2
"""Seconds between two messages of a process: while nothing changes, and the minimum."""
MAX_SILENCE_SECONDS = 2.5
"""Seconds without a message after which a process counts as silent."""


class ChangeCounts(msgspec.Struct):
    """How often a process has changed each topic."""

    process: str
    topics: dict[str, int]


class Wakeups:
    """Topics of a service, and the events of this process that wait for them."""

    def __init__(self, bus: Bus, service: str) -> None:
        self._bus = bus
        self._subject = wakeup_subject(service)
        self._counts = ChangeCounts(uuid4().hex, {})
        self._others: dict[str, dict[str, int]] = {}
        self._silent_at: dict[str, float] = {}
        """Monotonic time at which a process counts as silent."""
        self._events: dict[str, WeakSet[asyncio.Event]] = defaultdict(WeakSet)
        self._changed = asyncio.Event()

    def create_event(self, topic: str) -> asyncio.Event:
        """Return a new event, which is set when the topic changes or a process becomes silent.

        The caller must keep a reference to the event.
        """
        self._events[topic].add(event := asyncio.Event())
        return event

    def notify(self, topic: str) -> None:
        """Wake the loops of a topic; call it less than `turns.LINGER_SECONDS` before the commit."""
        self._counts.topics[topic] = self._counts.topics.get(topic, 0) + 1
        self._changed.set()
        self._wake(topic)

    async def run(self) -> None:
        """Publish the changes of this process and receive those of others, for ever."""
        self._silent_at[self._counts.process] = time.monotonic() + MAX_SILENCE_SECONDS
        await self._bus.client.subscribe(self._subject, cb=self._receive)
        await self.publish_forever()

    async def publish_forever(self) -> None:
        """Publish the changes of this process until cancelled."""
        while True:
            self._changed.clear()
            try:
                await self.publish_once()
            except Unavailable as error:
                log.info("wakeups: %s", error)
            self.wake_after_silence(time.monotonic())
            sent = time.monotonic()
            await wait_for_event(self._changed, seconds_to_tick(BEAT_SECONDS))
            await asyncio.sleep(sent + MIN_BEAT_SECONDS - time.monotonic())

    async def publish_once(self) -> None:
        """Publish the changes of this process once; raise `Unavailable`."""
        await self._bus.publish_core(self._subject, msgspec.json.encode(self._counts))

    async def _receive(self, message: Msg) -> None:
        self.process_counts(message.data)

    def process_counts(self, payload: bytes) -> None:
        """Wake the loops of topics that a process has changed since its last message."""
        changes = msgspec.json.decode(payload, type=ChangeCounts)
        self._silent_at[changes.process] = time.monotonic() + MAX_SILENCE_SECONDS
        if changes.process != self._counts.process:
            known_counts = self._others.get(changes.process, {})
            self._others[changes.process] = changes.topics
            for topic, number in changes.topics.items():
                if number != known_counts.get(topic):
                    self._wake(topic)

    def wake_after_silence(self, now: float) -> None:
        """Wake all loops when a process is silent at `now`; forget it, unless it is this one.

        This process receives its own messages, and is silent while it is disconnected.
        """
        for process in [name for name, at in self._silent_at.items() if at <= now]:
            self._others.pop(process, None)
            del self._silent_at[process]
            if process == self._counts.process:
                self._silent_at[process] = now + MAX_SILENCE_SECONDS
            for topic in self._events:
                self._wake(topic)

    def _wake(self, topic: str) -> None:
        for event in self._events.get(topic, ()):
            event.set()
