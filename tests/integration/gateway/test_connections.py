"""Connections at the door are counted by address."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.servers import Servers

from .conftest import Start
from .test_console import Auth, user
from .test_tunnel import Management, management

__all__ = ["management"]
GET = "GET /healthz HTTP/1.1\nHost: x\n\n"


@pytest.fixture
async def accounts(servers: Servers) -> AsyncIterator[Auth]:
    """`auth` on the bus."""
    async with Auth().answering(servers.nats_url) as answering:
        yield answering


async def test_an_address_has_so_many_connections(start: Start) -> None:
    """Beyond them it is 429 and closed; when one closes, the next is served."""
    async with start(address_connections=2) as gateway:
        first = [await gateway.wire(GET) for _ in range(2)]
        for reader, _ in first:
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        reader, _ = await gateway.wire("")
        assert b"429" in await reader.readline()
        assert b"retry-after: 5" in await reader.read()
        first[0][1].close()
        line = b"429"
        while b"429" in line or not line:
            reader, writer = await gateway.wire(GET)
            try:
                line = await reader.readline()
            except ConnectionError:  # it was closed with the request unread
                line = b""
        assert line == b"HTTP/1.1 200 OK\r\n"
        first[1][1].close()
        writer.close()


async def test_connections_of_trusted_proxies_are_not_counted(start: Start) -> None:
    """They speak for many clients."""
    async with start(address_connections=1, trusted_proxies="127.0.0.1") as gateway:
        for _ in range(3):
            reader, _ = await gateway.wire(GET)
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"


async def test_a_websocket_counts_until_it_closes(
    start: Start,
    management: Management,
    accounts: Auth,
) -> None:
    """As a connection of its address; afterwards there is room again."""
    upstreams = f"management=http://127.0.0.1:{management.port}"
    async with (
        start(upstreams=upstreams, address_connections=2) as gateway,
        aiohttp.ClientSession() as session,
    ):
        headers = await user(gateway)
        url = f"http://127.0.0.1:{gateway.port}/websocket"
        async with asyncio.timeout(20):
            sockets = []
            while len(sockets) < 2:
                try:
                    sockets.append(await session.ws_connect(url, headers=headers))
                except aiohttp.WSServerHandshakeError:  # the bus is not there yet
                    await asyncio.sleep(0.01)
            with pytest.raises(aiohttp.ClientError):
                await session.ws_connect(url, headers=headers)
            for socket in sockets:
                await socket.close()
            while True:
                try:
                    await (await session.ws_connect(url, headers=headers)).close()
                    break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.01)
