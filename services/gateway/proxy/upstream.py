"""A service behind the gateway: its connections, and its failures as errors of ours."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import (
    ClientConnectionError,
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    TCPConnector,
)
from multidict import CIMultiDict
from yarl import URL

from libs.common.errors import ThingwayError, Unavailable, UpstreamFailed, UpstreamTimeout
from services.gateway.metrics import Metrics

log = logging.getLogger(__name__)

DNS_LIFE = 5
"""Seconds that addresses of a service are remembered; new connections take turns on them."""
IDLE_LIFE = 30.0
"""Seconds that an idle connection is kept: less than services keep it (75 s)."""
SESSION_LIFE = 60.0
"""Seconds until connections are made anew, so that added replicas get their share."""
READ_BUFFER = 64 * 1024

_NO_AUTOMATIC_FIELDS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

Body = bytes | AsyncIterator[bytes] | None


class _Pool:
    """One session and the number of requests that use it."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.made = time.monotonic()
        self.users = 0


class Upstream:
    """One service, with a connection pool of its own: its troubles stay its own."""

    def __init__(
        self,
        name: str,
        base: URL,
        metrics: Metrics,
        *,
        connect_timeout: float,
        read_timeout: float,
    ) -> None:
        self.name = name
        self._metrics = metrics
        self._base = str(base).rstrip("/")
        self._timeout = ClientTimeout(
            total=None,
            connect=connect_timeout,
            sock_connect=connect_timeout,
            sock_read=None,
        )
        self._read_timeout = read_timeout
        self._pool: _Pool | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def request(
        self, method: str, target: str, *, headers: CIMultiDict[str], body: Body, timeout: float
    ) -> AsyncIterator[ClientResponse]:
        """Send a request and give the answer, whose head is here and whose body is not.

        Raises `Unavailable`, `UpstreamFailed` and `UpstreamTimeout`; `timeout` is in
        seconds and ends with the head. A kept-alive connection that turns out to be closed
        is replaced once, for methods that may be repeated (aiohttp does that).
        """
        pool = self._current_pool()
        pool.users += 1
        try:
            async with asyncio.timeout(timeout):
                response = await pool.session.request(
                    method,
                    URL(self._base + target, encoded=True),
                    headers=headers,
                    data=body,
                    allow_redirects=False,
                    timeout=self._timeout,
                )
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._failure(error) from error
        else:
            try:
                yield response
            finally:
                if response.content.at_eof():
                    response.release()
                else:
                    response.close()
        finally:
            pool.users -= 1
            self._retire(pool)

    async def part(self, response: ClientResponse) -> tuple[bytes, bool]:
        """The next part of the body, and whether there is more; raises as `request` does."""
        content = response.content
        try:
            if content.is_eof():
                part = content.read_nowait()
            else:
                async with asyncio.timeout(self._read_timeout):
                    part = await content.readany()
        except (ClientError, OSError, TimeoutError) as error:
            raise self._failure(error) from error
        return part, not content.at_eof()

    def _failure(self, error: Exception) -> ThingwayError:
        log.warning("service %s: %r", self.name, error)
        known = self._classify(error)
        self._metrics.upstream_failed(self.name, known.status)
        return known

    def _classify(self, error: Exception) -> ThingwayError:
        match error:
            case ConnectionTimeoutError() | ClientConnectorError():
                return Unavailable(f"the service {self.name} cannot be reached")
            case TimeoutError():
                return UpstreamTimeout(f"the service {self.name} did not answer in time")
            case ClientConnectionError() | OSError():
                return UpstreamFailed(f"the service {self.name} broke the connection off")
            case _:
                return UpstreamFailed(f"the service {self.name} did not answer in HTTP")

    async def close(self) -> None:
        """Close every connection."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.session.close()
        await asyncio.gather(*self._closing)

    def _current_pool(self) -> _Pool:
        pool = self._pool
        if pool is None or pool.made + SESSION_LIFE < time.monotonic():
            self._pool = _Pool(_new_session())
            if pool is not None:
                self._retire(pool)
            return self._pool
        return pool

    def _retire(self, pool: _Pool) -> None:
        if pool is self._pool or pool.users or pool.session.closed:
            return
        task = asyncio.ensure_future(pool.session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _new_session() -> ClientSession:
    return ClientSession(
        connector=TCPConnector(
            limit=0, ttl_dns_cache=DNS_LIFE, keepalive_timeout=IDLE_LIFE, happy_eyeballs_delay=0.25
        ),
        auto_decompress=False,
        cookie_jar=DummyCookieJar(),
        skip_auto_headers=_NO_AUTOMATIC_FIELDS,
        read_bufsize=READ_BUFFER,
    )
