"""A service behind the gateway: exchanges with it, and its failures as errors of ours."""

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
"""Methods that are sent again when a kept-alive connection turns out to be closed."""

FAILURES = (Unreachable, BrokenOff, NotHttp)
"""What is the service's fault; of all other errors it is innocent."""

Body = bytes | AsyncIterator[bytes] | None


class Request(NamedTuple):
    """What is sent to a service."""

    method: str
    target: str
    """Path and query."""
    fields: Iterable[Field]
    """Header fields, without those that describe the body."""
    body: Body
    length: int | None
    """Bytes of a streamed body, None when it has to be chunked."""


class Slots:
    """How many requests a service has in hand, and how many it may."""

    __slots__ = ("held", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def give(self) -> None:
        """Give one back."""
        self.held -= 1


class Upstream:
    """One service with connections of its own, so that its troubles stay its own."""

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

    def take(self, *, poll: bool) -> "Slots":
        """Take a request in hand, until it is given back; raise `Unavailable` when it is full.

        Long polls last, so they are counted apart and never keep a request out.
        """
        hands = self._polls if poll else self._requests
        if hands.held >= hands.most:
            raise Unavailable(f"the service {self.name} has too many requests in hand")
        hands.held += 1
        return hands

    async def begin(self, request: Request) -> tuple[Connection, Answer]:
        """Send a request and return when the head of the answer is here; `end` has to follow.

        Raises `Unavailable` and `UpstreamFailed` for failures of the service; what the body
        raises, and every other error, comes through as it is. The caller bounds the time.
        """
        try:
            return await self._sent(request)
        except FAILURES as error:
            raise self._meaning(error) from error

    async def part(self, answer: Answer) -> tuple[bytes, bool]:
        """The next part of an answer, and whether there is more; raises as `begin` does."""
        try:
            return await answer.part()
        except FAILURES as error:
            raise self._meaning(error) from error

    def timed_out(self) -> ThingwayError:
        """The refusal when the service was too slow."""
        return self._failed(UpstreamTimeout(f"the service {self.name} did not answer in time"))

    def end(self, connection: Connection) -> None:
        """Take the connection back."""
        if connection.finish():
            self._pool.give_back(connection)

    def close(self) -> None:
        """Close the connections that are idle."""
        self._pool.close()

    def _meaning(self, failure: Exception) -> ThingwayError:
        """What one of `FAILURES` is to the client."""
        log.debug("service %s: %r", self.name, failure)
        error: type[ThingwayError] = UpstreamFailed
        match failure:
            case Unreachable():
                error, what = Unavailable, "cannot be reached"
            case BrokenOff():
                what = "broke the connection off"
            case _:
                what = "did not answer in HTTP"
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
