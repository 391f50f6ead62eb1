"""Connections to a service are spread, kept for a while, and replaced."""

import asyncio
from typing import Any

import pytest
from yarl import URL

from services.gateway.upstream import service as module
from services.gateway.upstream.connection import ServiceConnection
from services.gateway.upstream.service import ConnectionPool, Unreachable


class Opened(ConnectionPool):
    """A pool that notes the addresses it would connect to."""

    def __init__(self, addresses: list[str], dead: set[str] = frozenset()) -> None:
        super().__init__(URL("http://service:80"), 1.0)
        self._found, self._dead = addresses, dead
        self.opened: list[str] = []

    async def _resolve(self) -> list[str]:
        self._addresses, self._resolved = self._found, float("inf")
        return await super()._resolve()

    async def _connect(self, address: str) -> ServiceConnection:
        if address in self._dead:
            raise ConnectionRefusedError
        self.opened.append(address)
        connection: Any = ServiceConnection()
        connection._transport = _Transport()
        return connection


class _Transport:
    def abort(self) -> None:
        """Nothing to close."""


async def test_new_connections_take_turns() -> None:
    """Connections are spread over all addresses of a name."""
    pool = Opened(["a", "b", "c"])
    for _ in range(6):
        await pool.open()
    assert pool.opened == ["a", "b", "c", "a", "b", "c"]


async def test_dead_address_is_passed_over() -> None:
    """An address that refuses costs one attempt; the next one serves."""
    pool = Opened(["a", "b"], {"a"})
    await pool.open()
    assert pool.opened == ["b"]


async def test_no_address_is_unreachable() -> None:
    """When every address refuses, the service cannot be reached."""
    with pytest.raises(Unreachable, match="service:80"):
        await Opened(["a", "b"], {"a", "b"}).open()


async def test_last_used_is_taken_first() -> None:
    """Idle connections are used again, the most recent first."""
    pool = Opened(["a"])
    one, two = await pool.open(), await pool.open()
    pool.give_back(one)
    pool.give_back(two)
    assert [pool.take_idle(), pool.take_idle(), pool.take_idle()] == [two, one, None]


@pytest.mark.parametrize("limit", ["MAX_IDLE_SECONDS", "MAX_CONNECTION_AGE_SECONDS"])
async def test_old_connection_is_closed(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that idled too long, or is too old, is closed instead of used."""
    pool = Opened(["a"])
    connection = await pool.open()
    pool.give_back(connection)
    monkeypatch.setattr(module, limit, 0.0)
    await asyncio.sleep(0)
    assert pool.take_idle() is None
    assert connection.closed
