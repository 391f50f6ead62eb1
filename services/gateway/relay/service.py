"""Passes on what is said in the account `OUTSIDE` as far as it keeps to the rules.

Only the question comes through here. It is asked again with the reply subject that it had, so
the answer of JetStream or of a service goes its own way, subject and headers included.
"""

import logging
from functools import partial

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from opentelemetry import metrics
from opentelemetry.trace import SpanKind

from libs.common.bus import Bus
from libs.common.bus.relayed import RELAYED, REPORTS, TOLD, relayed
from libs.common.bus.wire import publish_frame, write_frames
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
WAITING_MESSAGES = 50_000
WAITING_BYTES = 64 * 1024**2
"""What one subscription may have in hand; more is dropped here, and not acknowledged."""


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

    async def start(self) -> None:
        """Begin to pass on."""
        for pattern in RELAYED:
            self._subscriptions.append(
                await self._bus.client.subscribe(
                    pattern,
                    queue=QUEUE,
                    cb=partial(self._take, pattern),
                    pending_msgs_limit=WAITING_MESSAGES,
                    pending_bytes_limit=WAITING_BYTES,
                )
            )

    async def stop(self) -> None:
        """Take nothing more, and pass on what is in hand."""
        for subscription in self._subscriptions:
            if self._bus.connected:
                await subscription.drain()  # type: ignore[no-untyped-call]

    async def _take(self, pattern: str, message: Msg) -> None:
        speaker, reply = speaker_of(message.subject), ""
        try:
            reply = checked_reply(speaker, message.reply)
            self._quota.take(pattern, speaker, len(message.data))
            if pattern not in TRACED:
                await self._pass_on(pattern, speaker, message)
                return
            with door(f"relay {pattern}", SpanKind.SERVER, trace_of(message.headers)):
                await self._pass_on(pattern, speaker, message)
        except RefusedError as refused:
            _refused.add(1, {"subject": pattern, "code": refused.code})
            if reply and refused.answered:
                await self._write(_refusal(pattern, reply, refused))

    async def _pass_on(self, pattern: str, speaker: Speaker, message: Msg) -> None:
        body = checked_body(pattern, message.subject, message.data)
        headers = kept_headers(speaker, message.headers) | trace_header()
        await self._write(publish_frame(relayed(message.subject), body, headers, message.reply))

    async def _write(self, frame: bytes) -> None:
        """Write to the connection; what is lost with it was not acknowledged."""
        try:
            await write_frames(self._bus.client, [frame])
        except (NatsError, OSError) as error:
            log.warning("relay: not passed on: %r", error)


def _refusal(pattern: str, reply: str, refused: RefusedError) -> bytes:
    """The answer that a JetStream client understands."""
    kind = "pub_ack_response" if pattern == REPORTS else "consumer_create_response"
    body = {
        "type": f"io.nats.jetstream.api.v1.{kind}",
        "error": {"code": refused.code, "err_code": 0, "description": refused.reason},
    }
    return publish_frame(reply, msgspec.json.encode(body), {})
