"""Connections to the brokers of network servers, as an MQTT 3.1.1 client.

They use only permitted addresses. Messages are acknowledged when they are processed. The memory
that a broker can occupy is limited. Numbers in brackets are sections of the standard.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from libs.common.errors import InvalidInput
from libs.common.http.outgoing import connect_outgoing_socket
from libs.common.jobs import cancel_and_wait
from libs.common.mqtt import encode_packet
from services.management.networks.settings import Broker

STEP_TIMEOUT_SECONDS = 10.0
"""Maximum seconds for each step: connecting, the login, sending a packet, its answer."""
KEEP_ALIVE_SECONDS = 30
MAX_SILENCE_SECONDS = 1.5 * KEEP_ALIVE_SECONDS
"""Seconds without any packet, including answers to pings, after which the connection ends."""
CLOSE_TIMEOUT_SECONDS = 1.0
MAX_WAITING_MESSAGES = 20_000
"""Maximum waiting messages of a connection; brokers send fewer without an acknowledgement."""
MAX_WAITING_BYTES = 16 * 1024**2
MAX_MESSAGE_BYTES = 256 * 1024
MAX_TOPIC_BYTES = 0xFFFF
PACKETS_PER_TURN = 64
"""Packets that are processed before other tasks run."""
SUBACK_FAILURE = 0x80
"""The return code of a rejected subscription [3.9.3]."""

_CONNECT, _CONNACK, _PUBLISH, _PUBACK = 0x10, 0x20, 0x30, 0x40
_SUBSCRIBE, _SUBACK, _UNSUBSCRIBE, _UNSUBACK = 0x82, 0x90, 0xA2, 0xB0
_TYPE, _NEXT_TYPE = 0xF0, 0x10
"""The type of an answer is one more than the type of the answered packet."""
_PINGREQ, _PINGRESP, _DISCONNECT = b"\xc0\x00", 0xD0, b"\xe0\x00"
_ACKNOWLEDGEMENT_TYPES = (_PUBACK, _SUBACK, _UNSUBACK)
_USER, _PASSWORD = 0x80, 0x40
_LOGIN_ERROR_TEXTS = (
    "Unsupported protocol version",
    "Client identifier not valid",
    "Server unavailable",
    "Bad user name or password",
    "Not authorized",
)
"""Messages for the return codes 1 to 5 of CONNACK [3.2.2.3]."""


class BrokerError(Exception):
    """The connection ended, or the broker rejects a request."""


class LoginRejected(BrokerError):
    """The broker rejects the login; the message is its reason."""


class ReceivedMessage(NamedTuple):
    """A message; with QoS 0, it has no packet id."""

    topic: str
    payload: bytes
    packet_id: bytes = b""

    @property
    def max_memory_bytes(self) -> int:
        """Return the maximum bytes of memory of the message: four for each character."""
        return 4 * len(self.topic) + len(self.payload)


def check_topic_filter(text: str, field: str | None = None) -> None:
    """Raise `InvalidInput` unless a text is a topic filter [4.7]."""
    levels = text.split("/")
    misplaced = any(len(level) > 1 and {*"+#"} & {*level} for level in levels)
    if misplaced or "#" in levels[:-1] or not _is_topic_text(text):
        raise InvalidInput(f"{text} is not a topic filter", field=field)


def _is_topic_text(text: str) -> bool:
    return "\0" not in text and 0 < len(text.encode()) <= MAX_TOPIC_BYTES


class BrokerConnection:
    """An open connection, which receives, acknowledges and publishes messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: deque[ReceivedMessage] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._arrived = asyncio.Event()
        self._answers: dict[bytes, asyncio.Future[bytes]] = {}
        self._last_id = 0
        self._failure: Exception | None = None

    async def log_in(self, broker: Broker, client_id: str) -> None:
        """Send CONNECT for the session of `client_id`; raise `LoginRejected` or `BrokerError`."""
        flags, fields = 0, [client_id]
        if broker.username:
            flags, fields = _USER, [client_id, broker.username]
        if broker.username and broker.password:
            flags, fields = _USER | _PASSWORD, [*fields, broker.password]
        head = b"\x00\x04MQTT\x04" + bytes([flags]) + KEEP_ALIVE_SECONDS.to_bytes(2, "big")
        await self._send(encode_packet(_CONNECT, head + b"".join(map(_encode_text, fields))))
        first, body = await self._read_packet()
        if first != _CONNACK or len(body) != 2:  # noqa: PLR2004 - flags and code
            raise BrokerError("the broker does not support MQTT 3.1.1")
        if code := body[1]:
            is_known_code = code <= len(_LOGIN_ERROR_TEXTS)
            raise LoginRejected(_LOGIN_ERROR_TEXTS[code - 1] if is_known_code else f"code {code}")

    async def set_subscriptions(self, topics: Sequence[str], before: Iterable[str]) -> None:
        """Subscribe to `topics`, and unsubscribe from the other topics in `before`.

        Raises `BrokerError` for a topic that the broker rejects.
        """
        for topic in set(before) - set(topics):
            await self._request_with_packet_id(_UNSUBSCRIBE, b"", _encode_text(topic))
        for topic in topics:
            codes = await self._request_with_packet_id(
                _SUBSCRIBE, b"", _encode_text(topic) + b"\x01"
            )
            if not codes or codes[0] >= SUBACK_FAILURE:
                raise BrokerError(f"the broker rejects the subscription of {topic}")

    async def receive_batches(self, maximum: int) -> AsyncIterator[list[ReceivedMessage]]:
        """Yield up to `maximum` received messages at a time.

        When the connection has ended, raises the error that ended it.
        """
        while True:
            while not self._waiting:
                if self._failure is not None:
                    raise self._failure
                self._arrived.clear()
                await self._arrived.wait()
            batch = [self._waiting.popleft() for _ in range(min(maximum, len(self._waiting)))]
            self._waiting_bytes -= sum(message.max_memory_bytes for message in batch)
            yield batch
            if self._dropped and not self._waiting:
                raise BrokerError(f"{self._dropped} messages arrived faster than they are stored")

    async def acknowledge(self, messages: Sequence[ReceivedMessage]) -> None:
        """Acknowledge messages, so that the broker deletes them.

        After the connection ended, `receive_batches` raises its error once the waiting messages are
        processed.
        """
        packets = b"".join(
            encode_packet(_PUBACK, message.packet_id) for message in messages if message.packet_id
        )
        if self._failure is not None:
            self._writer.write(packets)  # the broker may still receive them
            return
        with contextlib.suppress(OSError):  # `_send` has ended the connection
            await self._send(packets)

    async def publish(self, topic: str, payload: bytes, qos: int) -> None:
        """Publish with QoS 0 or 1; raise `BrokerError`, `OSError` or `TimeoutError`.

        Raises `InvalidInput` unless the topic is valid, because a broker would disconnect [4.7].
        """
        if {*"+#"} & {*topic} or not _is_topic_text(topic):
            raise InvalidInput(f"{topic} is not a topic name")
        if qos:
            await self._request_with_packet_id(_PUBLISH | qos << 1, _encode_text(topic), payload)
        else:
            await self._send(encode_packet(_PUBLISH, _encode_text(topic) + payload))

    async def read_packets(self) -> None:
        """Receive packets until the connection ends; `receive_batches` raises the error."""
        handled = 0
        try:
            while True:
                async with asyncio.timeout(MAX_SILENCE_SECONDS):
                    first, body = await self._read_packet()
                if self._failure is not None:
                    return
                self._process_packet(first, body)
                handled += 1
                if handled % PACKETS_PER_TURN == 0:
                    await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - `batches` raises it
            self._fail(error)

    async def send_pings(self) -> None:
        """Send a ping every `KEEP_ALIVE_SECONDS` seconds."""
        with contextlib.suppress(Exception):  # `_send` has ended the connection
            while True:
                await asyncio.sleep(KEEP_ALIVE_SECONDS)
                await self._send(_PINGREQ)

    def close(self) -> None:
        """Disconnect, and close the socket soon in any case."""
        self._fail(BrokerError("the connection is closed"))
        self._writer.write(_DISCONNECT)
        self._writer.close()
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_SECONDS, self._writer.transport.abort)

    async def _read_packet(self) -> tuple[int, bytes]:
        """Return first byte and body of the next packet; raise `BrokerError` if it is too large."""
        try:
            first = (await self._reader.readexactly(1))[0]
            size = 0
            for shift in (0, 7, 14, 21):
                (digit,) = await self._reader.readexactly(1)
                size |= (digit & 0x7F) << shift
                if digit < 0x80:  # noqa: PLR2004 - the last digit [2.2.3]
                    break
            else:
                raise BrokerError("the broker sent a packet without a length")
            if size > MAX_MESSAGE_BYTES:
                raise BrokerError(f"a message has {size} bytes, {MAX_MESSAGE_BYTES} are allowed")
            return first, await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise BrokerError("the broker closed the connection") from error

    def _process_packet(self, first: int, body: bytes) -> None:
        if first & _TYPE == _PUBLISH:
            self._queue_message(first, body)
        elif first in _ACKNOWLEDGEMENT_TYPES:
            answer = self._answers.get(bytes([first]) + body[:2])
            if answer is not None and not answer.done():
                answer.set_result(body[2:])
        elif first != _PINGRESP:
            raise BrokerError(f"the broker sent a packet of type {first >> 4}")

    def _queue_message(self, first: int, body: bytes) -> None:
        """Add a waiting message, or count and drop it if there is no room."""
        qos = first >> 1 & 3
        end = 2 + int.from_bytes(body[:2], "big")
        start = end + 2 if qos else end
        if qos > 1 or len(body) < start:
            raise BrokerError(f"the broker sent a message with QoS {qos} that cannot be decoded")
        if len(self._waiting) >= MAX_WAITING_MESSAGES or self._waiting_bytes >= MAX_WAITING_BYTES:
            self._dropped += 1
            return
        topic = body[2:end].decode(errors="replace")
        message = ReceivedMessage(topic, body[start:], body[end:start])
        self._waiting.append(message)
        self._waiting_bytes += message.max_memory_bytes
        self._arrived.set()

    async def _request_with_packet_id(
        self, first_byte: int, before_id: bytes, after_id: bytes
    ) -> bytes:
        """Send a packet with a new id between `before_id` and `after_id`; return the answer."""
        self._last_id = self._last_id % 0xFFFF + 1
        packet_id = self._last_id.to_bytes(2, "big")
        key = bytes([(first_byte & _TYPE) + _NEXT_TYPE]) + packet_id
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[key] = answer
        try:
            await self._send(encode_packet(first_byte, before_id + packet_id + after_id))
            async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
                return await answer
        finally:
            del self._answers[key]

    async def _send(self, packet: bytes) -> None:
        """Send a packet; end the connection if the broker does not receive it in time."""
        if self._failure is not None:
            raise self._failure
        self._writer.write(packet)
        try:
            async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
                await self._writer.drain()
        except OSError as error:
            self._fail(error)
            raise

    def _fail(self, error: Exception) -> None:
        """End the connection: everything that waits for it raises the error."""
        if self._failure is None:
            self._failure = error
        self._arrived.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._failure)
                answer.exception()  # it may not be awaited


def _encode_text(text: str) -> bytes:
    content = text.encode()
    return len(content).to_bytes(2, "big") + content


@asynccontextmanager
async def open_connection(
    broker: Broker, client_id: str, allowed_networks: tuple[str, ...]
) -> AsyncIterator[BrokerConnection]:
    """Open a connection and log in; it is closed at the end of the block.

    Raises `BrokerError`, `OSError` (including `ssl.SSLError`) and `TimeoutError`.
    """
    async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
        connection = await _open_socket(broker, allowed_networks)
    jobs: list[asyncio.Task[None]] = []
    try:
        async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
            await connection.log_in(broker, client_id)
        jobs = [
            asyncio.ensure_future(job)
            for job in (connection.read_packets(), connection.send_pings())
        ]
        yield connection
    finally:
        connection.close()
        await cancel_and_wait(*jobs)


async def _open_socket(broker: Broker, allowed_networks: tuple[str, ...]) -> BrokerConnection:
    context = broker.build_tls_context()
    made = await connect_outgoing_socket(broker.host, broker.port, allowed_networks)
    try:
        reader, writer = await asyncio.open_connection(
            sock=made, ssl=context, server_hostname=broker.host if context else None
        )
    except BaseException:
        made.close()
        raise
    return BrokerConnection(reader, writer)
