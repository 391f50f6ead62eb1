"""The relay of permitted messages from the account `OUTSIDE`.

Only requests are relayed. A request is repeated with its reply subject, so that JetStream or a
service answers directly.
"""

import asyncio
import logging
import time
from functools import partial

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.micro.request import ERROR_CODE_HEADER, ERROR_HEADER
from opentelemetry import metrics
from opentelemetry.trace import SpanKind

from libs.common.bus import Bus
from libs.common.bus.accounts import (
    ACK_SUBJECTS,
    INTEGRATION_SUBJECTS,
    PULL_SUBJECT,
    RELAYED_SUBJECTS,
    UPLINK_SUBJECTS,
    relay_subject,
)
from libs.common.bus.publishing import publish_frame, write_frames
from libs.common.contracts.integrations import Tenant
from libs.common.decoding import JSON_ERRORS
from libs.common.identity.users import UserTenants
from libs.common.limits.meter import FloodGuard, MessageMeter, Meter
from libs.common.limits.tenants import count_rejection
from libs.common.scheduling import FairQueue
from libs.common.telemetry.tracing import begin_trace, read_trace, trace_header
from services.gateway.relay.rules import (
    MessageSender,
    RejectedError,
    build_relayed_headers,
    limit_body,
    parse_sender,
    require_own_reply_subject,
)

MAX_REQUESTS_PER_SECOND = 200
"""Requests per second of an application, or of an integration for one tenant, including requests
for events."""
MAX_INTEGRATION_REQUESTS_PER_SECOND = 1000
"""Requests per second of an integration for all tenants."""
MAX_ACKNOWLEDGEMENTS_PER_SECOND = 20_000
"""Acknowledgements per second of an application."""
MAX_ANSWERED_EXCESS_SECONDS = 5.0
"""A sender gets an error answer to each message above a limit, for at most as many messages as its
rate of requests permits in this number of seconds. Then the sender is disconnected, and its other
messages are dropped, because answering would cost more than relaying."""


class _IntegrationRequest(msgspec.Struct):
    tenant: Tenant = ""
    """Empty for requests that concern no tenant."""


_integration_request_decoder = msgspec.json.Decoder(_IntegrationRequest)


def _find_max_rates_by_bucket(
    pattern: str, sender: MessageSender, body: bytes
) -> dict[tuple[str, str | None], int]:
    """Return maximum requests per second by bucket.

    A bucket is the sender and a tenant, the sender and `ACK_SUBJECTS`, or the sender and None.
    """
    if pattern == ACK_SUBJECTS:
        return {(sender.user, ACK_SUBJECTS): MAX_ACKNOWLEDGEMENTS_PER_SECOND}
    if pattern not in INTEGRATION_SUBJECTS:
        return {(sender.user, None): MAX_REQUESTS_PER_SECOND}
    try:
        tenant = _integration_request_decoder.decode(body).tenant
    except JSON_ERRORS:
        tenant = ""  # the called service rejects the request
    return {
        (sender.user, None): MAX_INTEGRATION_REQUESTS_PER_SECOND,
        (sender.user, tenant): MAX_REQUESTS_PER_SECOND,
    }


class RelayQuota:
    """Limits the messages of each sender in this process."""

    def __init__(self, messages: MessageMeter, tenants: UserTenants, floods: FloodGuard) -> None:
        self._messages = messages
        self._others = Meter()
        self._rejections = Meter()
        self._tenants = tenants
        self._floods = floods
        self._dropped = 0
        metrics.get_meter("thingway").create_observable_counter(
            "thingway_relay_dropped",
            [lambda _: [metrics.Observation(self._dropped)]],
            description="Dropped messages of disconnected senders on plain NATS",
        )

    def get_tenant(self, sender: MessageSender) -> str:
        """Return the tenant of a sender; empty while it is unknown."""
        return self._tenants.get(sender.user)

    def count_drop_if_blocked(self, subject: bytes) -> bool:
        """Return whether to drop a message, because its sender was disconnected; count drops."""
        drops = bool(self._floods) and self._floods.is_blocked(parse_sender(subject.decode()).user)
        self._dropped += drops
        return drops

    def count_or_reject_message(self, pattern: str, sender: MessageSender, body: bytes) -> None:
        """Count a message; raise `RejectedError` above a limit.

        A sender with too many rejections is also disconnected, and gets no error answer.
        """
        now = time.monotonic()
        tenant = self.get_tenant(sender)
        if pattern == UPLINK_SUBJECTS:
            excess = self._messages.count(tenant, sender.user, 1, len(body), now)
            if excess is None:
                return
            limit, reason = excess.limit, excess.reason
        else:
            rates = _find_max_rates_by_bucket(pattern, sender, body)
            exceeded = [
                rate for key, rate in rates.items() if self._others.seconds_until(key, 1, rate, now)
            ]
            if not exceeded:
                for key in rates:
                    self._others.consume(key, 1)
                return
            limit, reason = "eachMessages", f"more than {exceeded[0]} requests per second"
        count_rejection(limit, tenant)
        answers = (
            MAX_INTEGRATION_REQUESTS_PER_SECOND
            if pattern in INTEGRATION_SUBJECTS
            else MAX_REQUESTS_PER_SECOND
        )
        if self._rejections.seconds_until(
            sender.user, 1, answers, now, MAX_ANSWERED_EXCESS_SECONDS
        ):
            self._floods.block(sender.user)
            raise RejectedError(reason, 429, answered=False)
        self._rejections.consume(sender.user, 1)
        raise RejectedError(reason, 429)


log = logging.getLogger(__name__)

QUEUE_GROUP = "relay"
"""The queue group of all replicas."""
TRACED_SUBJECTS = frozenset((UPLINK_SUBJECTS, *INTEGRATION_SUBJECTS))
"""Subjects whose messages begin a trace."""
READ_MESSAGES, READ_BYTES = 10_000, 8 * 1024**2
"""Maximum number and bytes of messages that a subscription has read, but not queued. More are
dropped, and hence not acknowledged."""
LANE_MESSAGES, LANE_BYTES = 50_000, 32 * 1024**2
"""Maximum number and bytes of queued messages of a tenant. More are dropped, and hence not
acknowledged."""
MAX_BYTES, GUARANTEED_MESSAGES = 128 * 1024**2, 100
"""While `MAX_BYTES` are queued for all tenants, a tenant may queue only `GUARANTEED_MESSAGES`."""
MESSAGE_OVERHEAD_BYTES = 512
"""Bytes of memory per message in addition to its payload."""
BATCH_MESSAGES, BATCH_BYTES = 200, 1024**2
"""Maximum number and bytes of messages that are relayed in one write."""


_rejection_counter = metrics.get_meter("thingway").create_counter(
    "thingway_relay_refused",
    description="Messages on plain NATS that were rejected and not relayed",
)


class MessageRelay:
    """Relays messages from the account `OUTSIDE`; `bus` is the connection in this account."""

    def __init__(self, bus: Bus, quota: RelayQuota) -> None:
        self._bus = bus
        self._quota = quota
        self._subscriptions: list[Subscription] = []
        self._queue: FairQueue[tuple[str, MessageSender, Msg]] = FairQueue(
            "relay", items=LANE_MESSAGES, size=LANE_BYTES
        )
        self._idle = asyncio.Event()
        """Set while no message is queued."""
        self._idle.set()

    async def start(self) -> None:
        """Subscribe to the relayed subjects."""
        for pattern in RELAYED_SUBJECTS:
            self._subscriptions.append(
                await self._bus.client.subscribe(
                    pattern,
                    queue=QUEUE_GROUP,
                    cb=partial(self._enqueue, pattern),
                    pending_msgs_limit=READ_MESSAGES,
                    pending_bytes_limit=READ_BYTES,
                )
            )

    async def stop(self) -> None:
        """Unsubscribe, and wait until all queued messages are relayed."""
        for subscription in self._subscriptions:
            if self._bus.is_connected:
                await subscription.drain()  # type: ignore[no-untyped-call]
        await self._idle.wait()

    async def relay_forever(self) -> None:
        """Relay messages for ever, tenants in turn."""
        while True:
            batch = await self._queue.pop_batch(BATCH_MESSAGES, BATCH_BYTES)
            frames = [self._build_relay_or_error_frame(*message) for _, message in batch]
            try:
                await write_frames(self._bus.client, frames)
            except (NatsError, OSError) as error:  # lost messages were not acknowledged
                log.warning("relay: messages could not be relayed: %r", error)
            if not self._queue:
                self._idle.set()

    async def _enqueue(self, pattern: str, message: Msg) -> None:
        sender = parse_sender(message.subject)
        lane = self._quota.get_tenant(sender) or sender.user
        if self._queue.waiting(sender.user):  # queued before its tenant was known: keep the order
            lane = sender.user
        if self._queue.size < MAX_BYTES or self._queue.waiting(lane) < GUARANTEED_MESSAGES:
            size = len(message.data) + MESSAGE_OVERHEAD_BYTES
            self._idle.clear()
            self._queue.put(lane, (pattern, sender, message), size=size)
        else:
            self._queue.count_overflow(lane)

    def _build_relay_or_error_frame(
        self, pattern: str, sender: MessageSender, message: Msg
    ) -> bytes:
        """Return the frame of the relayed message or of an error answer; it may be empty."""
        reply = ""
        try:
            reply = require_own_reply_subject(sender, message.reply)
            self._quota.count_or_reject_message(pattern, sender, message.data)
            if pattern not in TRACED_SUBJECTS:
                return _build_relay_frame(pattern, sender, message)
            with begin_trace(f"relay {pattern}", SpanKind.SERVER, read_trace(message.headers)):
                return _build_relay_frame(pattern, sender, message)
        except RejectedError as rejected:
            _rejection_counter.add(1, {"subject": pattern, "code": rejected.code})
            return (
                _build_error_frame(pattern, reply, rejected) if reply and rejected.answered else b""
            )


def _build_relay_frame(pattern: str, sender: MessageSender, message: Msg) -> bytes:
    body = limit_body(pattern, message.subject, message.data)
    headers = build_relayed_headers(sender, message.headers) | trace_header()
    return publish_frame(relay_subject(message.subject), body, headers, message.reply)


def _build_error_frame(pattern: str, reply: str, rejected: RejectedError) -> bytes:
    """Return an error answer, as the service or JetStream would send it."""
    if pattern in INTEGRATION_SUBJECTS:
        headers = {ERROR_CODE_HEADER: str(rejected.code), ERROR_HEADER: rejected.reason}
        return publish_frame(reply, b"", headers)
    if pattern == PULL_SUBJECT:  # a client would take an answer with a body for an event
        headers = {"Status": str(rejected.code), "Description": rejected.reason}
        return publish_frame(reply, b"", headers)
    kind = "pub_ack_response" if pattern == UPLINK_SUBJECTS else "consumer_create_response"
    body = {
        "type": f"io.nats.jetstream.api.v1.{kind}",
        "error": {"code": rejected.code, "err_code": 0, "description": rejected.reason},
    }
    return publish_frame(reply, msgspec.json.encode(body), {})
