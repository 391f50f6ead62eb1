"""Exchanges with a service behind the gateway; failures are `ThingwayError`."""

import logging
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from yarl import URL

from libs.common.errors import ThingwayError, Unavailable, UpstreamFailed, UpstreamTimeout
from services.gateway.metrics import Metrics
from services.gateway.upstream.connection import (
    Answer,
    BrokenOff,
    Connection,
    Field,
    NotHttp,
    StaleConnection,
)
from services.gateway.upstream.pool import Pool, Unreachable

log = logging.getLogger(__name__)

REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that are retried if a kept-alive connection was closed."""

FAILURES = (Unreachable, BrokenOff, NotHttp)
"""Errors that the service causes."""

Body = bytes | AsyncIterator[bytes] | None


class Request(NamedTuple):
    """A request to a service."""

    method: str
    target: str
    """Path and query."""
    fields: Iterable[Field]
    """Header fields without those of the body."""
    body: Body
    length: int | None
    """Bytes of a streamed body; None requires chunks."""


class Slots:
    """The current and the maximum number of concurrent requests of a service."""

    __slots__ = ("held", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def release(self) -> None:
        """Release a slot."""
        self.held -= 1


class Upstream:
    """A service with separate connections, so that its failures do not affect others."""

    def __init__(
        self,
        name: str,
        base: URL,
        metrics: Metrics,
        *,
        connect_timeout: float,
        most: int,
        most_polls: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self._host = base.authority.encode()
        self._metrics = metrics
        self._pool = Pool(base, connect_timeout, tls)
        self._requests, self._polls = Slots(most), Slots(most_polls)

    def acquire_slot(self, *, poll: bool) -> "Slots":
        """Occupy a slot until it is released; raise `Unavailable` if all are occupied.

        Long polls are counted separately, so that they do not prevent other requests.
        """
        hands = self._polls if poll else self._requests
        if hands.held >= hands.most:
            raise Unavailable(f"the service {self.name} has too many concurrent requests")
        hands.held += 1
        return hands

    async def begin(self, request: Request) -> tuple[Connection, Answer]:
        """Send a request and wait for the head of its answer; call `end` later.

        Raises `Unavailable` and `UpstreamFailed` for failures of the service; errors of the body,
        and all others, are not translated. The caller limits the time.
        """
        try:
            return await self._sent(request)
        except FAILURES as error:
            raise self._meaning(error) from error

    async def part(self, answer: Answer) -> tuple[bytes, bool]:
        """Return the next part of an answer, and whether more follows."""
        try:
            return await answer.part()
        except FAILURES as error:
            raise self._meaning(error) from error

    def timed_out(self) -> ThingwayError:
        """Return the error for a slow service."""
        return self._failed(UpstreamTimeout(f"the service {self.name} did not answer in time"))

    def end(self, connection: Connection) -> None:
        """Return the connection to the pool."""
        if connection.finish():
            self._pool.give_back(connection)

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def _meaning(self, failure: Exception) -> ThingwayError:
        """Return the error for the client for one of `FAILURES`."""
        log.debug("service %s: %r", self.name, failure)
        error: type[ThingwayError] = UpstreamFailed
        match failure:
            case Unreachable():
                error, what = Unavailable, "cannot be reached"
            case BrokenOff():
                what = "closed the connection"
            case _:
                what = "did not answer with HTTP"
        return self._failed(error(f"the service {self.name} {what}"))

    def _failed(self, error: ThingwayError) -> ThingwayError:
        log.warning("%s", error.message)
        self._metrics.upstream_failed(self.name, error.status)
        return error

    async def _sent(self, request: Request) -> tuple[Connection, Answer]:
        connection = self._pool.take_idle()
        if connection is not None:
            try:
                return connection, await self._exchange(connection, request)
            except StaleConnection:
                if request.method not in REPEATABLE or request.body is not None:
                    raise
        connection = await self._pool.open()
        return connection, await self._exchange(connection, request)

    async def _exchange(self, connection: Connection, request: Request) -> Answer:
        body = request.body
        try:
            answer = connection.start(
                self._head(request),
                body if isinstance(body, bytes) else None,
                bodiless=request.method == "HEAD",
            )
            if body is not None and not isinstance(body, bytes):
                connection.stream(body, chunked=request.length is None)
            await answer.head()
        except BaseException:
            connection.close()
            connection.finish()
            raise
        return answer

    def _head(self, request: Request) -> bytes:
        lines = [f"{request.method} {request.target} HTTP/1.1".encode("latin-1")]
        lines.append(b"host: " + self._host)
        lines += [name + b": " + value for name, value in request.fields]
        body = request.body
        if isinstance(body, bytes):
            lines.append(b"content-length: %d" % len(body))
        elif body is None:
            if request.method not in REPEATABLE:
                lines.append(b"content-length: 0")
        elif request.length is None:
            lines.append(b"transfer-encoding: chunked")
        else:
            lines.append(b"content-length: %d" % request.length)
        lines.append(b"\r\n")
        return b"\r\n".join(lines)
