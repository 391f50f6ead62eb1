"""A client of `/websocket` as an existing console is one, which looks at every frame strictly."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.contract.console import Console

PATIENCE = 20.0
PING = '{"event_type":"Heartbeat","payload":"ping"}'


class Socket:
    """A socket as an existing console uses it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def beats(self) -> None:
        """A heartbeat comes back letter by letter, behind everything that was said before."""
        await self.socket.send_str(PING)
        assert await self.receive() == PING

    async def subscribe(self, *keys: str) -> None:
        """Subscribe to these keys and no others; in force when this returns."""
        frame = {"event_type": "Exchange", "payload": {"entity_key": list(keys)}}
        await self.socket.send_json(frame)
        await self.beats()

    async def receive(self) -> str:
        """The next frame of text."""
        return str(await asyncio.wait_for(self.socket.receive_str(), PATIENCE))

    async def told(self) -> dict[str, Any]:
        """The values of the next push, whose shape is exactly the documented one."""
        frame = json.loads(await self.receive())
        assert set(frame) == {"event_type", "payload"}
        assert frame["event_type"] == "Exchange"
        payload = frame["payload"]
        assert set(payload) == {"entity_key", "values"}
        assert payload["entity_key"] == list(payload["values"])
        for told in payload["values"].values():
            assert set(told) == {"value", "timestamp"}
            assert isinstance(told["timestamp"], int)
        return {key: told["value"] for key, told in payload["values"].items()}

    async def closed(self) -> tuple[int | None, str]:
        """Code and reason of the end."""
        while True:
            message = await self.socket.receive(PATIENCE)
            if message.type is aiohttp.WSMsgType.CLOSE:
                return message.data, str(message.extra)
            assert message.type is aiohttp.WSMsgType.TEXT, message


@asynccontextmanager
async def opened(console: Console, prefix: str = "Bearer ", **more: Any) -> AsyncIterator[Socket]:
    """A socket with the token in the query."""
    query = {"Authorization": prefix + console.token}
    async with (
        aiohttp.ClientSession(str(console.http.base_url)) as session,
        session.ws_connect("/websocket", params=query, **more) as socket,
    ):
        yield Socket(socket)
