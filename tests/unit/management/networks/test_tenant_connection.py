"""What a webhook may have in hand."""

import asyncio
from typing import Any

import pytest

from libs.common.contracts.frames import DeviceFrame, FramesAnswer
from libs.common.errors import TooManyRequests
from services.management.networks.messages import InboundMessage
from services.management.networks.tenant_connection import MAX_CONCURRENT_HOOKS, TenantConnection
from services.management.networks.the_things_stack import decode_application_up
from tests.unit.management.networks.samples import TTS_UP


class Things:
    """`device`, which answers when it is let."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()

    async def send_frames(self, told: list[DeviceFrame]) -> FramesAnswer:
        await self.answers.wait()
        return FramesAnswer()

    async def report_own(self, tenant: str, properties: dict[str, Any]) -> None:
        """Nobody looks."""


class Store:
    async def save_routes(self, tenant: str, routes: dict[str, Any]) -> None:
        """Nothing."""


class Server:
    def __init__(self) -> None:
        self.things, self.store = Things(), Store()


async def test_a_flood_is_refused_while_the_platform_is_slow() -> None:
    """Beyond so many calls of a tenant; when those are through, others are taken again."""
    message = decode_application_up("t", TTS_UP)
    assert isinstance(message, InboundMessage)
    server: Any = Server()
    connection = TenantConnection(server, "t", 0)
    try:
        calls = [
            asyncio.create_task(connection.forward_hook_message(message))
            for _ in range(MAX_CONCURRENT_HOOKS)
        ]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await connection.forward_hook_message(message)
        server.things.answers.set()
        await asyncio.gather(*calls)
        await connection.forward_hook_message(message)
        assert connection.state.uplinks == MAX_CONCURRENT_HOOKS + 1
        assert connection.state.connected
    finally:
        await connection.stop()
