"""A connection to the broker of a network server (aiomqtt).

It is made to an address that may be called, by our own socket; messages are acknowledged by
whoever has handled them; what a broker may have us hold is bounded.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from socket import socket
from typing import Any

from aiomqtt import Client, Message, MqttError, Wildcard
from paho.mqtt.reasoncodes import ReasonCode

from libs.common.errors import InvalidInput
from libs.common.http.outgoing import outgoing_socket
from services.management.builtin.networks.settings import Broker

CONNECT_SECONDS = 10.0
KEEPALIVE = 30
MOST_WAITING = 20_000
"""Messages of one connection that wait here; more than brokers send without an acknowledgement."""
MOST_WAITING_BYTES = 16 * 1024**2
LARGEST_MESSAGE = 256 * 1024
REFUSED = 128
"""What a broker answers from here on has not been subscribed to."""

_quiet = logging.getLogger("thingway.networks.mqtt")
_quiet.setLevel(logging.CRITICAL)


def check_topic(text: str, field: str | None = None) -> None:
    """Raise `InvalidInput` for what no broker can be asked for."""
    try:
        Wildcard(text)
    except ValueError as error:
        raise InvalidInput(f"{text} is no topic", field=field) from error


class Overflow(MqttError):
    """The broker sent more than could be held."""


class _Waiting(asyncio.Queue[Message]):
    """Messages that wait; those for which there is no room are counted and dropped."""

    _queue: deque[Message]

    def __init__(self, maxsize: int = 0) -> None:
        super().__init__(maxsize)
        self.bytes = 0
        self.dropped = 0

    def put_nowait(self, item: Message) -> None:
        if self.qsize() >= MOST_WAITING or self.bytes >= MOST_WAITING_BYTES:
            self.dropped += 1
            return
        super().put_nowait(item)

    def _put(self, item: Message) -> None:
        self.bytes += len(item.payload)
        super()._put(item)

    def _get(self) -> Message:
        item: Message = super()._get()
        self.bytes -= len(item.payload)
        return item


class Connection(Client):
    """An open connection: batches of messages to take, acknowledge, and answer."""

    _queue: _Waiting

    def __init__(self, broker: Broker, made: socket, client_id: str) -> None:
        super().__init__(
            broker.host,
            broker.port,
            username=broker.username or None,
            password=broker.password or None,
            identifier=client_id,
            clean_session=False,
            keepalive=KEEPALIVE,
            timeout=CONNECT_SECONDS,
            logger=_quiet,
            queue_type=_Waiting,
        )
        self._client.manual_ack_set(on=True)
        self.failure: OSError | None = None
        """What ended the socket, of which paho says nothing."""
        self._bound(self._client, made)

    async def listen(self, topics: Sequence[str], before: Iterable[str]) -> None:
        """Subscribe to `topics`, and to none of `before`, which the broker may remember.

        Raises `MqttError` for a topic that it refuses.
        """
        for topic in set(before) - set(topics):
            await self.unsubscribe(topic)
        for topic in topics:
            codes = await self.subscribe(topic, qos=1)
            if any(code >= REFUSED for code in map(_number, codes)):
                raise MqttError(f"the broker refuses to tell {topic}")

    async def batches(self, most: int) -> AsyncIterator[list[Message]]:
        """What has come, up to `most` at a time, until the connection ends with `MqttError`."""
        async for first in self.messages:
            batch = [first]
            while len(batch) < most and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            yield batch
            if self._queue.dropped and self._queue.empty():
                raise Overflow(f"{self._queue.dropped} messages came faster than they are stored")

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """Say that messages are dealt with, so that the broker forgets them."""
        for message in messages:
            self._client.ack(message.mid, message.qos)

    def _bound(self, paho: Any, made: socket) -> None:
        """Have paho use a socket of ours, and read no message that is too large."""
        receive = paho._sock_recv  # noqa: SLF001 - it offers no other way

        def bounded(size: int) -> Any:
            if size > LARGEST_MESSAGE:
                raise ConnectionError(f"a message of {size} bytes is not taken")
            try:
                return receive(size)
            except (ssl.SSLWantReadError, BlockingIOError):
                raise
            except OSError as error:
                self.failure = error
                raise

        paho._create_socket = lambda: made  # noqa: SLF001
        paho._sock_recv = bounded  # noqa: SLF001

    def drop(self) -> None:
        """Let go of the socket, whatever state it is in."""
        self._client._sock_close()  # noqa: SLF001 - aiomqtt leaves it open when connecting fails


def _number(code: int | ReasonCode) -> int:
    return code.value if isinstance(code, ReasonCode) else code


@asynccontextmanager
async def connected(
    broker: Broker, client_id: str, allowed: tuple[str, ...]
) -> AsyncIterator[Connection]:
    """Connect, and disconnect at the end.

    Raises `MqttError`, `OSError` (`ssl.SSLError` is one) and `TimeoutError`.
    """
    async with asyncio.timeout(CONNECT_SECONDS):
        made = await _socket(broker, allowed)
    connection = Connection(broker, made, client_id)
    try:
        async with connection:
            yield connection
    except MqttError as error:
        if connection.failure is not None:
            raise connection.failure from error
        raise
    finally:
        connection.drop()
        made.close()


async def _socket(broker: Broker, allowed: tuple[str, ...]) -> socket:
    made = await outgoing_socket(broker.host, broker.port, allowed)
    context = broker.context()
    if context is None:
        return made
    try:
        secure = context.wrap_socket(
            made, server_hostname=broker.host, do_handshake_on_connect=False
        )
    except BaseException:
        made.close()
        raise
    try:
        await _shake_hands(secure)
    except BaseException:
        secure.close()
        raise
    return secure


async def _shake_hands(made: ssl.SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            made.do_handshake()
        except ssl.SSLWantReadError:
            await _ready(made, loop.add_reader, loop.remove_reader)
        except ssl.SSLWantWriteError:
            await _ready(made, loop.add_writer, loop.remove_writer)
        else:
            return


async def _ready(made: socket, add: Any, remove: Any) -> None:
    happened = asyncio.Event()
    add(made.fileno(), happened.set)
    try:
        await happened.wait()
    finally:
        remove(made.fileno())
