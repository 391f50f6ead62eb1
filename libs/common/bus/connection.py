"""A NATS connection that comes back, and pipelined publishing on it.

JetStream atomic batches (nats-server 2.12 and later, ADR-50): one acknowledgement for all.

A batch is stored whole or not at all. One that holds a message id the stream has seen is
refused whole (10201); its messages are then published one by one, where only the seen
ones are dropped.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import AuthorizationError, MaxPayloadError
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import APIError

from libs.common.bus.accounts import inbox
from libs.common.bus.publishing import (
    IN_FLIGHT,
    PENDING,
    PUBLISH_TIMEOUT,
    DuplicateInBatch,
    Outgoing,
    Publisher,
    check_ack,
    check_size,
    chunks,
    publish_frame,
    size_of,
    write_frames,
)
from libs.common.bus.streams import ensure_streams
from libs.common.errors import Unavailable
from libs.common.jobs import end_process, within
from libs.common.tls import trusting_for

log = logging.getLogger(__name__)

RETRY_PAUSE = 0.2
"""Seconds between two attempts to connect."""
PING = 3
"""Seconds between two pings; a server that has left two unanswered at the third is left for
another one."""
REFUSALS = ("authorization", "authentication", "user authentication", "account authentication")
"""How NATS begins to say that it lets somebody in no longer, or not at all."""
TOLD_EVERY = 1.0
"""Seconds between two lines about errors of a kind: a subscription that is too slow makes one for
each message that it drops."""


class SecureClient(Client):
    """A client of NATS that says nothing in the clear to a `tls://` server.

    nats-py goes by what the server says of itself, which is sent before TLS begins.
    """

    async def _process_info(self, info: dict[str, Any], *args: Any, **options: Any) -> None:
        server = self._current_server
        if server and server.uri.scheme == "tls" and not info.get("tls_required"):
            raise NatsError("the server offers no TLS")
        await super()._process_info(info, *args, **options)


class _Persistent(SecureClient):
    """Comes back after a refused login as after any other loss, and hears cancellations.

    It sends nothing that the server would close the connection for: nats-py measures a message
    without its headers, and such a connection stays closed.

    Logins of integrations are answered by `auth`. While the platform starts nobody does: NATS
    pings a newcomer after two seconds, which nats-py takes for being let in, and refuses it
    after five; nats-py closes such a connection for good.
    """

    on_closed: Callable[[], None] | None = None
    """Called when the connection is closed for good."""

    async def closed(self) -> None:
        """Tell that the connection is closed."""
        if self.on_closed is not None:
            self.on_closed()

    async def _process_err(self, err_msg: str) -> None:
        if not err_msg.strip("'").lower().startswith(REFUSALS):
            await super()._process_err(err_msg)
            return
        await self._error_cb(AuthorizationError())
        await self._process_op_err(AuthorizationError())

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Publish as nats-py does; raise `MaxPayloadError` for what the server does not take."""
        if size_of(payload, headers) > self.max_payload:
            raise MaxPayloadError
        await super().publish(subject, payload, reply, headers)

    async def request(self, *arguments: Any, **options: Any) -> Msg:
        """Ask as nats-py does; a cancellation that comes together with the answer counts.

        It waits with `asyncio.wait_for`, which before Python 3.12 gives the answer instead: an
        endless job would go on, and whoever ends it would wait for ever.
        """
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        try:
            return await super().request(*arguments, **options)
        finally:
            if task is not None and task.cancelling() > before:
                raise asyncio.CancelledError


class _Dropping(_Persistent):
    """Drops messages as it reads them, of which `drops` says so by their subject."""

    def __init__(self, drops: Callable[[bytes], bool]) -> None:
        super().__init__()
        self._drops = drops

    async def _process_msg(self, sid: int, subject: bytes, *rest: bytes) -> None:
        if not self._drops(subject):
            await super()._process_msg(sid, subject, *rest)


class Bus:
    """One NATS connection of a process."""

    def __init__(self, client: Client, js: JetStreamContext, replicas: int = 1) -> None:
        self.client = client
        self.js = js
        self.replicas = replicas
        """Servers that keep each of the streams that are missing and created here."""
        self._publisher = Publisher(client)
        self._leaving = False

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        user: str = "",
        password: str = "",
        name: str,
        ca_file: str = "",
        wait: float = 30.0,
        streams: int = 0,
        drops: Callable[[bytes], bool] | None = None,
    ) -> "Bus":
        """Connect to one of several servers, separated by commas; reconnects for ever after.

        Waits up to `wait` seconds for the first time.

        A connection that is closed all the same, for example because the server took offence at
        what came on it, ends the process: whoever watches over it starts it again.

        Messages of which `drops` says so by their subject are dropped as they are read.
        A `tls://` server proves itself to the authorities in `ca_file`.
        With `streams`, create the streams that are missing, on so many servers each. Replies
        come to an inbox that only this user may read.
        """
        options: dict[str, Any] = {"reconnect_time_wait": RETRY_PAUSE}
        if user:
            inboxes = inbox(user).encode()
            options |= {"user": user, "password": password, "inbox_prefix": inboxes}
        client = _Persistent() if drops is None else _Dropping(drops)
        deadline = asyncio.get_running_loop().time() + wait
        while True:
            try:
                if not client.is_connected:
                    connecting = client.connect(
                        servers=url.split(","),
                        name=name,
                        tls=trusting_for(url, ca_file),
                        max_reconnect_attempts=-1,
                        connect_timeout=3,
                        ping_interval=PING,
                        max_outstanding_pings=2,
                        pending_size=PENDING,
                        allow_reconnect=True,
                        error_cb=_report(name),
                        closed_cb=client.closed,
                        **options,
                    )
                    await within(deadline - asyncio.get_running_loop().time(), connecting)
                bus = cls(client, client.jetstream(timeout=PUBLISH_TIMEOUT), streams or 1)
                if streams:
                    await ensure_streams(bus.js, streams)
                client.on_closed = bus._closed
            except (OSError, NatsError, TimeoutError, APIError) as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                log.info("waiting for NATS: %s", error or type(error).__name__)
                await asyncio.sleep(RETRY_PAUSE)
            else:
                return bus

    def _closed(self) -> None:
        if not self._leaving:
            end_process("the connection to NATS is closed for good", self.client.last_error)

    @property
    def connected(self) -> bool:
        """Whether the connection stands right now."""
        return self.client.is_connected

    async def check(self) -> None:
        """Raise `Unavailable` while the connection is down (a readiness check)."""
        if not self.connected:
            raise Unavailable("NATS is not connected")

    def measure(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        """Raise `TooLarge` for a message that the server does not take."""
        check_size(subject, size_of(payload, headers), self.client.max_payload)

    async def publish_core(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> None:
        """Send without a stream and without an acknowledgement.

        Raises `Unavailable`, and `TooLarge` for what the bus takes at no time.
        """
        self.measure(subject, payload, headers)
        try:
            await self.client.publish(subject, payload, headers=headers or None)
        except NatsError as error:
            raise Unavailable(f"the bus does not take messages: {error!r}") from error

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish to JetStream, pipelined; return when every message is acknowledged.

        Raises `Unavailable` when the stream is full, gone or silent, and `TooManyRequests` when
        it holds too many messages of a subject; then some of the messages may be in the stream,
        and the caller publishes all of them again. Raises `TooLarge` for a message that the bus
        takes at no time.
        """
        for some in chunks(messages, IN_FLIGHT):
            try:
                await self._publisher.publish(some)
            except (NatsError, TimeoutError) as error:
                raise Unavailable(f"the bus does not take messages: {error!r}") from error

    async def close(self) -> None:
        """Close at once."""
        self._leaving = True
        await self.client.close()

    async def drain(self) -> None:
        """Finish what is in flight and close."""
        self._leaving = True
        if not self.client.is_closed:
            try:
                await self.client.drain()
            except (NatsError, TimeoutError) as error:
                log.warning("NATS connection did not drain: %r", error)
                await self.client.close()


def _report(name: str) -> Any:
    """Make the client's error callback, which it awaits before the next attempt to connect.

    The client itself does not wait (`reconnect_time_wait=0`), so that the first attempt
    after a loss is made at once; those after a failed one are spaced here.
    """

    told: dict[type[Exception], float] = {}

    async def report(error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if told.get(type(error), -TOLD_EVERY) + TOLD_EVERY <= now:
            told[type(error)] = now
            log.warning("%s: NATS: %r", name, error)
        if isinstance(error, OSError):
            await asyncio.sleep(RETRY_PAUSE)

    return report


MOST = 1000
"""Messages of one batch (the server's limit)."""
ALONE = 2
"""From so many messages on they need a batch to be stored together."""
WORTH_A_BATCH = 500
"""Messages from which on a batch is as cheap as single messages in one write: so many take 5.5 ms
of server and client together either way, 64 of them 2.0 as a batch and 0.9 singly (2.15.1)."""


async def publish_all(bus: Bus, messages: Sequence[Outgoing]) -> None:
    """Publish messages of one stream; return when all of them are stored.

    Raises `Unavailable` when the stream does not take them, `TooManyRequests` when it holds too
    many of a subject; some may be stored by then. Raises `TooLarge`, and publishes nothing, when
    the bus takes one of them at no time.
    """
    if len(messages) < ALONE:
        await bus.publish(messages)
        return
    most = bus.client.max_payload
    batches = [_Batch(chunk, most) for chunk in chunks(messages, MOST)]
    await asyncio.gather(*(one.publish(bus) for one in batches))


async def publish_each(bus: Bus, messages: Sequence[Outgoing]) -> None:
    """Publish messages of one stream that need not be stored together; else as `publish_all`."""
    await (bus.publish(messages) if len(messages) < WORTH_A_BATCH else publish_all(bus, messages))


class _Batch:
    """Messages of one atomic batch."""

    def __init__(self, messages: Sequence[Outgoing], most: int) -> None:
        """Raise `TooLarge` for a message with more than `most` bytes."""
        self._messages = messages
        self._id = {"Nats-Batch-Id": uuid4().hex}
        self._frames = [
            publish_frame(one.subject, one.payload, self._headers(number, one), most=most)
            for number, one in enumerate(messages, 1)
        ]

    def _headers(self, number: int, message: Outgoing) -> dict[str, str]:
        end = {"Nats-Batch-Commit": "1"} if number == len(self._messages) else {}
        return {**message.all_headers(), **self._id, "Nats-Batch-Sequence": str(number), **end}

    async def publish(self, bus: Bus) -> None:
        """Publish them, one by one when the stream has one of them."""
        if len(self._messages) < ALONE or not await self._commit(bus):
            await bus.publish(self._messages)

    async def _commit(self, bus: Bus) -> bool:
        """Publish all; False when the batch holds a duplicate."""
        last = self._messages[-1]
        headers = self._headers(len(self._messages), last)
        try:
            await write_frames(bus.client, self._frames[:-1])
            answer = await bus.client.request(
                last.subject, last.payload, PUBLISH_TIMEOUT, headers=headers
            )
        except (NatsError, TimeoutError) as error:
            raise Unavailable(f"the bus does not take messages: {error!r}") from error
        try:
            check_ack(answer.data)
        except DuplicateInBatch:
            return False
        return True
