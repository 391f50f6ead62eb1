"""Passes on what is said in the account `OUTSIDE` as far as it keeps to the rules.

Only the question comes through here. It is asked again with the reply subject that it had, so
the answer of JetStream or of a service goes its own way, subject and headers included.
"""

import asyncio
import logging
from functools import partial

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from opentelemetry import metrics
from opentelemetry.trace import SpanKind

from libs.common.bus import Bus
from libs.common.bus.accounts import RELAYED, REPORTS, TOLD, relayed
from libs.common.bus.publishing import publish_frame, write_frames
from libs.common.scheduling import FairQueue, Overflow
from libs.common.telemetry.tracing import door, trace_header, trace_of
from services.gateway.relay.quota import RelayQuota
from services.gateway.relay.rules import (
    RefusedError,
    Speaker,
    checked_body,
    checked_reply,
    kept_headers,
    speaker_of,
)

log = logging.getLogger(__name__)

QUEUE = "relay"
"""Replicas share what is said."""
TRACED = frozenset((REPORTS, *TOLD))
"""Where traces begin: what is said leads to something."""
READ_MESSAGES, READ_BYTES = 10_000, 8 * 1024**2
"""Bounds of what a subscription has read and the lanes have not; more is not acknowledged."""
LANE_MESSAGES, LANE_BYTES = 50_000, 32 * 1024**2
"""Bounds of what waits for a tenant; the newest messages beyond them are not acknowledged."""
MOST_BYTES, FEW = 128 * 1024**2, 100
"""While so many bytes wait for all tenants, a tenant has at most so few messages."""
COST = 512
"""Bytes of memory that a message takes beside its payload."""
BATCH_MESSAGES, BATCH_BYTES = 200, 1024**2
"""Bounds of what is passed on in one write."""


_refused = metrics.get_meter("thingway").create_counter(
    "thingway_relay_refused",
    description="Messages on plain NATS that kept to no rule and were not passed on",
)


class Relay:
    """The subscriptions in `OUTSIDE`; `bus` is the connection there."""

    def __init__(self, bus: Bus, quota: RelayQuota) -> None:
        self._bus = bus
        self._quota = quota
        self._subscriptions: list[Subscription] = []
        self._queue: FairQueue[tuple[str, Speaker, Msg]] = FairQueue(
            "relay", items=LANE_MESSAGES, size=LANE_BYTES, overflow=Overflow.DROP_NEWEST
        )
        self._idle = asyncio.Event()
        """Everything was passed on."""
        self._idle.set()

    async def start(self) -> None:
        """Begin to take messages."""
        for pattern in RELAYED:
            self._subscriptions.append(
                await self._bus.client.subscribe(
                    pattern,
                    queue=QUEUE,
                    cb=partial(self._take, pattern),
                    pending_msgs_limit=READ_MESSAGES,
                    pending_bytes_limit=READ_BYTES,
                )
            )

    async def stop(self) -> None:
        """Take nothing more, and wait until everything was passed on."""
        for subscription in self._subscriptions:
            if self._bus.connected:
                await subscription.drain()  # type: ignore[no-untyped-call]
        await self._idle.wait()

    async def run(self) -> None:
        """Pass on for ever, in turns of tenants."""
        while True:
            batch = await self._queue.take(BATCH_MESSAGES, BATCH_BYTES)
            frames = [self._frame(*message) for _, message in batch]
            try:
                await write_frames(self._bus.client, frames)
            except (NatsError, OSError) as error:  # what is lost was not acknowledged
                log.warning("relay: not passed on: %r", error)
            if not self._queue:
                self._idle.set()

    async def _take(self, pattern: str, message: Msg) -> None:
        speaker = speaker_of(message.subject)
        lane = self._quota.tenant_of(speaker) or speaker.user
        if self._queue.waiting(speaker.user):  # of before its tenant was known: keep the order
            lane = speaker.user
        if self._queue.size < MOST_BYTES or self._queue.waiting(lane) < FEW:
            size = len(message.data) + COST
            self._idle.clear()
            self._queue.put(lane, (pattern, speaker, message), size=size)
        else:
            self._queue.note_overflow(lane)

    def _frame(self, pattern: str, speaker: Speaker, message: Msg) -> bytes:
        """Return the message as it is passed on, or its refusal, which may be empty."""
        reply = ""
        try:
            reply = checked_reply(speaker, message.reply)
            self._quota.take(pattern, speaker, len(message.data))
            if pattern not in TRACED:
                return _passed_on(pattern, speaker, message)
            with door(f"relay {pattern}", SpanKind.SERVER, trace_of(message.headers)):
                return _passed_on(pattern, speaker, message)
        except RefusedError as refused:
            _refused.add(1, {"subject": pattern, "code": refused.code})
            return _refusal(pattern, reply, refused) if reply and refused.answered else b""


def _passed_on(pattern: str, speaker: Speaker, message: Msg) -> bytes:
    body = checked_body(pattern, message.subject, message.data)
    headers = kept_headers(speaker, message.headers) | trace_header()
    return publish_frame(relayed(message.subject), body, headers, message.reply)


def _refusal(pattern: str, reply: str, refused: RefusedError) -> bytes:
    """The answer that a JetStream client understands."""
    kind = "pub_ack_response" if pattern == REPORTS else "consumer_create_response"
    body = {
        "type": f"io.nats.jetstream.api.v1.{kind}",
        "error": {"code": refused.code, "err_code": 0, "description": refused.reason},
    }
    return publish_frame(reply, msgspec.json.encode(body), {})
