"""Batches from a durable pull consumer, under a supervisor.

nats-py's pull subscriptions may stay silent after a server restart or when their
consumer is gone, so the supervisor makes subscription and consumer anew whenever a
fetch fails, the connection was lost, or messages wait on the server and none arrive.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError

from libs.common.bus.connection import Bus

log = logging.getLogger(__name__)

Uplink: TypeAlias = Msg
"""A message of a batch, as nats-py gives it."""

IDLE = 2.0
"""Seconds a fetch waits for a first message."""
STALLED = 5
"""Empty fetches in a row after which the consumer is looked at."""
BACKOFF = 0.5
"""Seconds between attempts while the bus does not answer."""


@dataclass(frozen=True, kw_only=True)
class BatchConsumer:
    """Feeds `handle` with batches of a stream, `concurrency` of them at a time.

    `handle` acknowledges what it has dealt with. When it raises, the batch comes again
    after `ack_wait` seconds or sooner.
    """

    bus: Bus
    stream: str
    durable: str
    handle: Callable[[list[Msg]], Awaitable[None]]
    filter_subject: str | None = None
    batch: int = 1000
    concurrency: int = 2
    ack_wait: float = 30.0

    async def run(self) -> None:
        """Consume until cancelled; batches in hand are finished first."""
        slots = asyncio.Semaphore(self.concurrency)
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                try:
                    await self._consume(slots, running)
                except (NatsError, APIError, OSError, TimeoutError) as error:
                    log.warning("consumer %s: %r; starting it again", self.durable, error)
                await asyncio.sleep(BACKOFF)
        finally:
            if running:
                await asyncio.wait(running, timeout=self.ack_wait)

    async def _consume(self, slots: asyncio.Semaphore, running: set["asyncio.Task[None]"]) -> None:
        subscription = await self._subscribe()
        empty = 0
        try:
            while True:
                await slots.acquire()
                try:
                    messages = await self._fetch(subscription)
                except BaseException:
                    slots.release()
                    raise
                if not messages:
                    slots.release()
                    empty += 1
                    if empty >= STALLED and await self._stalled(subscription):
                        return
                    continue
                empty = 0
                task = asyncio.ensure_future(self._handle(messages, slots))
                running.add(task)
                task.add_done_callback(running.discard)
        finally:
            if self.bus.connected:
                await subscription.unsubscribe()

    async def _fetch(self, subscription: JetStreamContext.PullSubscription) -> list[Msg]:
        try:
            return await subscription.fetch(self.batch, timeout=IDLE)
        except TimeoutError:
            if not self.bus.connected:
                raise
            return []

    async def _stalled(self, subscription: JetStreamContext.PullSubscription) -> bool:
        info = await subscription.consumer_info()
        return bool(info.num_pending)

    async def _handle(self, messages: list[Msg], slots: asyncio.Semaphore) -> None:
        try:
            await self.handle(messages)
        except Exception:
            log.exception("consumer %s: a batch of %d failed", self.durable, len(messages))
            await asyncio.sleep(BACKOFF)
            await self._hand_back(messages)
        finally:
            slots.release()

    async def _hand_back(self, messages: list[Msg]) -> None:
        for message in messages:
            try:
                await self.bus.client.publish(message.reply, b"-NAK")
            except NatsError as error:
                log.warning("consumer %s: could not hand back: %r", self.durable, error)
                return

    async def _subscribe(self) -> JetStreamContext.PullSubscription:
        config = ConsumerConfig(
            durable_name=self.durable,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self.ack_wait,
            max_ack_pending=self.batch * (self.concurrency + 2) * 8,
            filter_subject=self.filter_subject,
            max_waiting=512,
        )
        await self.bus.js.add_consumer(self.stream, config)
        return await self.bus.js.pull_subscribe_bind(
            durable=self.durable,
            stream=self.stream,
            pending_msgs_limit=-1,
            pending_bytes_limit=-1,
        )
