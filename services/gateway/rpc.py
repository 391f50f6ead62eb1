"""Calls to other services over a bus connection that is opened in the background."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from nats.errors import Error as NatsError

from libs.common.bus import Bus, RpcClient
from libs.common.errors import Unavailable
from services.gateway.settings import GatewaySettings

log = logging.getLogger(__name__)

A = TypeVar("A")

RECONNECT_SECONDS = 1.0
"""Seconds between two attempts to connect."""


class BackgroundRpcClient(RpcClient):
    """An `RpcClient` that connects in the background, and is unavailable until then."""

    def __init__(
        self, settings: GatewaySettings, connected: Callable[[Bus], Awaitable[None]]
    ) -> None:
        """`connected` is called with a new connection, before the first call uses it.

        If `connected` raises an error of NATS, the client connects again.
        """
        self._settings = settings
        self._when_connected = connected
        self._connected: Bus | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start connecting."""
        self._task = asyncio.ensure_future(self._connect())

    async def close(self) -> None:
        """Close the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=RECONNECT_SECONDS)
        if self._connected is not None:
            await self._connected.drain()

    async def call(self, subject: str, request: Any, answer: type[A], timeout: float = 5.0) -> A:
        """Call `subject`; raise `Unavailable` without a connection."""
        if self._connected is None:
            raise Unavailable("the bus is not reachable at the moment")
        return await RpcClient(self._connected).call(subject, request, answer, timeout)

    async def _connect(self) -> None:
        while self._connected is None:
            try:
                bus = await Bus.connect(
                    self._settings.nats_url,
                    user=self._settings.nats_user,
                    password=self._settings.nats_password,
                    name="gateway",
                    ca_file=self._settings.ca_file,
                )
                try:
                    await self._when_connected(bus)
                except NatsError:
                    await bus.close()
                    raise
                self._connected = bus
            except (NatsError, OSError, TimeoutError) as error:
                log.warning("cannot connect to NATS yet: %r", error)
                await asyncio.sleep(RECONNECT_SECONDS)
