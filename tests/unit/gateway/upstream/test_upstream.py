"""What goes wrong in an exchange is blamed on the service only when it is the service's fault."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from yarl import URL

from libs.common.errors import ThingwayError, Unavailable, UpstreamFailed
from services.gateway.metrics import Metrics
from services.gateway.proxy.body import ClientDisconnected
from services.gateway.upstream.connection import (
    ConnectionBroken,
    InvalidAnswer,
    ServiceAnswer,
    ServiceConnection,
    StaleConnection,
)
from services.gateway.upstream.service import ServiceRequest, Unreachable, UpstreamService

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = ServiceRequest("GET", "/x", [], None, None)

NOT_OF_THE_SERVICE = [
    ClientDisconnected(),
    asyncio.CancelledError(),
    TimeoutError(),
    KeyError("a bug"),
    OSError("no more files"),
]
OF_THE_SERVICE = [
    (Unreachable(), Unavailable),
    (ConnectionBroken(), UpstreamFailed),
    (StaleConnection(), UpstreamFailed),
    (InvalidAnswer(), UpstreamFailed),
]


class _Failures(Metrics):
    """Keeps the failures that were counted."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[int] = []

    def count_upstream_failure(self, upstream: str, status: int) -> None:
        self.counted.append(status)


class _Pool:
    """A pool whose connections fail to open."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def take_idle(self) -> None:
        """There is none."""

    async def open(self) -> ServiceConnection:
        raise self._error


class _Source:
    def pause_reading(self) -> None:
        """Nothing to pause."""

    def resume_reading(self) -> None:
        """Nothing to resume."""


class _Transport:
    """Takes what is written, and says that it was closed as a real one does: later."""

    def __init__(self, connection: ServiceConnection) -> None:
        self._connection = connection

    def write(self, data: bytes) -> None:
        """Nobody reads it."""

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)


Make = Callable[[BaseException], tuple[UpstreamService, _Failures]]


@pytest.fixture
def make() -> Make:
    """Make a service that fails at its requests."""

    def make(error: BaseException) -> tuple[UpstreamService, _Failures]:
        metrics = _Failures()
        upstream = UpstreamService(
            "device", URL("http://d"), metrics, connect_timeout=1.0, maximum=1, max_polls=1
        )
        pool: Any = _Pool(error)
        upstream._pool = pool
        return upstream, metrics

    return make


@pytest.mark.parametrize("error", NOT_OF_THE_SERVICE, ids=repr)
async def test_other_errors_come_through(make: Make, error: BaseException) -> None:
    """An error that is not the service's is raised as it is, and not counted as its failure."""
    upstream, metrics = make(error)
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            await upstream.send_request(REQUEST)
        assert (caught.value, caught.value.__cause__) == (error, None)
    assert metrics.counted == []


@pytest.mark.parametrize(("error", "meaning"), OF_THE_SERVICE)
async def test_failures_get_their_meaning(
    make: Make, error: Exception, meaning: type[ThingwayError]
) -> None:
    """A failure of the service is an error that the client understands, and it is counted."""
    upstream, metrics = make(error)
    for _ in range(2):
        with pytest.raises(meaning, match="the service device"):
            await upstream.send_request(REQUEST)
    assert metrics.counted == [meaning.status] * 2


@pytest.mark.parametrize("error", NOT_OF_THE_SERVICE[2:], ids=repr)
async def test_errors_of_the_caller_are_raised_unchanged(make: Make, error: Exception) -> None:
    """Only errors of the service are converted."""
    upstream, metrics = make(error)
    answer = ServiceAnswer(_Source())
    answer.fail(error)
    with pytest.raises(type(error)) as caught:
        await upstream.receive_part(answer)
    assert (caught.value, metrics.counted) == (error, [])


def _started(connection: ServiceConnection) -> ServiceAnswer:
    transport: Any = _Transport(connection)
    connection.connection_made(transport)
    return connection.send_request(b"", None, bodiless=False)


async def test_bug_in_a_callback_is_not_blamed_on_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error of ours while an answer is parsed is that error, not "no HTTP"."""
    answer = _started(connection := ServiceConnection())

    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(ServiceAnswer, "store_head", broken)
    connection.data_received(ANSWER)
    with pytest.raises(KeyError, match="a bug"):
        await answer.wait_for_head()
    assert connection.closed


async def test_body_that_fails_ends_the_exchange_with_its_own_error() -> None:
    """When the client goes in the middle of its body, that is what is raised."""

    async def body():
        yield b"part"
        raise ClientDisconnected

    answer = _started(connection := ServiceConnection())
    connection.stream_body(body(), chunked=True)
    with pytest.raises(ClientDisconnected):
        await answer.wait_for_head()
    assert connection.closed
