"""Exchanges with a service behind the gateway, over kept-alive connections.

Failures are `ThingwayError`. Connections are distributed over all addresses of the service.
"""

import asyncio
import itertools
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from yarl import URL

from libs.common.errors import ThingwayError, Unavailable, UpstreamFailed, UpstreamTimeout
from services.gateway.metrics import Metrics
from services.gateway.upstream.connection import (
    ConnectionBroken,
    HeaderField,
    InvalidAnswer,
    ServiceAnswer,
    ServiceConnection,
    StaleConnection,
)

DNS_CACHE_SECONDS = 5.0
"""Seconds for which the addresses of a name are cached."""
MAX_IDLE_SECONDS = 30.0
"""Seconds for which an idle connection is kept, less than services do (75 s)."""
MAX_CONNECTION_AGE_SECONDS = 60.0
"""Seconds after which a connection is not reused, so that new replicas get requests."""
MIN_CONNECT_ATTEMPT_SECONDS = 0.3
"""Lowest time limit, in seconds, of a connection attempt to one of several addresses."""


class Unreachable(Exception):
    """No address of the service accepts a connection."""


class ConnectionPool:
    """The idle connections to a service. A request gets the most recently used one."""

    def __init__(
        self, base: URL, connect_timeout: float, tls: ssl.SSLContext | None = None
    ) -> None:
        self._host = base.host or ""
        self._port = base.port or 80
        self._ssl = tls
        self._timeout = connect_timeout
        self._idle: deque[ServiceConnection] = deque()
        self._addresses: list[str] = []
        self._resolved = float("-inf")
        self._turn = itertools.count()

    def take_idle(self) -> ServiceConnection | None:
        """Return the most recently used idle connection that can be reused, or None."""
        idle = self._idle
        now = time.monotonic()
        while idle:
            connection = idle.pop()
            if connection.closed:
                continue
            if (
                now - connection.idle_since < MAX_IDLE_SECONDS
                and now - connection.made < MAX_CONNECTION_AGE_SECONDS
            ):
                return connection
            connection.close()
        return None

    async def open(self) -> ServiceConnection:
        """Return a new connection to the first address that accepts it; raise `Unreachable`.

        Each call begins with another address.
        """
        reason: Exception = OSError("the name has no address")
        try:
            async with asyncio.timeout(self._timeout):
                addresses = await self._resolve()
                share = max(MIN_CONNECT_ATTEMPT_SECONDS, self._timeout / max(1, len(addresses)))
                for address in addresses:
                    try:
                        async with asyncio.timeout(share):
                            return await self._connect(address)
                    except (OSError, TimeoutError) as error:
                        reason = error
        except (OSError, TimeoutError) as error:
            reason = error
        self._resolved = float("-inf")
        raise Unreachable(f"{self._host}:{self._port}: {reason!r}") from reason

    def give_back(self, connection: ServiceConnection) -> None:
        """Keep a connection for the next request."""
        self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    async def _connect(self, address: str) -> ServiceConnection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            ServiceConnection,
            address,
            self._port,
            ssl=self._ssl,
            server_hostname=self._host if self._ssl else None,
        )
        return connection

    async def _resolve(self) -> list[str]:
        """Return the addresses of the service, rotated at each call."""
        if time.monotonic() - self._resolved > DNS_CACHE_SECONDS:
            addresses = await asyncio.get_running_loop().getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM
            )
            self._addresses = list(dict.fromkeys(str(entry[4][0]) for entry in addresses))
            self._resolved = time.monotonic()
        if not self._addresses:
            return []
        turn = next(self._turn) % len(self._addresses)
        return self._addresses[turn:] + self._addresses[:turn]


log = logging.getLogger(__name__)

REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods whose requests are sent again, unless they have a body, if a reused connection was closed
before the answer."""

SERVICE_ERRORS = (Unreachable, ConnectionBroken, InvalidAnswer)
"""Errors of an exchange that the service causes."""

RequestContent = bytes | AsyncIterator[bytes] | None


class ServiceRequest(NamedTuple):
    """A request to a service."""

    method: str
    target: str
    """Path and query."""
    fields: Iterable[HeaderField]
    """Header fields, except `Host` and those that describe the length of the body."""
    body: RequestContent
    length: int | None
    """Bytes of a streamed body; with None, the body is sent in chunks."""


class RequestSlots:
    """The current and the maximum number of concurrent requests of a service."""

    __slots__ = ("held", "maximum")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.held = 0

    def release(self) -> None:
        """Release a slot."""
        self.held -= 1


class UpstreamService:
    """A service with separate connections, so that its failures do not affect others."""

    def __init__(
        self,
        name: str,
        base: URL,
        metrics: Metrics,
        *,
        connect_timeout: float,
        maximum: int,
        max_polls: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self._host = base.authority.encode()
        self._metrics = metrics
        self._pool = ConnectionPool(base, connect_timeout, tls)
        self._requests, self._polls = RequestSlots(maximum), RequestSlots(max_polls)

    def acquire_slot(self, *, poll: bool) -> "RequestSlots":
        """Occupy a slot, which the returned object releases; raise `Unavailable` if none is free.

        Long polls are counted separately, so that they do not prevent other requests.
        """
        hands = self._polls if poll else self._requests
        if hands.held >= hands.maximum:
            raise Unavailable(f"the service {self.name} has too many concurrent requests")
        hands.held += 1
        return hands

    async def send_request(
        self, request: ServiceRequest
    ) -> tuple[ServiceConnection, ServiceAnswer]:
        """Send a request and wait for the head of its answer; call `end_exchange` later.

        Raises `Unavailable` and `UpstreamFailed` for failures of the service. All other errors,
        such as those of reading the request's body, are raised unchanged. The caller limits the
        time.
        """
        try:
            return await self._send(request)
        except SERVICE_ERRORS as error:
            raise self._convert_error(error) from error

    async def receive_part(self, answer: ServiceAnswer) -> tuple[bytes, bool]:
        """Return the next part of an answer, and whether more follows; raise `UpstreamFailed`."""
        try:
            return await answer.receive_part()
        except SERVICE_ERRORS as error:
            raise self._convert_error(error) from error

    def build_timeout_error(self) -> ThingwayError:
        """Log and count that the service did not answer in time; return the error to answer."""
        return self._count_failure(
            UpstreamTimeout(f"the service {self.name} did not answer in time")
        )

    def end_exchange(self, connection: ServiceConnection) -> None:
        """Return the connection to the pool if it can be reused, else close it."""
        if connection.end_exchange():
            self._pool.give_back(connection)

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def _convert_error(self, failure: Exception) -> ThingwayError:
        """Log and count one of `SERVICE_ERRORS`; return the error that the client gets."""
        log.debug("service %s: %r", self.name, failure)
        error: type[ThingwayError] = UpstreamFailed
        match failure:
            case Unreachable():
                error, what = Unavailable, "cannot be reached"
            case ConnectionBroken():
                what = "closed the connection"
            case _:
                what = "did not answer with HTTP"
        return self._count_failure(error(f"the service {self.name} {what}"))

    def _count_failure(self, error: ThingwayError) -> ThingwayError:
        log.warning("%s", error.message)
        self._metrics.count_upstream_failure(self.name, error.status)
        return error

    async def _send(self, request: ServiceRequest) -> tuple[ServiceConnection, ServiceAnswer]:
        connection = self._pool.take_idle()
        if connection is not None:
            try:
                return connection, await self._exchange(connection, request)
            except StaleConnection:
                if request.method not in REPEATABLE_METHODS or request.body is not None:
                    raise
        connection = await self._pool.open()
        return connection, await self._exchange(connection, request)

    async def _exchange(
        self, connection: ServiceConnection, request: ServiceRequest
    ) -> ServiceAnswer:
        body = request.body
        try:
            answer = connection.send_request(
                self._build_head(request),
                body if isinstance(body, bytes) else None,
                bodiless=request.method == "HEAD",
            )
            if body is not None and not isinstance(body, bytes):
                connection.stream_body(body, chunked=request.length is None)
            await answer.wait_for_head()
        except BaseException:
            connection.close()
            connection.end_exchange()
            raise
        return answer

    def _build_head(self, request: ServiceRequest) -> bytes:
        lines = [f"{request.method} {request.target} HTTP/1.1".encode("latin-1")]
        lines.append(b"host: " + self._host)
        lines += [name + b": " + value for name, value in request.fields]
        body = request.body
        if isinstance(body, bytes):
            lines.append(b"content-length: %d" % len(body))
        elif body is None:
            if request.method not in REPEATABLE_METHODS:
                lines.append(b"content-length: 0")
        elif request.length is None:
            lines.append(b"transfer-encoding: chunked")
        else:
            lines.append(b"content-length: %d" % request.length)
        lines.append(b"\r\n")
        return b"\r\n".join(lines)
