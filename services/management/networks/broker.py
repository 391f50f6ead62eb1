"""Connections to the brokers of network servers, as an MQTT 3.1.1 client.

They are made to addresses that may be called. Messages are acknowledged once they are handled. What
a broker can make us hold is bounded. Numbers in brackets are sections of the standard.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from libs.common.errors import InvalidInput
from libs.common.http.outgoing import outgoing_socket
from libs.common.jobs import ended
from libs.common.mqtt import encoded
from services.management.networks.settings import Broker

CONNECT_SECONDS = 10.0
"""For each of connecting, the login and the answer to a packet."""
KEEPALIVE = 30
SILENCE = 1.5 * KEEPALIVE
"""Seconds without any packet, also without an answer to a ping, after which the connection ends."""
CLOSE_SECONDS = 1.0
MOST_WAITING = 20_000
"""Messages of one connection that wait here; more than brokers send without an acknowledgement."""
MOST_WAITING_BYTES = 16 * 1024**2
LARGEST_MESSAGE = 256 * 1024
LONGEST_TOPIC = 0xFFFF
PACKETS_IN_TURN = 64
"""Packets that are handled before other tasks run; a flood would not let them."""
REFUSED = 0x80
"""The return code of a subscription that is not granted [3.9.3]."""

_CONNECT, _CONNACK, _PUBLISH, _PUBACK = 0x10, 0x20, 0x30, 0x40
_SUBSCRIBE, _SUBACK, _UNSUBSCRIBE, _UNSUBACK = 0x82, 0x90, 0xA2, 0xB0
_TYPE, _NEXT_TYPE = 0xF0, 0x10
"""The type of an answer is one more than that of its packet."""
_PINGREQ, _PINGRESP, _DISCONNECT = b"\xc0\x00", 0xD0, b"\xe0\x00"
_ANSWERS = (_PUBACK, _SUBACK, _UNSUBACK)
_USER, _PASSWORD = 0x80, 0x40
_LOGIN_ERRORS = (
    "Unsupported protocol version",
    "Client identifier not valid",
    "Server unavailable",
    "Bad user name or password",
    "Not authorized",
)
"""Return codes 1 to 5 of CONNACK [3.2.2.3]."""


class BrokerError(Exception):
    """The broker ends the connection, or refuses something."""


class LoginRefused(BrokerError):
    """The broker refuses the login; the text says why."""


class Message(NamedTuple):
    """A message; one of QoS 0 has no packet id."""

    topic: str
    payload: bytes
    packet_id: bytes = b""

    @property
    def size(self) -> int:
        """Bytes that it holds at most; a character has up to four."""
        return 4 * len(self.topic) + len(self.payload)


def check_topic(text: str, field: str | None = None) -> None:
    """Raise `InvalidInput` for a text that is no topic filter [4.7]."""
    levels = text.split("/")
    misplaced = any(len(level) > 1 and {*"+#"} & {*level} for level in levels)
    if misplaced or "#" in levels[:-1] or not _has_topic_length(text):
        raise InvalidInput(f"{text} is no topic", field=field)


def _has_topic_length(text: str) -> bool:
    return "\0" not in text and 0 < len(text.encode()) <= LONGEST_TOPIC


class Connection:
    """An open connection: it receives, acknowledges and publishes messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: deque[Message] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._arrived = asyncio.Event()
        self._answers: dict[bytes, asyncio.Future[bytes]] = {}
        self._last_id = 0
        self._failure: Exception | None = None

    async def log_in(self, broker: Broker, client_id: str) -> None:
        """Send CONNECT for the session of `client_id`; raise `LoginRefused`."""
        flags, fields = 0, [client_id]
        if broker.username:
            flags, fields = _USER, [client_id, broker.username]
        if broker.username and broker.password:
            flags, fields = _USER | _PASSWORD, [*fields, broker.password]
        head = b"\x00\x04MQTT\x04" + bytes([flags]) + KEEPALIVE.to_bytes(2, "big")
        await self._send(encoded(_CONNECT, head + b"".join(map(_text, fields))))
        first, body = await self._read_packet()
        if first != _CONNACK or len(body) != 2:  # noqa: PLR2004 - flags and code
            raise BrokerError("the broker does not speak MQTT 3.1.1")
        if code := body[1]:
            known = code <= len(_LOGIN_ERRORS)
            raise LoginRefused(_LOGIN_ERRORS[code - 1] if known else f"code {code}")

    async def listen(self, topics: Sequence[str], before: Iterable[str]) -> None:
        """Subscribe to `topics`, and to none of `before`, which the broker may remember.

        Raises `BrokerError` for a topic that the broker refuses.
        """
        for topic in set(before) - set(topics):
            await self._request(_UNSUBSCRIBE, b"", _text(topic))
        for topic in topics:
            codes = await self._request(_SUBSCRIBE, b"", _text(topic) + b"\x01")
            if not codes or codes[0] >= REFUSED:
                raise BrokerError(f"the broker refuses to tell {topic}")

    async def batches(self, most: int) -> AsyncIterator[list[Message]]:
        """Yield what has come, up to `most` at a time, until the connection ends with an error."""
        while True:
            while not self._waiting:
                if self._failure is not None:
                    raise self._failure
                self._arrived.clear()
                await self._arrived.wait()
            batch = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            self._waiting_bytes -= sum(message.size for message in batch)
            yield batch
            if self._dropped and not self._waiting:
                raise BrokerError(f"{self._dropped} messages came faster than they are stored")

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """Say that messages are dealt with, so that the broker forgets them.

        When the connection has ended, `batches` raises why, after what still waits.
        """
        packets = b"".join(encoded(_PUBACK, one.packet_id) for one in messages if one.packet_id)
        if self._failure is not None:
            self._writer.write(packets)  # the broker may still read them
            return
        with contextlib.suppress(OSError):  # it has ended the connection
            await self._send(packets)

    async def publish(self, topic: str, payload: bytes, qos: int) -> None:
        """Publish with QoS 0 or 1; raise `BrokerError`, `OSError` or `TimeoutError`.

        Raises `InvalidInput` for a text that is no topic name: a broker disconnects for it [4.7].
        """
        if {*"+#"} & {*topic} or not _has_topic_length(topic):
            raise InvalidInput(f"{topic} is no topic to publish to")
        if qos:
            await self._request(_PUBLISH | qos << 1, _text(topic), payload)
        else:
            await self._send(encoded(_PUBLISH, _text(topic) + payload))

    async def receive(self) -> None:
        """Receive packets until the connection ends; `batches` raises what has ended it."""
        handled = 0
        try:
            while True:
                async with asyncio.timeout(SILENCE):
                    first, body = await self._read_packet()
                if self._failure is not None:
                    return
                self._handle(first, body)
                handled += 1
                if handled % PACKETS_IN_TURN == 0:
                    await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - whatever it is, `batches` raises it
            self._end(error)

    async def ping(self) -> None:
        """Send a ping every `KEEPALIVE` seconds."""
        with contextlib.suppress(Exception):  # it has ended the connection
            while True:
                await asyncio.sleep(KEEPALIVE)
                await self._send(_PINGREQ)

    def close(self) -> None:
        """Disconnect, and let go of the socket soon, whatever state it is in."""
        self._end(BrokerError("the connection is closed"))
        self._writer.write(_DISCONNECT)
        self._writer.close()
        asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._writer.transport.abort)

    async def _read_packet(self) -> tuple[int, bytes]:
        """Return first byte and body of the next packet; one that is too large is not read."""
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
            if size > LARGEST_MESSAGE:
                raise BrokerError(f"a message of {size} bytes is not taken")
            return first, await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise BrokerError("the broker closed the connection") from error

    def _handle(self, first: int, body: bytes) -> None:
        if first & _TYPE == _PUBLISH:
            self._add(first, body)
        elif first in _ANSWERS:
            answer = self._answers.get(bytes([first]) + body[:2])
            if answer is not None and not answer.done():
                answer.set_result(body[2:])
        elif first != _PINGRESP:
            raise BrokerError(f"the broker sent a packet of type {first >> 4}")

    def _add(self, first: int, body: bytes) -> None:
        """Let a message wait; one for which there is no room is counted and dropped."""
        qos = first >> 1 & 3
        end = 2 + int.from_bytes(body[:2], "big")
        start = end + 2 if qos else end
        if qos > 1 or len(body) < start:
            raise BrokerError(f"the broker sent a message of QoS {qos} that cannot be read")
        if len(self._waiting) >= MOST_WAITING or self._waiting_bytes >= MOST_WAITING_BYTES:
            self._dropped += 1
            return
        topic = body[2:end].decode(errors="replace")
        message = Message(topic, body[start:], body[end:start])
        self._waiting.append(message)
        self._waiting_bytes += message.size
        self._arrived.set()

    async def _request(self, first: int, before: bytes, after: bytes) -> bytes:
        """Send a packet with an id between two parts of its body; return its answer without it."""
        self._last_id = self._last_id % 0xFFFF + 1
        packet_id = self._last_id.to_bytes(2, "big")
        key = bytes([(first & _TYPE) + _NEXT_TYPE]) + packet_id
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[key] = answer
        try:
            await self._send(encoded(first, before + packet_id + after))
            async with asyncio.timeout(CONNECT_SECONDS):
                return await answer
        finally:
            del self._answers[key]

    async def _send(self, packet: bytes) -> None:
        """Send a packet; a broker that does not read it in time ends the connection."""
        if self._failure is not None:
            raise self._failure
        self._writer.write(packet)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._writer.drain()
        except OSError as error:
            self._end(error)
            raise

    def _end(self, error: Exception) -> None:
        """Have everything that waits for the connection raise why it has ended."""
        if self._failure is None:
            self._failure = error
        self._arrived.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._failure)
                answer.exception()  # nobody may come to await it


def _text(text: str) -> bytes:
    content = text.encode()
    return len(content).to_bytes(2, "big") + content


@asynccontextmanager
async def connected(
    broker: Broker, client_id: str, allowed: tuple[str, ...]
) -> AsyncIterator[Connection]:
    """Connect, and disconnect at the end.

    Raises `BrokerError`, `OSError` (`ssl.SSLError` is one) and `TimeoutError`.
    """
    async with asyncio.timeout(CONNECT_SECONDS):
        connection = await _connect(broker, allowed)
    jobs: list[asyncio.Task[None]] = []
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.log_in(broker, client_id)
        jobs = [asyncio.ensure_future(job) for job in (connection.receive(), connection.ping())]
        yield connection
    finally:
        connection.close()
        await ended(*jobs)


async def _connect(broker: Broker, allowed: tuple[str, ...]) -> Connection:
    context = broker.context()
    made = await outgoing_socket(broker.host, broker.port, allowed)
    try:
        reader, writer = await asyncio.open_connection(
            sock=made, ssl=context, server_hostname=broker.host if context else None
        )
    except BaseException:
        made.close()
        raise
    return Connection(reader, writer)
