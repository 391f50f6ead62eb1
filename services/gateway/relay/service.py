"""Passes on what is said in the account `OUTSIDE` as far as it keeps to the rules.

Only the question comes through here. It is asked again with the reply subject that it had, so
the answer of JetStream or of a service goes its own way, subject and headers included.
"""

import asyncio
import logging
import time
from functools import partial

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from opentelemetry import metrics
from opentelemetry.trace import SpanKind

from libs.common.bus import Bus
from libs.common.bus.accounts import ACKS, RELAYED, REPORTS, TOLD, relayed
from libs.common.bus.publishing import publish_frame, write_frames
from libs.common.identity.users import TenantsOfUsers
from libs.common.limits.meter import Floods, MessageMeter, Meter
from libs.common.limits.tenants import count_limited
from libs.common.scheduling import FairQueue
from libs.common.telemetry.tracing import door, trace_header, trace_of
from services.gateway.relay.rules import (
    RefusedError,
    Sender,
    checked_body,
    checked_reply,
    kept_headers,
    sender_of,
)

QUESTIONS = 200
"""Per second, of an application or an integration: requests for events count as one each."""
ACKNOWLEDGEMENTS = 20_000
"""Per second, of an application."""
FLOOD = 5.0
"""Seconds' worth beyond its limit for which a sender is told of each refusal; then it is shut out,
and what still comes is dropped: an answer to each would cost more than it does."""


class RelayQuota:
    """Counts what each sender says, in this process."""

    def __init__(self, messages: MessageMeter, tenants: TenantsOfUsers, floods: Floods) -> None:
        self._messages = messages
        self._others = Meter()
        self._refused = Meter()
        self._tenants = tenants
        self._floods = floods
        self._dropped = 0
        metrics.get_meter("thingway").create_observable_counter(
            "thingway_relay_dropped",
            [lambda _: [metrics.Observation(self._dropped)]],
            description="Messages on plain NATS of who was shut out",
        )

    def tenant_of(self, sender: Sender) -> str:
        """Return the tenant of a sender, empty while it is not known."""
        return self._tenants.of(sender.user)

    def drops(self, subject: bytes) -> bool:
        """Tell whether who speaks on a subject is shut out; `gateway-bus` drops what it says."""
        drops = bool(self._floods) and self._floods.shuts_out(sender_of(subject.decode()).user)
        self._dropped += drops
        return drops

    def take(self, pattern: str, sender: Sender, size: int) -> None:
        """Let one message of `size` bytes pass; raise `RefusedError` when it is too much."""
        now = time.monotonic()
        tenant = self.tenant_of(sender)
        if pattern == REPORTS:
            excess = self._messages.take(tenant, sender.user, 1, size, now)
            if excess is None:
                return
            limit, reason = excess.limit, excess.reason
        else:
            rate = ACKNOWLEDGEMENTS if pattern == ACKS else QUESTIONS
            key = (pattern == ACKS, sender.user)
            if not self._others.lacking(key, 1, rate, now):
                self._others.take(key, 1)
                return
            limit, reason = "eachMessages", f"more than {rate} requests per second"
        count_limited(limit, tenant)
        if self._refused.lacking(sender.user, 1, QUESTIONS, now, FLOOD):
            self._floods.end(sender.user)
            raise RefusedError(reason, 429, answered=False)
        self._refused.take(sender.user, 1)
        raise RefusedError(reason, 429)


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
        self._queue: FairQueue[tuple[str, Sender, Msg]] = FairQueue(
            "relay", items=LANE_MESSAGES, size=LANE_BYTES
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
        sender = sender_of(message.subject)
        lane = self._quota.tenant_of(sender) or sender.user
        if self._queue.waiting(sender.user):  # of before its tenant was known: keep the order
            lane = sender.user
        if self._queue.size < MOST_BYTES or self._queue.waiting(lane) < FEW:
            size = len(message.data) + COST
            self._idle.clear()
            self._queue.put(lane, (pattern, sender, message), size=size)
        else:
            self._queue.note_overflow(lane)

    def _frame(self, pattern: str, sender: Sender, message: Msg) -> bytes:
        """Return the message as it is passed on, or its refusal, which may be empty."""
        reply = ""
        try:
            reply = checked_reply(sender, message.reply)
            self._quota.take(pattern, sender, len(message.data))
            if pattern not in TRACED:
                return _passed_on(pattern, sender, message)
            with door(f"relay {pattern}", SpanKind.SERVER, trace_of(message.headers)):
                return _passed_on(pattern, sender, message)
        except RefusedError as refused:
            _refused.add(1, {"subject": pattern, "code": refused.code})
            return _refusal(pattern, reply, refused) if reply and refused.answered else b""


def _passed_on(pattern: str, sender: Sender, message: Msg) -> bytes:
    body = checked_body(pattern, message.subject, message.data)
    headers = kept_headers(sender, message.headers) | trace_header()
    return publish_frame(relayed(message.subject), body, headers, message.reply)


def _refusal(pattern: str, reply: str, refused: RefusedError) -> bytes:
    """The answer that a JetStream client understands."""
    kind = "pub_ack_response" if pattern == REPORTS else "consumer_create_response"
    body = {
        "type": f"io.nats.jetstream.api.v1.{kind}",
        "error": {"code": refused.code, "err_code": 0, "description": refused.reason},
    }
    return publish_frame(reply, msgspec.json.encode(body), {})
