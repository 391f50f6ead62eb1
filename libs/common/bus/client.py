"""nats-py with enforced TLS, endless reconnects and reliable cancellation.

`MessageInbox` requests messages of a stream.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Self

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import AuthorizationError, MaxPayloadError
from nats.errors import Error as NatsError

from libs.common.bus.publishing import message_size
from libs.common.jobs import wait_for_event

log = logging.getLogger(__name__)

CONNECT_RETRY_SECONDS = 0.2
"""Seconds between two attempts to connect."""
MAX_SILENCE_SECONDS = 3.0
"""Seconds without a heartbeat after which a request counts as lost."""
REQUEST_RETRY_SECONDS = 0.5
"""Seconds between attempts while the bus does not answer."""
HEARTBEAT_STATUS = "100"
"""The status of a heartbeat."""
END_STATUSES = {"404", "408"}
"""Statuses that end a request normally: no messages, request expired."""
LOGIN_REJECTIONS = (
    "authorization",
    "authentication",
    "user authentication",
    "account authentication",
)
"""Prefixes of the errors with which NATS rejects a login or ends a session."""
LOG_INTERVAL_SECONDS = 1.0
"""Seconds between two log lines for errors of one type: a slow subscription causes an error for
each message that it drops."""


class SecureClient(Client):
    """A NATS client that sends nothing unencrypted to a `tls://` server, and that always closes.

    nats-py trusts the server's first message, which arrives before TLS begins.
    """

    async def _process_info(self, info: dict[str, Any], *args: Any, **options: Any) -> None:
        server = self._current_server
        if server and server.uri.scheme == "tls" and not info.get("tls_required"):
            raise NatsError("the server offers no TLS")
        await super()._process_info(info, *args, **options)

    async def close(self) -> None:
        """Close the connection; raise `CancelledError` only if this task is cancelled.

        nats-py cancels its attempt to reconnect, and then waits for the end of the lost connection.
        If the attempt was waiting for that end, too, the future of both is cancelled.
        nats-py also sends pending messages first. Without a connection, they are lost.
        """
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        try:
            await super().close()
        except OSError:  # nats-py has discarded the pending messages
            self._status = Client.DISCONNECTED
            await super().close()
        except asyncio.CancelledError:
            if task is None or task.cancelling() > before:
                raise


class PersistentClient(SecureClient):
    """A client that reconnects after a rejected login and honours cancellations.

    It never sends a message that makes the server close the connection: nats-py measures a message
    without its headers, and such a connection stays closed.
    `auth` answers logins of integrations. While the platform starts, `auth` does not answer: NATS
    pings a new connection after two seconds, which nats-py takes for a successful login, and
    rejects it after five. nats-py closes such a connection permanently.
    """

    on_closed: Callable[[], None] | None = None
    """Called when the connection is permanently closed."""

    async def report_closed(self) -> None:
        """Report that the connection is closed."""
        if self.on_closed is not None:
            self.on_closed()

    async def _process_err(self, err_msg: str) -> None:
        if not err_msg.strip("'").lower().startswith(LOGIN_REJECTIONS):
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
        """Publish as nats-py does; raise `MaxPayloadError` above the server's limit."""
        if message_size(payload, headers) > self.max_payload:
            raise MaxPayloadError
        await super().publish(subject, payload, reply, headers)

    async def request(self, *arguments: Any, **options: Any) -> Msg:
        """Send a request as nats-py does, but honour a cancellation.

        nats-py waits with `asyncio.wait_for`. Before Python 3.12, it swallows a cancellation that
        arrives together with the answer: an endless job would continue, and the task that cancelled
        it would wait for ever.
        """
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        try:
            return await super().request(*arguments, **options)
        finally:
            if task is not None and task.cancelling() > before:
                raise asyncio.CancelledError


class DroppingClient(PersistentClient):
    """A client that drops a message while reading if `drops` accepts its subject."""

    def __init__(self, drops: Callable[[bytes], bool]) -> None:
        super().__init__()
        self._drops = drops

    async def _process_msg(self, sid: int, subject: bytes, *rest: bytes) -> None:
        if not self._drops(subject):
            await super()._process_msg(sid, subject, *rest)


def build_error_callback(name: str) -> Any:
    """Return the client's error callback, which the client awaits before it reconnects.

    The client itself does not wait (`reconnect_time_wait=0`): it makes the first attempt after a
    loss immediately. This callback delays the attempts after a failed one.
    """

    logged: dict[type[Exception], float] = {}

    async def report(error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if logged.get(type(error), -LOG_INTERVAL_SECONDS) + LOG_INTERVAL_SECONDS <= now:
            logged[type(error)] = now
            log.warning("%s: NATS: %r", name, error)
        if isinstance(error, OSError):
            await asyncio.sleep(CONNECT_RETRY_SECONDS)

    return report


class RequestLostError(Exception):
    """The server did not end a request, or ended it with an error."""


class MessageInbox:
    """The reply subject of requests for messages, one request at a time.

    All requests share one subscription, because each new one invalidates the server's subject
    cache.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._address = client.new_inbox()
        self._requests = 0
        self._wanted = 0
        self._messages: list[Msg] = []
        self._status = ""
        self._signalled = asyncio.Event()
        """Set by heartbeats and the end of the request."""
        self._done = False

    async def __aenter__(self) -> Self:
        self._subscription = await self._client.subscribe(
            f"{self._address}.*", cb=self._receive, pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._client.is_closed:
            await self._subscription.unsubscribe()

    async def request(self, subject: str, request: dict[str, int | bool]) -> list[Msg]:
        """Send a pull request; return its messages, and late messages of an earlier request.

        Raises `RequestLostError` if no message arrives, and the server does not end the request
        with one of `END_STATUSES`.
        """
        self._requests += 1
        self._wanted, self._status, self._done = int(request["batch"]), "", False
        await self._client.publish(subject, msgspec.json.encode(request), reply=self._reply_subject)
        while not self._done and await self._is_alive():
            pass
        if not self._messages and not self._done:
            raise RequestLostError("a request for messages was not answered")
        if not self._messages and self._status not in END_STATUSES:
            raise RequestLostError(f"a request for messages ended with {self._status or 'nothing'}")
        messages, self._messages = self._messages, []
        return messages

    async def _is_alive(self) -> bool:
        """Wait for the server; return False when it is silent for `MAX_SILENCE_SECONDS` seconds."""
        self._signalled.clear()
        await wait_for_event(self._signalled, MAX_SILENCE_SECONDS)
        if not self._signalled.is_set():  # a process that was stopped has yet to read
            await wait_for_event(self._signalled, REQUEST_RETRY_SECONDS)
        return self._signalled.is_set()

    @property
    def _reply_subject(self) -> str:
        return f"{self._address}.{self._requests}"

    async def _receive(self, message: Msg) -> None:
        if message.reply:
            self._messages.append(message)
            if len(self._messages) >= self._wanted:
                self._done = True
                self._signalled.set()
        elif message.subject == self._reply_subject:
            self._status = (message.headers or {}).get("Status", "")
            self._done |= self._status != HEARTBEAT_STATUS
            self._signalled.set()
