"""Publishing to JetStream: many messages in one write, each acknowledged separately.

nats-py writes one message at a time: to acknowledge a received message costs 2 µs, to publish one
5 to 23 µs. Joined into one buffer, they cost 0.2 and 1 µs (measured, nats-py 2.16). The format is
defined by the client protocol (`PUB`, `HPUB`): docs.nats.io/reference/reference-protocols.
A publish that JetStream confirms costs 58 µs of the client and 17 µs of the server, because nats-py
sends a request for each. With 64 frames in one buffer and one shared inbox, a publish with its
confirmation costs 7 µs of the client and 8 µs of the server (nats-py 2.16).
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from math import inf
from typing import Protocol, TypeVar

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import ConnectionClosedError, OutboundBufferLimitError

from libs.common.errors import TooLarge, TooManyRequests, Unavailable

HEADER_PREAMBLE = b"NATS/1.0\r\n"


def ack_frame(message: Msg) -> bytes:
    """Return the frame that acknowledges a JetStream message."""
    return b"PUB %s 0\r\n\r\n" % message.reply.encode()


def publish_frame(
    subject: str,
    payload: bytes,
    headers: Mapping[str, str],
    reply: str = "",
    maximum: float = inf,
) -> bytes:
    """Return the frame that publishes a message; raise `TooLarge` above `maximum` bytes."""
    head = _encode_headers(headers)
    size = len(head) + len(payload)
    check_size(subject, size, maximum)
    start = b"%s %s" % (subject.encode(), reply.encode())
    if headers:
        return b"HPUB %s %d %d\r\n%s%s\r\n" % (start, len(head), size, head, payload)
    return b"PUB %s %d\r\n%s\r\n" % (start, size, payload)


def message_size(payload: bytes, headers: Mapping[str, str] | None) -> int:
    """Return the bytes of a message as nats-server counts them: payload and headers."""
    return len(_encode_headers(headers)) + len(payload)


def check_size(subject: str, size: int, maximum: float) -> None:
    """Raise `TooLarge` for a message of more than `maximum` bytes."""
    if size > maximum:
        raise TooLarge(
            f"a message for {subject} has {size} bytes, the bus accepts at most {maximum}"
        )


def _encode_headers(headers: Mapping[str, str] | None) -> bytes:
    if not headers:
        return b""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return HEADER_PREAMBLE + lines.encode() + b"\r\n"


async def write_frames(client: Client, frames: Iterable[bytes]) -> None:
    """Write frames to the connection as one buffer.

    nats-py has no public method for this; its own `publish` uses `_send_command`.
    """
    await client._send_command(b"".join(frames))  # noqa: SLF001
    await client._flush_pending()  # noqa: SLF001


async def acknowledge(client: Client, messages: Iterable[Msg]) -> None:
    """Acknowledge JetStream messages, all in one write."""
    await write_frames(client, map(ack_frame, messages))


async def extend_ack_timeouts(client: Client, messages: Iterable[Msg]) -> None:
    """Restart the acknowledgement timeout of JetStream messages, all in one write."""
    await write_frames(
        client, (b"PUB %s 4\r\n+WPI\r\n" % message.reply.encode() for message in messages)
    )


async def redeliver_later(client: Client, replies: Mapping[str, float]) -> None:
    """Send a NAK for each message; `replies` has the seconds until redelivery by reply subject."""
    await write_frames(client, (_nak_frame(*item) for item in replies.items()))


def _nak_frame(reply: str, seconds: float) -> bytes:
    payload = b'-NAK {"delay": %d}' % int(seconds * 1e9)
    return b"PUB %s %d\r\n%s\r\n" % (reply.encode(), len(payload), payload)


PUBLISH_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for JetStream's acknowledgement."""
MAX_UNACKNOWLEDGED = 512
"""Maximum number of unacknowledged messages of one call."""
MESSAGE_TOO_LARGE_CODE = 10054
"""JetStream's error code for a message above the limit of a stream."""
DUPLICATE_IN_BATCH_CODE = 10201
"""JetStream's error code for a batch with a message id that the stream already has."""
FULL_SUBJECT_ERROR = "messages per subject exceeded"
"""JetStream's error text for a subject with too many messages; its code (10077) is ambiguous."""
MAX_WRITE_BYTES = 16 * 1024**2
"""Maximum bytes of one write; a complete HTTP request fits."""
MAX_PENDING_BYTES = 64 * 1024**2
"""Maximum bytes that a connection buffers, for example while it is lost."""


class DuplicateInBatch(Unavailable):
    """A batch was rejected because the stream already has one of its messages."""


class OutgoingMessage(msgspec.Struct, frozen=True):
    """A message to publish. A stream drops duplicates of `msg_id` within its duplicate window."""

    subject: str
    payload: bytes
    msg_id: str | None = None
    headers: dict[str, str] = {}

    def all_headers(self) -> dict[str, str]:
        """Return the headers including the message id."""
        if self.msg_id is None:
            return self.headers
        return {**self.headers, "Nats-Msg-Id": self.msg_id}


class _Sized(Protocol):
    @property
    def payload(self) -> bytes: ...


M = TypeVar("M", bound=_Sized)


def split_messages(
    messages: Sequence[M], maximum: int, max_bytes: int = MAX_WRITE_BYTES
) -> Iterator[Sequence[M]]:
    """Yield parts of at most `maximum` messages and `max_bytes` bytes, in order.

    A single larger message forms a part.
    """
    first = size = 0
    for number, message in enumerate(messages):
        size += len(message.payload)
        if number - first >= maximum or (size > max_bytes and number > first):
            yield messages[first:number]
            first, size = number, len(message.payload)
    if messages:
        yield messages[first:]


class _PendingAcks:
    """A group of messages that wait for their acknowledgements."""

    def __init__(self, messages: int) -> None:
        self._left = messages
        self.all_acknowledged = asyncio.get_running_loop().create_future()

    def receive_ack(self, answer: bytes) -> None:
        """Process an acknowledgement, or a rejection, which ends the wait."""
        self._left -= 1
        if self.all_acknowledged.done():
            return
        try:
            check_ack(answer)
        except (Unavailable, TooManyRequests, TooLarge) as error:
            self.all_acknowledged.set_exception(error)
        else:
            if not self._left:
                self.all_acknowledged.set_result(None)


class Publisher:
    """Publishes to JetStream on one connection."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = ""
        self._numbers = count()
        self._pending_acks: dict[str, _PendingAcks] = {}
        """Groups by the last token of the reply subject of their acknowledgements."""

    async def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """Publish up to `MAX_UNACKNOWLEDGED` messages; return when every message is acknowledged.

        Raises the error of the first rejected message (see `check_ack`), `NatsError` or
        `TimeoutError`. Raises `TooLarge`, and publishes nothing, for a message above the server's
        limit.
        """
        if self._client.is_closed or self._client.is_draining:
            raise ConnectionClosedError
        if self._client.pending_data_size > MAX_PENDING_BYTES:
            raise OutboundBufferLimitError
        if not self._inbox:
            await self._listen()
        pending_acks = _PendingAcks(len(messages))
        names = [str(next(self._numbers)) for _ in messages]
        frames = [self._build_frame(*item) for item in zip(messages, names, strict=True)]
        self._pending_acks.update(dict.fromkeys(names, pending_acks))
        try:
            await write_frames(self._client, frames)
            async with asyncio.timeout(PUBLISH_TIMEOUT_SECONDS):
                await pending_acks.all_acknowledged
        finally:
            for name in names:
                self._pending_acks.pop(name, None)

    async def _listen(self) -> None:
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(
            f"{self._inbox}.*", cb=self._receive_ack, pending_msgs_limit=-1, pending_bytes_limit=-1
        )

    def _build_frame(self, message: OutgoingMessage, name: str) -> bytes:
        reply = f"{self._inbox}.{name}"
        headers, maximum = message.all_headers(), self._client.max_payload
        return publish_frame(message.subject, message.payload, headers, reply, maximum)

    async def _receive_ack(self, message: Msg) -> None:
        pending_acks = self._pending_acks.get(message.subject.rpartition(".")[2])
        if pending_acks is not None:
            pending_acks.receive_ack(message.data)


class _Fault(msgspec.Struct):
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct):
    error: _Fault | None = None


_ack_decoder = msgspec.json.Decoder(_Ack)


def check_ack(data: bytes) -> None:
    """Raise the error that JetStream's answer to a publish contains, if any.

    `TooManyRequests` when the stream holds too many messages of this subject, `DuplicateInBatch`,
    `TooLarge`, else `Unavailable`.
    """
    no_stream = _Fault(description="no stream has this subject")
    fault = _ack_decoder.decode(data).error if data else no_stream
    if fault is None:
        return
    if fault.err_code == DUPLICATE_IN_BATCH_CODE:
        raise DuplicateInBatch(fault.description)
    if fault.err_code == MESSAGE_TOO_LARGE_CODE:
        raise TooLarge(f"the stream rejects a message of this size: {fault.description}")
    if FULL_SUBJECT_ERROR in fault.description:
        raise TooManyRequests("too many messages of this kind wait to be stored", retry_after=1.0)
    raise Unavailable(f"the bus does not accept messages: {fault.description}")
